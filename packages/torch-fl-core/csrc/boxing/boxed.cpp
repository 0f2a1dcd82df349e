// Owns: boxing for any operator, on the dispatcher's stack: coverage where typed.h is for speed.
#include "boxing/boxed.h"

#include <ATen/TracerMode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_nested_tensor_size_native.h>
#include <ATen/ops/_nested_tensor_storage_offsets_native.h>
#include <ATen/ops/_nested_tensor_strides_native.h>

#include <optional>
#include <string_view>

#include "boxing/call_devices.h"
#include "boxing/composites.h"
#include "boxing/relabeling.h"
#include "device/generator.h"
#include "device/kernel_scope.h"
#include "routing/fallback.h"
#include "routing/observation.h"
#include "routing/operator.h"

namespace torch_fl {
namespace {

using c10::DispatchKey;
using c10::IValue;
using Access = Relabeling::Access;

DispatchKey target_key(DispatchKey flagos_key) {
  switch (flagos_key) {
    case DispatchKey::SparsePrivateUse1:
      return target().sparse;
    case DispatchKey::SparseCsrPrivateUse1:
      return target().sparse_csr;
    case DispatchKey::QuantizedPrivateUse1:
      return target().quantized;
    case DispatchKey::NestedTensorPrivateUse1:
      return target().nested;
    default:
      return target().dense;
  }
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// `counted`: PyTorch counts versions of what the operator writes, above boxing.
Access access_of(const c10::Argument& argument, bool counted) {
  if (!is_written(argument)) return Access::kRead;
  return counted ? Access::kWrite : Access::kWriteUncounted;
}

// The argument with tensors aliased. Generators wait for relabel_late: they depend on the device.
IValue relabel(Relabeling& call, const c10::Argument& argument, const IValue& value, bool counted) {
  const auto access = access_of(argument, counted);
  if (value.isTensor()) {
    call.devices().next_argument();
    return call.alias(value.toTensor(), access);
  }
  if (value.isTensorList()) {
    call.begin_list();
    const auto given = value.toTensorList();
    c10::List<at::Tensor> aliases;
    aliases.reserve(given.size());
    for (size_t i = 0; i < given.size(); ++i) {
      aliases.push_back(call.alias(given.get(i), access));
    }
    call.end_list();
    return aliases;
  }
  if (value.isOptionalTensorList()) {
    call.begin_list();
    const auto given = value.toOptionalTensorList();
    c10::List<std::optional<at::Tensor>> aliases;
    aliases.reserve(given.size());
    for (size_t i = 0; i < given.size(); ++i) {
      const std::optional<at::Tensor> tensor = given.get(i);
      aliases.push_back(tensor ? std::optional(call.alias(*tensor, access)) : std::nullopt);
    }
    call.end_list();
    return aliases;
  }
  if (value.isDevice()) call.devices().set_argument(value.toDevice());
  return value;
}

IValue relabel_late(Relabeling& call, const c10::Argument& argument, IValue&& value) {
  if (value.isDevice() && value.toDevice().type() == kFlagos) return call.target_device();
  if (value.isGenerator()) return target_generator(value.toGenerator(), call.device());
  if (value.isNone() && is_optional_generator(*argument.type())) {
    return target_generator(std::nullopt, call.device());
  }
  return std::move(value);
}

IValue wrap(Relabeling& call, IValue&& value) {
  if (value.isTensor()) return call.wrap(std::move(value).toTensor());
  if (value.isTensorList()) {
    auto tensors = value.toTensorVector();
    value = IValue();  // the list holds the tensors too; a fresh result has one owner
    c10::List<at::Tensor> wrapped;
    wrapped.reserve(tensors.size());
    for (auto& tensor : tensors) wrapped.push_back(call.wrap(std::move(tensor)));
    return wrapped;
  }
  return std::move(value);
}

// `kernel` carries the operator out, itself or another one of the same schema. `rule` is null for what
// is not PyTorch's own: nobody knows its rules about devices.
void run_boxed(Relabeling& call, const c10::OperatorHandle& handle,
               const c10::OperatorHandle& kernel, DispatchKey key, torch::jit::Stack* stack,
               OperatorRule* rule) {
  const auto& arguments = handle.schema().arguments();
  const size_t count = arguments.size();
  const size_t base = stack->size() - count;

  // The caller's tensors outlive the call here; the aliases in `aliases`, since the kernel pops its
  // arguments from the stack.
  const c10::SmallVector<IValue, 8> given(std::make_move_iterator(stack->begin() + base),
                                          std::make_move_iterator(stack->end()));
  c10::SmallVector<IValue, 8> aliases;
  const Relabeling::Settlement settlement(call);
  const bool spans = spans_devices(handle.operator_name());
  // Above boxing there is a kernel that counts for each of PyTorch's operators, and for those of
  // libraries that brought one.
  const bool counted =
      !spans && (rule != nullptr || handle.hasKernelForDispatchKey(DispatchKey::ADInplaceOrView));
  bool writes = false;
  for (size_t i = 0; i < count; ++i) {
    writes |= is_written(arguments[i]);
    aliases.push_back(relabel(call, arguments[i], given[i], counted));
  }
  if (C10_UNLIKELY(spans && call.devices().mixed())) {
    // PyTorch's decomposition works tensor by tensor, so each result stays on its own device.
    std::move(given.begin(), given.end(), stack->begin() + base);
    handle.redispatchBoxed(c10::DispatchKeySet(routing::kComposition), stack);
    call.count_versions();
    return;
  }
  if (rule != nullptr) call.devices().check(*rule);
  for (size_t i = 0; i < count; ++i) {
    aliases[i] = relabel_late(call, arguments[i], std::move(aliases[i]));
    (*stack)[base + i] = aliases[i];
  }
  const KernelScope scope(call.memory_device());
  call.run([&] {
    kernel.redispatchBoxed(c10::DispatchKeySet(target_key(key)), stack);
    if (writes) call.write_back();
    const size_t results = handle.schema().returns().size();
    for (size_t i = stack->size() - results; i < stack->size(); ++i) {
      (*stack)[i] = wrap(call, std::move((*stack)[i]));
    }
  });
}

OperatorRule rule_of(routing::Operator& op) {
  const auto& name = op.handle.operator_name();
  return {name.name.c_str(), name.overload_name.c_str(), op.device_rule};
}

bool is_pytorchs(const c10::OperatorName& name) {
  return std::string_view(name.name).starts_with("aten::");
}

}  // namespace

void boxed_kernel(routing::Operator& op, const c10::OperatorHandle& handle,
                  torch::jit::Stack* stack) {
  Relabeling call(Relabeling::Aliases::kLight);
  auto rule = rule_of(op);
  run_boxed(call, handle, handle, op.key, stack, &rule);
}

void boxed_kernel_with_grad(routing::Operator& op, const c10::OperatorHandle& handle,
                            torch::jit::Stack* stack) {
  // torch.jit.trace does not record `convolution` but what it is composed of: on the target it would
  // record the aliases, as constants.
  if (C10_UNLIKELY(at::tracer::impl::is_dispatch_enabled()) &&
      handle.operator_name().name == "aten::convolution") {
    handle.redispatchBoxed(c10::DispatchKeySet(routing::kComposition), stack);
    return;
  }
  Relabeling call(Relabeling::Aliases::kWithGrad);
  auto rule = rule_of(op);
  run_boxed(call, handle, handle, op.key, stack, &rule);
}

void boxed_kernel_for(routing::Operator& op, const c10::OperatorHandle& kernel,
                      torch::jit::Stack* stack) {
  Relabeling call;
  auto rule = rule_of(op);
  run_boxed(call, op.handle, kernel, op.key, stack,
            is_pytorchs(op.handle.operator_name()) ? &rule : nullptr);
}

namespace {

[[noreturn]] void refuse(const c10::OperatorHandle& handle, const char* what, const char* hint) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Could not run '", handle.operator_name(),
                              "' with arguments from the 'flagos' backend: ", what, hint);
}

void run_unknown(const c10::OperatorHandle& handle, DispatchKey key, torch::jit::Stack* stack) {
  if (!handle.hasComputedKernelForDispatchKey(target_key(key))) {
    refuse(handle, "there is no kernel for it on the target, ",
           c10::DeviceTypeName(target().type, /*lower_case=*/true).c_str());
  }
  Relabeling call;
  run_boxed(call, handle, handle, key, stack, /*rule=*/nullptr);
}

template <DispatchKey kKey>
void fallback(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  std::optional<routing::Observation> observation;
  if (C10_UNLIKELY(routing::watched())) {
    observation.emplace(routing::bystander(handle, kKey), routing::name_of(routing::Route::kBoxing),
                        routing::call_device(routing::arguments_of(handle, *stack)));
  }
  run_unknown(handle, kKey, stack);
}

// What a nested tensor says of its parts lies on the host, whatever the target; boxing would take it
// for the kernel's result.
template <auto kKernel>
void install_nested(const char* name) {
  routing::install(routing::find(name, ""), DispatchKey::NestedTensorPrivateUse1,
                   routing::Route::kCore,
                   c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(kKernel)));
}

