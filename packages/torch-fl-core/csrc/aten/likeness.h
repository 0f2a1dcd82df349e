// Owns: tensors of the target to ask it about. Of plain tensors they are aliases. Wrappers and the fake
// tensors of tracers have no memory to alias: theirs say the same of themselves (shape, strides, dtype,
// whether a gradient is wanted) and have none either, which is all that a choice of kernels reads.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "boxing/relabeling.h"

namespace torch_fl {

// Whether `tensor` is a dense one of flagos, plain or wrapped. Lists of tensors in one (nested) are not.
bool has_likeness(const at::Tensor& tensor);

class Likenesses {
 public:
  explicit Likenesses(Relabeling::Aliases aliases = Relabeling::Aliases::kFull) : call_(aliases) {}

  // Of a tensor that has one, or of an undefined one, which is itself. It must not outlive this.
  at::Tensor of(const at::Tensor& tensor);
  std::optional<at::Tensor> of(const std::optional<at::Tensor>& tensor) {
    return tensor ? std::optional(of(*tensor)) : std::nullopt;
  }
  // The flagos device of those before.
  c10::DeviceIndex device() const { return device_; }

 private:
  Relabeling call_;
  c10::DeviceIndex device_ = 0;
};

}  // namespace torch_fl
