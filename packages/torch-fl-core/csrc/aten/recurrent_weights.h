// Owns: a recurrent layer's weights in one piece of memory, in the order of the target's library.
#pragma once
#include <ATen/core/Tensor.h>

namespace torch_fl {

// What decides the order, in the library's numbers.
struct RecurrentShape {
  int64_t mode;
  int64_t input_size;
  int64_t hidden_size;
  int64_t projection_size;  // 0 without one
  int64_t layers;
  int64_t weights_in_a_layer;
  bool batch_first;
  bool bidirectional;
};

// Moves `weights` into one piece of memory, which is returned; they keep their values and identity.
at::Tensor flatten_weights(at::TensorList weights, const RecurrentShape& shape);

// The one piece in which `weights` lie in the library's order; undefined where they do not.
at::Tensor flat_buffer(at::TensorList weights, const RecurrentShape& shape);

}  // namespace torch_fl
