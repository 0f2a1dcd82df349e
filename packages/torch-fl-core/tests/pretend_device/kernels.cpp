// Owns: kernels of the pretend device that compute: a few that are its own in what they do, and all
// others of which the CPU has one.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_foreach_add_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/uniform_ops.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "on_host.h"

namespace pretend {
namespace {

constexpr auto kCpu = c10::DispatchKey::CPU;
constexpr auto kHost = c10::DispatchKeySet(kCpu);

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

void count_version(const at::Tensor& tensor) { tensor.unsafeGetTensorImpl()->bump_version(); }

// Any operator of which the CPU has a kernel. One that writes lists runs below everything that
// counts versions, so it counts them itself, as fused kernels do.
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
  for (size_t i = 0; i < count; ++i) {
    if (!is_written(schema.arguments()[i]) || !given[i].isTensorList()) continue;
    for (const at::Tensor& tensor : given[i].toTensorVector()) count_version(tensor);
  }
}

at::Tensor mm(const at::Tensor& self, const at::Tensor& other) {
  HostCall call;
  const at::Tensor a = call.argument(self, /*written=*/false);
  const at::Tensor b = call.argument(other, /*written=*/false);
  check_fault();
  TORCH_CHECK(a.size(1) == b.size(0), "hpu kernel mm: a matrix of ", a.sizes(), " on ",
              self.device(), " cannot be multiplied by one of ", b.sizes());
  note("mm: stream", current_stream(call.device()));
  count("mm on " + self.device().str());
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

// A view or an exchange of storage: not for borrowed tensors.
bool is_about_storage(const c10::FunctionSchema& schema) {
  constexpr std::array<std::string_view, 6> kStorage{"aten::empty",    "aten::empty_strided",
                                                     "aten::resize_",  "aten::set_",
                                                     "aten::set_data", "aten::_local_scalar_dense"};
  for (const auto& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return std::find(kStorage.begin(), kStorage.end(), schema.name()) != kStorage.end();
}

// Accelerators have kernels over whole lists where the CPU has compositions. Subtraction is left as
// a composition, because an accelerator takes that way too: for lists that its kernel cannot do.
bool is_list_kernel(const c10::OperatorName& name) {
  constexpr std::string_view kForeach = "aten::_foreach_";
  return name.name.rfind(kForeach, 0) == 0 && name.name.rfind("aten::_foreach_sub", 0) != 0 &&
         name.overload_name.find("out") == std::string::npos;
}

TORCH_LIBRARY_IMPL(aten, HPU, library) {
  library.impl("mm", &mm);
  library.impl("uniform_", &uniform_);
  library.impl("_foreach_add_.List", &foreach_add_);
  const std::set<std::string> own{"aten::mm", "aten::uniform_", "aten::_foreach_add_.List"};
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || name.name.rfind("aten::", 0) != 0) continue;
    if (!op->hasKernelForDispatchKey(kCpu) && !is_list_kernel(name)) continue;
    const auto full = c10::toString(name);
    if (own.count(full) > 0 || is_about_storage(op->schema())) continue;
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&on_host>());
  }
}

}  // namespace
}  // namespace pretend
