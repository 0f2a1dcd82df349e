// Owns: recurrent layers on an accelerator that has them whole (cuDNN). PyTorch's composition gives
// those to devices that it knows by name, and composes the layer of cells elsewhere. What the
// composition calls there takes flagos tensors as well, since it calls operators of PyTorch; so this
// asks the target whether it would, and calls it.
#include <ATen/core/Tensor.h>
#include <ATen/native/RNN.h>
#include <ATen/ops/_cudnn_rnn_flatten_weight_ops.h>
#include <ATen/ops/cudnn_is_acceptable_ops.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <ATen/ops/set_ops.h>

#include "aten/composition.h"
#include "aten/own_operators.h"
#include "aten/plain.h"
#include "aten/target_stub.h"
#include "boxing/interchange.h"
#include "boxing/relabeling.h"
#include "routing/operator.h"

namespace torch_fl {
namespace {

using at::Tensor;
using at::TensorList;

// What the target runs for a layer with this input; null where it composes the layer as well.
template <class Table>
typename Table::FnPtr of_target(Table& table, const Tensor& input) {
  const auto function = target_function(table);
  if (function == nullptr || !is_plain(input)) return nullptr;
  Relabeling call;
  return at::_ops::cudnn_is_acceptable::call(call.alias(input)) ? function : nullptr;
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, TensorList hx, TensorList params,
                                        bool has_biases, int64_t layers, double dropout_p,
                                        bool train, bool bidirectional, bool batch_first) {
  const auto run = of_target(at::native::lstm_cudnn_stub, input);
  if (hx.size() != 2 || run == nullptr) {
    return at::native::lstm(input, hx, params, has_biases, layers, dropout_p, train, bidirectional,
                            batch_first);
  }
  at::native::check_attributes(input, params, hx);
  std::tuple<Tensor, Tensor, Tensor> results;
  auto& [output, hy, cy] = results;
  run(output, hy, cy, input, hx, params, has_biases, layers, dropout_p, train, bidirectional,
      batch_first);
  return results;
}

std::tuple<Tensor, Tensor, Tensor> lstm_packed(const Tensor& data, const Tensor& batch_sizes,
                                               TensorList hx, TensorList params, bool has_biases,
                                               int64_t layers, double dropout_p, bool train,
                                               bool bidirectional) {
  const auto run = of_target(at::native::lstm_packed_cudnn_stub, data);
  if (hx.size() != 2 || run == nullptr) {
    return at::native::lstm(data, batch_sizes, hx, params, has_biases, layers, dropout_p, train,
                            bidirectional);
  }
  at::native::check_attributes(data, params, hx);
  std::tuple<Tensor, Tensor, Tensor> results;
  auto& [output, hy, cy] = results;
  run(output, hy, cy, data, batch_sizes, hx, params, has_biases, layers, dropout_p, train,
      bidirectional);
  return results;
}

using Layer = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, TensorList, bool, int64_t,
                                         double, bool, bool, bool);
using PackedLayer = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                               TensorList, bool, int64_t, double, bool, bool);

// GRU and plain layers have one hidden state and differ in nothing but what is called.
template <auto& kLibrary, Layer* kComposition>
std::tuple<Tensor, Tensor> layer(const Tensor& input, const Tensor& hx, TensorList params,
                                 bool has_biases, int64_t layers, double dropout_p, bool train,
                                 bool bidirectional, bool batch_first) {
  const auto run = of_target(kLibrary, input);
  if (run == nullptr) {
    return kComposition(input, hx, params, has_biases, layers, dropout_p, train, bidirectional,
                        batch_first);
  }
  at::native::check_attributes(input, params, hx);
  std::tuple<Tensor, Tensor> results;
  auto& [output, hy] = results;
  run(output, hy, input, hx, params, has_biases, layers, dropout_p, train, bidirectional,
      batch_first);
  return results;
}

template <auto& kLibrary, PackedLayer* kComposition>
std::tuple<Tensor, Tensor> layer_packed(const Tensor& data, const Tensor& batch_sizes,
                                        const Tensor& hx, TensorList params, bool has_biases,
                                        int64_t layers, double dropout_p, bool train,
                                        bool bidirectional) {
  const auto run = of_target(kLibrary, data);
  if (run == nullptr) {
    return kComposition(data, batch_sizes, hx, params, has_biases, layers, dropout_p, train,
                        bidirectional);
  }
  at::native::check_attributes(data, params, hx);
  std::tuple<Tensor, Tensor> results;
  auto& [output, hy] = results;
  run(output, hy, data, batch_sizes, hx, params, has_biases, layers, dropout_p, train,
      bidirectional);
  return results;
}

// Moves a layer's weights into one piece of memory, in the library's order; its schema does not say
// that it changes them.
Tensor flatten_weight(TensorList weights, int64_t stride, c10::SymInt input_size, int64_t mode,
                      c10::SymInt hidden_size, c10::SymInt projection_size, int64_t layers,
                      bool batch_first, bool bidirectional) {
  std::vector<Tensor> aliases;
  Tensor flat;
  {
    Relabeling call;
    for (const Tensor& weight : weights) aliases.push_back(call.alias(weight));
    const Tensor result = at::_ops::_cudnn_rnn_flatten_weight::call(
        aliases, stride, std::move(input_size), mode, std::move(hidden_size),
        std::move(projection_size), layers, batch_first, bidirectional);
    // Not `wrap`: by now it shares its memory with the aliases, which are no longer the weights.
    flat = from_target(result, call.device());
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (aliases[i].storage().data() != flat.storage().data()) continue;  // left where it was
    Tensor weight = weights[i];
    at::_ops::set__source_Storage_storage_offset::call(
        weight, flat.storage(), aliases[i].sym_storage_offset(), aliases[i].sym_sizes(),
        aliases[i].sym_strides());
  }
  return flat;
}

}  // namespace

void install_recurrent_layers() {
  if (target().type == c10::DeviceType::CPU) return;  // its composition is for every device
  using namespace at::native;
  install_composition<&torch_fl::lstm>("aten::lstm", "input");
  install_composition<&lstm_packed>("aten::lstm", "data");
  install_composition<&layer<gru_cudnn_stub, &gru>>("aten::gru", "input");
  install_composition<&layer_packed<gru_packed_cudnn_stub, &gru>>("aten::gru", "data");
  install_composition<&layer<rnn_tanh_cudnn_stub, &rnn_tanh>>("aten::rnn_tanh", "input");
  install_composition<&layer_packed<rnn_tanh_packed_cudnn_stub, &rnn_tanh>>("aten::rnn_tanh",
                                                                            "data");
  install_composition<&layer<rnn_relu_cudnn_stub, &rnn_relu>>("aten::rnn_relu", "input");
  install_composition<&layer_packed<rnn_relu_packed_cudnn_stub, &rnn_relu>>("aten::rnn_relu",
                                                                            "data");
  routing::Typed<at::_ops::_cudnn_rnn_flatten_weight>::install_core(&flatten_weight);
}

}  // namespace torch_fl
