// Owns: views that have a kernel per device in PyTorch although they only rewrite metadata. They run
// on the flagos tensor itself: no boxing. (Most views are PyTorch's own compositions and need
// nothing here.)
#include <ATen/core/Tensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_reshape_alias_ops.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/unfold_ops.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_complex_ops.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_as_real_ops.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/view_ops.h>

#include "aten/own_operators.h"
#include "routing/operator.h"

namespace torch_fl {
namespace {

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size,
                         c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size),
                                    C10_AS_INTARRAYREF_SLOW(stride));
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      offset ? std::optional(offset->guard_int(__FILE__, __LINE__)) : std::nullopt);
}

at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return at::native::unfold(self, dimension, size, step);
}

}  // namespace

void install_views() {
  using routing::Typed;
  Typed<at::_ops::view>::install_fixed(&view);
  Typed<at::_ops::_reshape_alias>::install_fixed(&reshape_alias);
  Typed<at::_ops::as_strided>::install_fixed(&as_strided);
  Typed<at::_ops::unfold>::install_fixed(&unfold);
  Typed<at::_ops::view_as_real>::install_fixed(&at::native::view_as_real);
  Typed<at::_ops::view_as_complex>::install_fixed(&at::native::view_as_complex);
}

}  // namespace torch_fl
