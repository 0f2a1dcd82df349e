// Owns: the fused LSTM and GRU cells, on a target that has none. PyTorch calls them for every
// accelerator; the formulas are written out over the target's tensors, one boxed call for all.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_thnn_fused_gru_cell_backward_ops.h>
#include <ATen/ops/_thnn_fused_gru_cell_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_backward_impl_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_ops.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/chunk.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>

#include "aten/own_operators.h"
#include "boxing/own_call.h"
#include "routing/operator.h"

namespace torch_fl {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor plus_bias(Tensor gates, const Tensor& bias) {
  if (!bias.defined()) return gates;
  return gates + bias;
}

Tensor join(at::TensorList gates) { return at::cat(gates, 1); }

Tensor bias_gradient(const Tensor& gates, bool has_bias) {
  return has_bias ? gates.sum(0) : Tensor();
}

// input_gates, hidden_gates: (batch, 4 * hidden); cx: (batch, hidden). The workspace holds the
// activated gates: input, forget, cell, output.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                             const Tensor& cx, const OptionalTensor& input_bias,
                                             const OptionalTensor& hidden_bias) {
  OwnCall<at::_ops::_thnn_fused_lstm_cell> call;
  const Tensor& x = call.in(input_gates);
  const Tensor& h = call.in(hidden_gates);
  const Tensor& c = call.in(cx);
  const Tensor& bx = call.in(input_bias);
  const Tensor& bh = call.in(hidden_bias);
  return call.run([&] {
    const auto gates = plus_bias(plus_bias(x + h, bx), bh).chunk(4, 1);
    const Tensor in = gates[0].sigmoid();
    const Tensor forget = gates[1].sigmoid();
    const Tensor cell = gates[2].tanh();
    const Tensor out = gates[3].sigmoid();
    Tensor cy = forget * c + in * cell;
    Tensor hy = out * cy.tanh();
    return std::tuple{std::move(hy), std::move(cy), join({in, forget, cell, out})};
  });
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy,
                                                      const OptionalTensor& grad_cy,
                                                      const Tensor& cx, const Tensor& cy,
                                                      const Tensor& workspace, bool has_bias) {
  if (!(grad_hy && grad_hy->defined()) && !(grad_cy && grad_cy->defined())) return {};
  OwnCall<at::_ops::_thnn_fused_lstm_cell_backward_impl> call;
  const Tensor& ghy = call.in(grad_hy);
  const Tensor& gcy = call.in(grad_cy);
  const Tensor& c = call.in(cx);
  const Tensor& new_c = call.in(cy);
  const Tensor& saved = call.in(workspace);
  return call.run([&] {
    const auto gates = saved.chunk(4, 1);
    const Tensor& in = gates[0];
    const Tensor& forget = gates[1];
    const Tensor& cell = gates[2];
    const Tensor& out = gates[3];
    const Tensor tanh_c = new_c.tanh();
    Tensor grad_c = gcy.defined() ? gcy : at::zeros_like(new_c);
    Tensor grad_out = at::zeros_like(out);
    if (ghy.defined()) {
      grad_c = grad_c + ghy * out * (1 - tanh_c * tanh_c);
      grad_out = ghy * tanh_c;
    }
    Tensor grad_gates = join({grad_c * cell * in * (1 - in), grad_c * c * forget * (1 - forget),
                              grad_c * in * (1 - cell * cell), grad_out * out * (1 - out)});
    Tensor grad_bias = bias_gradient(grad_gates, has_bias);
    return std::tuple{std::move(grad_gates), grad_c * forget, std::move(grad_bias)};
  });
}

// input_gates, hidden_gates: (batch, 3 * hidden); hx: (batch, hidden). The workspace holds reset,
// update and new gates, the hidden state and the hidden part of the new gate.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                    const Tensor& hx, const OptionalTensor& input_bias,
                                    const OptionalTensor& hidden_bias) {
  OwnCall<at::_ops::_thnn_fused_gru_cell> call;
  const Tensor& x = call.in(input_gates);
  const Tensor& h = call.in(hidden_gates);
  const Tensor& state = call.in(hx);
  const Tensor& bx = call.in(input_bias);
  const Tensor& bh = call.in(hidden_bias);
  return call.run([&] {
    const auto from_input = plus_bias(x, bx).chunk(3, 1);
    const auto from_hidden = plus_bias(h, bh).chunk(3, 1);
    const Tensor reset = (from_input[0] + from_hidden[0]).sigmoid();
    const Tensor update = (from_input[1] + from_hidden[1]).sigmoid();
    const Tensor fresh = (from_input[2] + reset * from_hidden[2]).tanh();
    Tensor hy = fresh + update * (state - fresh);
    return std::tuple{std::move(hy), join({reset, update, fresh, state, from_hidden[2]})};
  });
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy,
                                                                     const Tensor& workspace,
                                                                     bool has_bias) {
  OwnCall<at::_ops::_thnn_fused_gru_cell_backward> call;
  const Tensor& grad = call.in(grad_hy);
  const Tensor& activated = call.in(workspace);
  return call.run([&] {
    const auto saved = activated.chunk(5, 1);
    const Tensor& reset = saved[0];
    const Tensor& update = saved[1];
    const Tensor& fresh = saved[2];
    const Tensor& state = saved[3];
    const Tensor& hidden_new = saved[4];
    const Tensor grad_update = grad * (state - fresh) * update * (1 - update);
    const Tensor grad_fresh = grad * (1 - update) * (1 - fresh * fresh);
    const Tensor grad_reset = grad_fresh * hidden_new * reset * (1 - reset);
    Tensor grad_input = join({grad_reset, grad_update, grad_fresh});
    Tensor grad_hidden = join({grad_reset, grad_update, grad_fresh * reset});
    Tensor grad_input_bias = bias_gradient(grad_input, has_bias);
    Tensor grad_hidden_bias = bias_gradient(grad_hidden, has_bias);
    return std::tuple{std::move(grad_input), std::move(grad_hidden), grad * update,
                      std::move(grad_input_bias), std::move(grad_hidden_bias)};
  });
}

template <class Op>
void install_where_missing(typename routing::Typed<Op>::Kernel kernel) {
  const auto handle = routing::find(Op::name, Op::overload_name);
  if (handle.hasKernelForDispatchKey(target().dense)) return;
  routing::Typed<Op>::install_fixed(kernel, routing::Route::kBoxing);
}

}  // namespace

void install_recurrent_cells() {
  install_where_missing<at::_ops::_thnn_fused_lstm_cell>(&lstm_cell);
  install_where_missing<at::_ops::_thnn_fused_lstm_cell_backward_impl>(&lstm_cell_backward);
  install_where_missing<at::_ops::_thnn_fused_gru_cell>(&gru_cell);
  install_where_missing<at::_ops::_thnn_fused_gru_cell_backward>(&gru_cell_backward);
}

}  // namespace torch_fl
