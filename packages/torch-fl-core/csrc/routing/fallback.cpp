// Owns: carrying out a call on the CPU.
#include "routing/fallback.h"

#include <ATen/native/CPUFallback.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <ATen/ops/narrow_ops.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "device/generator.h"
#include "device/target.h"
#include "routing/operator.h"

namespace torch_fl::routing {
namespace {

std::atomic<bool> g_forbidden{false};
std::atomic<bool> g_logged{false};

size_t flagos_bytes(const c10::IValue& value) {
  const auto of = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.device().type() == kFlagos && tensor.has_storage()
               ? static_cast<size_t>(tensor.numel()) * tensor.element_size()
               : size_t{0};
  };
  if (value.isTensor()) return of(value.toTensor());
  size_t bytes = 0;
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) bytes += of(tensor);
  } else if (value.isOptionalTensorList()) {
    const auto list = value.toOptionalTensorList();
    for (size_t i = 0; i < list.size(); ++i) {
      const std::optional<at::Tensor> tensor = list.get(i);
      if (tensor) bytes += of(*tensor);
    }
  }
  return bytes;
}

// A flagos generator stands on one of the target's; the CPU can draw from it if it is the CPU's own.
void replace_generator(c10::IValue& value, const c10::Type& type, c10::DeviceIndex device,
                       const c10::OperatorHandle& handle) {
  const bool on_cpu = target().type == c10::DeviceType::CPU;
  if (value.isNone() && on_cpu && is_optional_generator(type)) {
    value = target_generator(std::nullopt, device);
  }
  if (!value.isGenerator() || value.toGenerator().device().type() != kFlagos) return;
  TORCH_CHECK(on_cpu, "flagos: '", handle.operator_name(),
              "' cannot fall back to the CPU with a flagos generator, whose numbers the CPU does "
              "not have. Leave the generator out, or choose another route.");
  value = target_generator(value.toGenerator(), device);
}

// Where an argument says where results are to be, PyTorch's fallback puts them there.
bool names_device(c10::ArrayRef<c10::IValue> arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const auto& value) { return value.isDevice(); });
}

// Whether the first tensor is on the CPU: PyTorch's fallback leaves its results there too.
bool led_by_cpu(c10::ArrayRef<c10::IValue> arguments) {
  for (const auto& value : arguments) {
    if (value.isTensor() && value.toTensor().defined()) return value.toTensor().device().is_cpu();
  }
  return false;
}

void bring_home(c10::IValue& result, c10::DeviceIndex device) {
  const auto home = [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.device().is_cpu() ? tensor.to(c10::Device(kFlagos, device))
                                                        : tensor;
  };
  if (result.isTensor()) {
    result = home(result.toTensor());
  } else if (result.isTensorList()) {
    auto tensors = result.toTensorVector();
    for (auto& tensor : tensors) tensor = home(tensor);
    result = std::move(tensors);
  }
}

// The operator that runs on the copies. native_batch_norm writes the running statistics and its
// schema does not say so: they would stay in the copies. Its sibling of the same arguments says it.
c10::OperatorHandle on_copies(const c10::OperatorHandle& handle,
                              c10::ArrayRef<c10::IValue> arguments) {
  if (handle.operator_name().name != "aten::native_batch_norm") return handle;
  constexpr size_t kRunningMean = 3, kRunningVar = 4;
  if (arguments[kRunningMean].isNone() || arguments[kRunningVar].isNone()) return handle;
  return c10::Dispatcher::singleton().findSchemaOrThrow(
      "aten::_native_batch_norm_legit", handle.operator_name().overload_name.c_str());
}

// A copy on the CPU with the tensor's own strides. PyTorch's is contiguous where there are gaps, and
// some kernels go another way then than the backward that looks at the tensor itself: determinants of
// contiguous matrices are of their transposes. What is expanded is copied once.
at::Tensor with_its_strides(const at::Tensor& tensor) {
  at::Tensor copy = at::_ops::empty_strided::call(tensor.sym_sizes(), tensor.sym_strides(),
                                                  tensor.scalar_type(), {}, at::kCPU, {});
  at::Tensor target = copy;
  at::Tensor source = tensor;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) != 0 || tensor.size(d) < 2) continue;
    target = at::_ops::narrow::call(target, d, 0, 1);
    source = at::_ops::narrow::call(source, d, 0, 1);
  }
  at::_ops::copy_::call(target, source, false);
  return copy;
}

bool has_gaps(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kFlagos && tensor.layout() == at::kStrided &&
         tensor.has_storage() && tensor.numel() > 0 && !tensor.is_quantized() &&
         !tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense();
}

// Whether `value`, which is only read, was replaced by copies of our own.
bool keep_strides(c10::IValue& value) {
  if (value.isTensor() && has_gaps(value.toTensor())) {
    value = with_its_strides(value.toTensor());
    return true;
  }
  if (!value.isTensorList()) return false;
  auto tensors = value.toTensorVector();
  bool replaced = false;
  for (auto& tensor : tensors) {
    if (!has_gaps(tensor)) continue;
    tensor = with_its_strides(tensor);
    replaced = true;
  }
  if (replaced) value = std::move(tensors);
  return replaced;
}