void install_nested_sizes() {
  install_nested<&at::native::_nested_tensor_size>("aten::_nested_tensor_size");
  install_nested<&at::native::_nested_tensor_strides>("aten::_nested_tensor_strides");
  install_nested<&at::native::_nested_tensor_storage_offsets>(
      "aten::_nested_tensor_storage_offsets");
}

void install_fallback(DispatchKey key, c10::KernelFunction&& kernel) {
  // Never taken out again, like every registration of ours.
  static auto* registrations = new std::vector<c10::RegistrationHandleRAII>;
  registrations->push_back(
      c10::Dispatcher::singleton().registerFallback(key, std::move(kernel), "torch_fl"));
}

}  // namespace

void boxed_kernel_of_others(routing::Operator& op, const c10::OperatorHandle& handle,
                            torch::jit::Stack* stack) {
  run_unknown(handle, op.key, stack);
}

void install_boxed_boxing() {
  routing::set_boxing({.relabelled = &boxed_kernel_for, .check_devices = &check_devices});
  constexpr std::array kKeys{DispatchKey::PrivateUse1, DispatchKey::SparsePrivateUse1,
                             DispatchKey::SparseCsrPrivateUse1, DispatchKey::QuantizedPrivateUse1,
                             DispatchKey::NestedTensorPrivateUse1};
  auto& dispatcher = c10::Dispatcher::singleton();
  install_nested_sizes();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto handle = dispatcher.findOp(name);
    if (!handle || !handle->hasSchema()) continue;
    for (const auto key : kKeys) {
      const bool whole = key == DispatchKey::PrivateUse1 && boxed_whole(name);
      if (!whole && !handle->hasKernelForDispatchKey(target_key(key))) continue;  // most of them
      if (routing::is_installed(name, key) || handle->hasKernelForDispatchKey(key)) continue;
      const auto kernel = !is_pytorchs(name)          ? &boxed_kernel_of_others
                          : reads_requires_grad(name) ? &boxed_kernel_with_grad
                                                      : &boxed_kernel;
      routing::install_boxed(*handle, key, routing::Route::kBoxing, kernel);
    }
  }
  install_fallback(
      DispatchKey::PrivateUse1,
      c10::KernelFunction::makeFromBoxedFunction<&fallback<DispatchKey::PrivateUse1>>());
  install_fallback(
      DispatchKey::SparsePrivateUse1,
      c10::KernelFunction::makeFromBoxedFunction<&fallback<DispatchKey::SparsePrivateUse1>>());
  install_fallback(
      DispatchKey::SparseCsrPrivateUse1,
      c10::KernelFunction::makeFromBoxedFunction<&fallback<DispatchKey::SparseCsrPrivateUse1>>());
  install_fallback(
      DispatchKey::QuantizedPrivateUse1,
      c10::KernelFunction::makeFromBoxedFunction<&fallback<DispatchKey::QuantizedPrivateUse1>>());
  install_fallback(DispatchKey::NestedTensorPrivateUse1,
                   c10::KernelFunction::makeFromBoxedFunction<
                       &fallback<DispatchKey::NestedTensorPrivateUse1>>());
}

}  // namespace torch_fl
