// Owns: replication padding in deterministic mode on an accelerator, whose kernel's gradient is not
// deterministic. PyTorch's F.pad takes a formula instead for devices that it knows by name: so does
// `aten::pad` here. Who calls the padding operators themselves gets that formula's gradient.
#include <ATen/Context.h>
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_unsafe_index_ops.h>
#include <ATen/ops/_unsafe_index_put_ops.h>
#include <ATen/ops/arange_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/pad_native.h>
#include <ATen/ops/replication_pad1d_backward_ops.h>
#include <ATen/ops/replication_pad2d_backward_ops.h>
#include <ATen/ops/replication_pad3d_backward_ops.h>
#include <ATen/ops/zeros_ops.h>

#include <utility>
#include <vector>

#include "aten/composition.h"
#include "aten/own_operators.h"
#include "aten/plain.h"
#include "boxing/own_call.h"
#include "routing/operator.h"

namespace torch_fl {
namespace {

using at::Tensor;

// For each place of a padded dimension the one it was copied from.
Tensor sources(int64_t before, int64_t size, int64_t after, const Tensor& like) {
  const Tensor places = at::_ops::arange_start::call(-before, size + after, at::kLong, std::nullopt,
                                                     like.device(), std::nullopt);
  return at::_ops::clamp::call(places, at::Scalar(0), at::Scalar(size - 1));
}

// The last index has its dimension: all before it are whole.
c10::List<std::optional<Tensor>> along(int64_t dim, const Tensor& places) {
  c10::List<std::optional<Tensor>> index;
  for (int64_t d = 0; d < dim; ++d) index.push_back(std::nullopt);
  index.push_back(places);
  return index;
}

// Dimension by dimension, the outermost first, in the dtype that PyTorch's formula computes in.
Tensor replicated(const Tensor& self, c10::SymIntArrayRef padding) {
  const auto padded = static_cast<int64_t>(padding.size() / 2);
  Tensor result = self.to(at::toOpMathType(self.scalar_type()));
  for (int64_t i = 0; i < padded; ++i) {
    const auto dim = self.dim() - padded + i;
    const auto at = static_cast<size_t>(2 * (padded - 1 - i));
    const Tensor places =
        sources(padding[at].expect_int(), self.size(dim), padding[at + 1].expect_int(), self);
    result = at::_ops::_unsafe_index_Tensor::call(result, along(dim, places));
  }
  return result.contiguous(result.suggest_memory_format()).to(self.scalar_type());
}

Tensor pad(const Tensor& self, c10::SymIntArrayRef padding, std::string_view mode,
           std::optional<double> value) {
  const auto padded = static_cast<int64_t>(padding.size() / 2);
  const bool fits = self.dim() == padded + 1 || self.dim() == padded + 2;
  if (mode == "replicate" && fits && at::globalContext().deterministicAlgorithms() &&
      is_plain(self)) {
    return replicated(self, padding);
  }
  return at::native::pad_symint(self, padding, mode, value);
}

// Dimension by dimension, in the reverse of the order in which they were padded; each place gets the
// sum of its copies.
Tensor summed(const Tensor& gradient, const Tensor& self, c10::SymIntArrayRef padding) {
  const auto padded = static_cast<int64_t>(padding.size() / 2);
  std::vector<c10::SymInt> shape(gradient.sym_sizes().begin(), gradient.sym_sizes().end());
  Tensor result = gradient;
  for (int64_t i = padded - 1; i >= 0; --i) {
    const auto dim = self.dim() - padded + i;
    const auto at = static_cast<size_t>(2 * (padded - 1 - i));
    const auto index = along(dim, sources(padding[at].expect_int(), self.size(dim),
                                          padding[at + 1].expect_int(), gradient));
    shape[static_cast<size_t>(dim)] = self.sym_size(dim);
    const Tensor zeros = at::_ops::zeros::call(shape, gradient.scalar_type(), std::nullopt,
                                               gradient.device(), std::nullopt);
    result = at::_ops::_unsafe_index_put::call(zeros, index, result, /*accumulate=*/true);
  }
  return result;
}

template <class Op>
Tensor pad_backward(const Tensor& gradient, const Tensor& self, c10::SymIntArrayRef padding) {
  OwnCall<Op> call;
  const Tensor& target_gradient = call.in(gradient);
  const Tensor& target_self = call.in(self);
  return call.run([&] {
    return at::globalContext().deterministicAlgorithms()
               ? summed(target_gradient, target_self, padding)
               : Op::call(target_gradient, target_self, padding);
  });
}

template <class Op>
void install() {
  routing::Typed<Op>::install_fixed(&pad_backward<Op>, routing::Route::kBoxing);
}

}  // namespace

void install_deterministic_padding() {
  if (target().type == c10::DeviceType::CPU) return;  // its kernels are deterministic
  install_composition<&pad>("aten::pad", "");
  install<at::_ops::replication_pad1d_backward>();
  install<at::_ops::replication_pad2d_backward>();
  install<at::_ops::replication_pad3d_backward>();
}

}  // namespace torch_fl