// Whether a list that the operator writes has a tensor twice. Of copies each would be written once.
bool writes_one_twice(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite() || !arguments[i].isTensorList()) continue;
    std::unordered_set<const c10::TensorImpl*> seen;
    for (const at::Tensor& tensor : arguments[i].toTensorVector()) {
      if (!seen.insert(tensor.unsafeGetTensorImpl()).second) return true;
    }
  }
  return false;
}

// What the operator writes and PyTorch does not count above it, the _foreach_ operators' lists and
// everything of an operator that is not PyTorch's own. The kernel counts on its copies.
class Uncounted {
 public:
  Uncounted(const c10::OperatorHandle& handle, c10::ArrayRef<c10::IValue> arguments) {
    const auto& name = handle.operator_name().name;
    if (name.starts_with("aten::") && !name.starts_with("aten::_foreach_")) return;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const auto* alias = handle.schema().arguments()[i].alias_info();
      if (alias == nullptr || !alias->isWrite()) continue;
      if (arguments[i].isTensorList()) {
        for (const at::Tensor& tensor : arguments[i].toTensorVector()) note(tensor);
      } else if (arguments[i].isTensor()) {
        note(arguments[i].toTensor());
      }
    }
  }

  // Views of one tensor share a counter: first see what was left alone, then count each.
  void count() {
    std::erase_if(written_, [](const auto& entry) {
      return entry.first.unsafeGetTensorImpl()->version_counter().current_version() != entry.second;
    });
    for (const auto& entry : written_) entry.first.unsafeGetTensorImpl()->bump_version();
  }

 private:
  void note(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.is_inference()) return;
    written_.emplace_back(tensor,
                          tensor.unsafeGetTensorImpl()->version_counter().current_version());
  }

  std::vector<std::pair<at::Tensor, uint32_t>> written_;
};

thread_local bool t_falling_back = false;

struct FallingBack {
  FallingBack() { t_falling_back = true; }
  ~FallingBack() { t_falling_back = before; }
  FallingBack(const FallingBack&) = delete;
  FallingBack& operator=(const FallingBack&) = delete;
  const bool before = t_falling_back;
};

}  // namespace

bool falling_back() noexcept { return t_falling_back; }

void set_fallback_rules(FallbackRules rules) {
  g_forbidden = rules.forbidden;
  g_logged = rules.logged;
}

void fall_back_to_cpu(Operator& op, const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const auto name = c10::toString(handle.operator_name());
  TORCH_CHECK(!g_forbidden.load(std::memory_order_relaxed), "flagos: '", name,
              "' would fall back to the CPU, which FLAGOS_STRICT=1 forbids. Give it another route "
              "(torch_fl.routing.explain('",
              name,
              "') shows which there are), or unset "
              "FLAGOS_STRICT.");
  if (g_logged.load(std::memory_order_relaxed)) {
    const auto line = "[flagos cpu_fallback] " + name + '\n';
    std::fputs(line.c_str(), stderr);
  }
  const auto& schema = handle.schema();
  const auto arguments = arguments_of(handle, *stack);  // to be read before the call is made
  if (handle.operator_name().name.starts_with("aten::_foreach_") &&
      writes_one_twice(schema, arguments)) {
    // PyTorch's decomposition works tensor by tensor, and each of its operators comes here again.
    Uncounted uncounted(handle, arguments);
    handle.redispatchBoxed(c10::DispatchKeySet(kComposition), stack);
    uncounted.count();
    return;
  }
  const auto device = call_device(arguments);
  const bool placed = names_device(arguments);
  bool astray = device >= 0 && led_by_cpu(arguments);
  // Of the same arguments; it says which of them are written.
  const auto kernel = on_copies(handle, arguments);
  size_t bytes = 0;
  Uncounted uncounted(handle, arguments);
  std::optional<FallingBack> falling_back(std::in_place);
  const size_t base = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto& value = (*stack)[base + i];
    const auto& argument = kernel.schema().arguments()[i];
    replace_generator(value, *argument.type(), device, handle);
    const auto* alias = argument.alias_info();
    const bool comes_back = alias != nullptr && alias->isWrite();
    bytes += flagos_bytes(value) * (comes_back ? 2 : 1);
    if (alias == nullptr && keep_strides(value)) astray = true;
  }
  at::native::cpu_fallback(kernel, stack, /*error_on_views=*/false, c10::DispatchKey::CPU);
  falling_back.reset();
  uncounted.count();
  const size_t results = stack->size() - schema.returns().size();
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    if (schema.returns()[i].alias_info() != nullptr) continue;
    auto& result = (*stack)[results + i];
    if (astray && !placed) bring_home(result, device);
    bytes += flagos_bytes(result);
  }
  op.fallback.calls.fetch_add(1, std::memory_order_relaxed);
  op.fallback.bytes_moved.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace torch_fl::routing
