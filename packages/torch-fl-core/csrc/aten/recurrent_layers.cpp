// Owns: recurrent layers on an accelerator that has them whole (cuDNN). PyTorch's composition gives
// those to devices that it knows by name, and composes the layer of cells elsewhere. This one asks
// the target whether it would, and calls the same operator with flagos tensors.
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/RNN.h>
#include <ATen/ops/_cudnn_rnn_flatten_weight_ops.h>
#include <ATen/ops/_cudnn_rnn_ops.h>
#include <ATen/ops/cudnn_is_acceptable_ops.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <ATen/ops/to_ops.h>

#include "aten/composition.h"
#include "aten/own_operators.h"
#include "aten/plain.h"
#include "aten/recurrent_dropout.h"
#include "aten/recurrent_weights.h"
#include "boxing/relabeling.h"
#include "routing/operator.h"

namespace torch_fl {
namespace {

using at::Tensor;
using at::TensorList;

// The library's numbers for kinds of layers.
enum Mode : int64_t { kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3 };

// How a layer was called, but for its tensors.
struct Call {
  Mode mode;
  bool has_biases;
  int64_t layers;
  double dropout;
  bool train;
  bool bidirectional;
  bool batch_first = false;
};

// Whether the target gives a layer with this input to its library.
bool taken_whole(const Tensor& input) {
  if (!is_plain(input)) return false;
  Relabeling call;
  return at::_ops::cudnn_is_acceptable::call(call.alias(input));
}

RecurrentShape shape_of(const Call& call, const Tensor& input, const Tensor& hx, const Tensor& cx) {
  const bool projected = cx.defined() && cx.size(2) != hx.size(2);
  return {.mode = call.mode,
          .input_size = input.size(-1),
          .hidden_size = projected ? cx.size(2) : hx.size(2),
          .projection_size = projected ? hx.size(2) : 0,
          .layers = call.layers,
          .weights_in_a_layer = (call.has_biases ? 4 : 2) + (projected ? 1 : 0),
          .batch_first = call.batch_first,
          .bidirectional = call.bidirectional};
}

// Half-precision copies in one piece, with gradients: what CUDA's autocast makes of a layer's weights.
std::pair<Tensor, std::vector<Tensor>> in_half_precision(TensorList weights,
                                                         const RecurrentShape& shape) {
  std::vector<Tensor> halves;
  for (const Tensor& weight : weights) {
    halves.push_back(at::_ops::to_dtype::call(weight, at::kHalf, /*non_blocking=*/false,
                                              /*copy=*/true, std::nullopt));
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  auto buffer = flatten_weights(halves, shape);
  return {std::move(buffer), std::move(halves)};
}

std::tuple<Tensor, Tensor, Tensor> run(const Call& call, const Tensor& input, const Tensor& hx,
                                       const Tensor& cx, TensorList params,
                                       c10::SymIntArrayRef batch_sizes) {
  const auto shape = shape_of(call, input, hx, cx);
  const bool autocast = at::autocast::is_autocast_enabled(kFlagos);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      autocast ? c10::DispatchKeySet(c10::DispatchKey::AutocastPrivateUse1)
               : c10::DispatchKeySet());
  const auto cast = [&](const Tensor& tensor) {
    return autocast && tensor.defined() ? at::autocast::cached_cast(at::kHalf, tensor, kFlagos)
                                        : tensor;
  };
  Tensor buffer;
  std::vector<Tensor> weights(params.begin(), params.end());
  const auto dtype = params[0].scalar_type();
  if (autocast && (dtype == at::kFloat || dtype == at::kBFloat16)) {
    std::tie(buffer, weights) = in_half_precision(params, shape);
  } else {
    buffer = flat_buffer(params, shape);
  }
  const auto optional = [](const Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  const RecurrentDropout dropout(input, call.dropout, call.train);
  auto results = at::_ops::_cudnn_rnn::call(
      cast(input), weights, shape.weights_in_a_layer, optional(buffer), cast(hx),
      optional(cast(cx)), shape.mode, shape.hidden_size, shape.projection_size, shape.layers,
      shape.batch_first, call.dropout, call.train, shape.bidirectional, batch_sizes,
      optional(dropout.buffer()));
  return {std::get<0>(results), std::get<1>(results), std::get<2>(results)};
}

c10::SymIntArrayRef sizes_in(const Tensor& batch_sizes) {
  TORCH_CHECK(batch_sizes.dim() == 1, "batch_sizes tensor should be 1D");
  return c10::fromIntArrayRefUnchecked(
      {batch_sizes.data_ptr<int64_t>(), static_cast<size_t>(batch_sizes.size(0))});
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, TensorList hx, TensorList params,
                                        bool has_biases, int64_t layers, double dropout_p,
                                        bool train, bool bidirectional, bool batch_first) {
  if (hx.size() != 2 || !taken_whole(input)) {
    return at::native::lstm(input, hx, params, has_biases, layers, dropout_p, train, bidirectional,
                            batch_first);
  }
  at::native::check_attributes(input, params, hx);
  return run({kLstm, has_biases, layers, dropout_p, train, bidirectional, batch_first}, input,
             hx[0], hx[1], params, {});
}

std::tuple<Tensor, Tensor, Tensor> lstm_packed(const Tensor& data, const Tensor& batch_sizes,
                                               TensorList hx, TensorList params, bool has_biases,
                                               int64_t layers, double dropout_p, bool train,
                                               bool bidirectional) {
  if (hx.size() != 2 || !taken_whole(data)) {
    return at::native::lstm(data, batch_sizes, hx, params, has_biases, layers, dropout_p, train,
                            bidirectional);
  }
  at::native::check_attributes(data, params, hx);
  return run({kLstm, has_biases, layers, dropout_p, train, bidirectional}, data, hx[0], hx[1],
             params, sizes_in(batch_sizes));
}

using Layer = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, TensorList, bool, int64_t,
                                         double, bool, bool, bool);
using PackedLayer = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                               TensorList, bool, int64_t, double, bool, bool);

std::tuple<Tensor, Tensor> output_and_hidden(std::tuple<Tensor, Tensor, Tensor>&& results) {
  return {std::move(std::get<0>(results)), std::move(std::get<1>(results))};
}

// GRU and plain layers have one hidden state and differ in nothing but their kind.
template <Mode kMode, Layer* kComposition>
std::tuple<Tensor, Tensor> layer(const Tensor& input, const Tensor& hx, TensorList params,
                                 bool has_biases, int64_t layers, double dropout_p, bool train,
                                 bool bidirectional, bool batch_first) {
  if (!taken_whole(input)) {
    return kComposition(input, hx, params, has_biases, layers, dropout_p, train, bidirectional,
                        batch_first);
  }
  at::native::check_attributes(input, params, hx);
  return output_and_hidden(
      run({kMode, has_biases, layers, dropout_p, train, bidirectional, batch_first}, input, hx, {},
          params, {}));
}

template <Mode kMode, PackedLayer* kComposition>
std::tuple<Tensor, Tensor> layer_packed(const Tensor& data, const Tensor& batch_sizes,
                                        const Tensor& hx, TensorList params, bool has_biases,
                                        int64_t layers, double dropout_p, bool train,
                                        bool bidirectional) {
  if (!taken_whole(data)) {
    return kComposition(data, batch_sizes, hx, params, has_biases, layers, dropout_p, train,
                        bidirectional);
  }
  at::native::check_attributes(data, params, hx);
  return output_and_hidden(run({kMode, has_biases, layers, dropout_p, train, bidirectional}, data,
                               hx, {}, params, sizes_in(batch_sizes)));
}

// Its schema does not say that it changes the weights, so boxing cannot run it.
// NOLINTBEGIN(performance-unnecessary-value-param): the operator's own C++ type
Tensor flatten_weight(TensorList weights, int64_t stride, c10::SymInt input_size, int64_t mode,
                      c10::SymInt hidden_size, c10::SymInt projection_size, int64_t layers,
                      bool batch_first, bool bidirectional) {
  return flatten_weights(weights, {.mode = mode,
                                   .input_size = input_size.expect_int(),
                                   .hidden_size = hidden_size.expect_int(),
                                   .projection_size = projection_size.expect_int(),
                                   .layers = layers,
                                   .weights_in_a_layer = stride,
                                   .batch_first = batch_first,
                                   .bidirectional = bidirectional});
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace

void install_recurrent_layers() {
  if (target().type == c10::DeviceType::CPU) return;  // its composition is for every device
  routing::Typed<at::_ops::_cudnn_rnn_flatten_weight>::install_fixed(&flatten_weight);
  if (!routing::find("aten::_cudnn_rnn", "").hasKernelForDispatchKey(target().dense)) return;
  using namespace at::native;
  install_composition<&torch_fl::lstm>("aten::lstm", "input");
  install_composition<&lstm_packed>("aten::lstm", "data");
  install_composition<&layer<kGru, &gru>>("aten::gru", "input");
  install_composition<&layer_packed<kGru, &gru>>("aten::gru", "data");
  install_composition<&layer<kTanh, &rnn_tanh>>("aten::rnn_tanh", "input");
  install_composition<&layer_packed<kTanh, &rnn_tanh>>("aten::rnn_tanh", "data");
  install_composition<&layer<kRelu, &rnn_relu>>("aten::rnn_relu", "input");
  install_composition<&layer_packed<kRelu, &rnn_relu>>("aten::rnn_relu", "data");
}

}  // namespace torch_fl
