// Owns: kernels of the pretend device that compute.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_foreach_add_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/uniform_ops.h>
#include <torch/library.h>

#include <string_view>

#include "on_host.h"

namespace pretend {
namespace {

constexpr auto kHost = c10::DispatchKeySet(c10::DispatchKey::CPU);

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

void count_version(const at::Tensor& tensor) { tensor.unsafeGetTensorImpl()->bump_version(); }

// Any operator of which the CPU has a kernel.
template <bool counts_versions>
void on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  const std::vector<c10::IValue> given(stack->end() - count, stack->end());
  torch::jit::drop(*stack, count);
  const at::AutoDispatchBelowADInplaceOrView guard;
  HostCall call;
  for (size_t i = 0; i < count; ++i) {
    const auto& argument = schema.arguments()[i];
    auto value = call.argument(given[i], is_written(argument));
    if (value.isNone() && argument.type()->str() == "Generator?") {
      value = engine_of(default_generator(call.device()));
    }
    stack->push_back(std::move(value));
  }
  const DeviceScope scope(call.device());
  op.redispatchBoxed(kHost, stack);
  call.finish();
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    (*stack)[i] = call.result((*stack)[i]);
  }
  if (!counts_versions) return;
  for (size_t i = 0; i < count; ++i) {
    if (!is_written(schema.arguments()[i]) || !given[i].isTensorList()) continue;
    for (const at::Tensor& tensor : given[i].toTensorVector()) count_version(tensor);
  }
}

at::Tensor mm(const at::Tensor& self, const at::Tensor& other) {
  HostCall call;
  const at::Tensor a = call.argument(self, /*written=*/false);
  const at::Tensor b = call.argument(other, /*written=*/false);
  TORCH_CHECK(a.size(1) == b.size(0), "hpu kernel mm: a matrix of ", a.sizes(), " on ",
              self.device(), " cannot be multiplied by one of ", b.sizes());
  return call.result(at::_ops::mm::redispatch(kHost, a, b));
}

at::Tensor& uniform_(at::Tensor& self, double from, double to,
                     std::optional<at::Generator> generator) {
  HostCall call;
  at::Tensor host = call.argument(self, /*written=*/true);
  const auto& own = generator ? *generator : default_generator(call.device());
  TORCH_CHECK(own.device() == self.device(), "Expected a '", self.device(),
              "' generator device but found '", own.device(), "'");
  at::_ops::uniform_::redispatch(kHost, host, from, to, engine_of(own));
  return self;
}

// As a fused kernel does it: below everything that counts versions, so it counts them itself.
void foreach_add_(at::TensorList self, at::TensorList other, const at::Scalar& alpha) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  for (size_t i = 0; i < self.size(); ++i) {
    HostCall call;
    at::Tensor host = call.argument(self[i], /*written=*/true);
    host.add_(call.argument(other[i], /*written=*/false), alpha);
    count_version(self[i]);
  }
  count("_foreach_add_.List");
}

// Whatever a small model, its losses and its optimizers need.
constexpr std::string_view kOnHost[] = {
    "add.Tensor",
    "add_.Tensor",
    "add.out",
    "sub.Tensor",
    "mul.Tensor",
    "mul_.Tensor",
    "mul.out",
    "div.Tensor",
    "div_.Tensor",
    "neg",
    "sqrt",
    "pow.Tensor_Scalar",
    "exp",
    "reciprocal",
    "lerp_.Scalar",
    "addcmul_",
    "addcdiv_",
    "mul_.Scalar",
    "maximum",
    "abs",
    "eq.Tensor",
    "eq.Scalar",
    "ne.Tensor",
    "ne.Scalar",
    "gt.Scalar",
    "all",
    "any",
    "isnan",
    "equal",
    "relu",
    "relu_",
    "threshold_backward",
    "tanh",
    "tanh_backward",
    "sigmoid",
    "sigmoid_backward",
    "sum",
    "sum.dim_IntList",
    "mean",
    "mean.dim",
    "max",
    "mse_loss",
    "mse_loss_backward",
    "_log_softmax",
    "_log_softmax_backward_data",
    "nll_loss_forward",
    "nll_loss_backward",
    "addmm",
    "addmm.out",
    "mm.out",
    "bmm",
    "cat",
    "index.Tensor",
    "index_select",
    "fill_.Scalar",
    "fill_.Tensor",
    "zero_",
    "normal_",
    "bernoulli_.float",
    "random_",
    "randperm",
    "native_layer_norm",
    "native_layer_norm_backward",
};
constexpr std::string_view kFused[] = {
    "_foreach_add_.Scalar",
    "_foreach_mul_.Scalar",
    "_foreach_mul_.Tensor",
    "_foreach_div_.Scalar",
    "_foreach_div_.ScalarList",
    "_foreach_lerp_.Scalar",
    "_foreach_addcmul_.Scalar",
    "_foreach_addcdiv_.Scalar",
    "_foreach_addcdiv_.ScalarList",
    "_foreach_sqrt",
    "_foreach_add.List",
    "_foreach_add.Scalar",
    "_foreach_neg",
    "_foreach_sub_.List",
    "_foreach_norm.Scalar",
    "_fused_adamw_",
};

TORCH_LIBRARY_IMPL(aten, HPU, library) {
  library.impl("mm", &mm);
  library.impl("uniform_", &uniform_);
  library.impl("_foreach_add_.List", &foreach_add_);
  for (const auto name : kOnHost) {
    library.impl(name.data(), torch::CppFunction::makeFromBoxedFunction<&on_host<false>>());
  }
  for (const auto name : kFused) {
    library.impl(name.data(), torch::CppFunction::makeFromBoxedFunction<&on_host<true>>());
  }
}

}  // namespace
}  // namespace pretend
