// Owns: the slow paths of CallDevices: what a call with tensors of several devices gets told.
#include "boxing/call_devices.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "boxing/composites.h"
#include "device/runtime.h"

namespace torch_fl {
namespace {

bool takes_tensors(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return true;
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::ListType:
      return takes_tensors(*type.containedType(0));
    default:
      return false;
  }
}

// The name of the n-th tensor argument of an operator.
std::string argument_name(const char* name, const char* overload, int n) {
  const auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
  if (handle) {
    for (const auto& argument : handle->schema().arguments()) {
      if (takes_tensors(*argument.type()) && n-- == 0) return argument.name();
    }
  }
  return "an argument";
}

std::string method_name(const char* name) {
  const char* colons = std::strstr(name, "::");
  return std::string("wrapper_flagos_") + (colons == nullptr ? name : colons + 2);
}

void note(CallDevices& devices, const at::Tensor& tensor, bool written) {
  if (!tensor.defined()) return;
  const auto& impl = *tensor.unsafeGetTensorImpl();
  if (impl.device_type() == kFlagos) {
    devices.note(impl);
  } else {
    devices.note_foreign(impl, written);
  }
}

void note(CallDevices& devices, const c10::IValue& value, bool written) {
  if (value.isTensor()) {
    devices.next_argument();
    note(devices, value.toTensor(), written);
  } else if (value.isTensorList()) {
    devices.next_argument();
    for (const at::Tensor& tensor : value.toTensorVector()) note(devices, tensor, written);
  } else if (value.isOptionalTensorList()) {
    devices.next_argument();
    for (const auto& tensor : value.toOptionalTensorVector()) {
      if (tensor) note(devices, *tensor, written);
    }
  } else if (value.isDevice()) {
    devices.set_argument(value.toDevice());
  }
}

}  // namespace

void CallDevices::note_foreign(const c10::TensorImpl& tensor, bool written) {
  // What is written is no number that may come along, whatever its shape.
  const bool scalar = tensor.device_type() == c10::DeviceType::CPU && tensor.dim() == 0 && !written;
  if (!scalar) elsewhere_ |= 1U << (argument_ & 31);
  if (written) results_elsewhere_ = true;  // they replace its storage or members
  // The first offender is the one to name; a scalar may be none.
  if (foreign_argument_ >= 0 && (scalar || !foreign_is_cpu_scalar_)) return;
  suspicious_ = true;
  foreign_argument_ = argument_;
  foreign_is_cpu_scalar_ = scalar;
  foreign_device_ = tensor.device();
}

void CallDevices::note_second(c10::DeviceIndex index, const c10::TensorImpl& tensor) {
  suspicious_ = true;
  if (tensor.dim() > 0) elsewhere_ |= 1U << (argument_ & 31);
  if (second_index_ >= 0) return;
  second_index_ = index;
  second_argument_ = argument_;
}

void CallDevices::set_argument(c10::Device device) {
  argument_given_ = true;
  if (device.type() == kFlagos) {
    argument_index_ = checked_device(device.index());
  } else {
    results_elsewhere_ = true;
  }
}

c10::DeviceIndex CallDevices::index_slow() const {
  if (argument_index_ >= 0) return argument_index_;
  return index_ >= 0 ? index_ : runtime().current_device();
}

void CallDevices::check_slow(OperatorRule& op) const {
  if (index_ < 0) {
    // Tensors of other devices alone: a device argument brought the call here, or a generator.
    TORCH_CHECK(argument_given_, "Expected a '",
                c10::DeviceTypeName(foreign_device_.type(), /*lower_case=*/true),
                "' device type for generator but found 'flagos'");
    return;
  }
  const auto rule = op.get();
  const c10::Device first(kFlagos, index_);
  if (rule == DeviceRule::kNone) return;
  if (rule == DeviceRule::kIndexed) {  // self, indices
    const auto self = foreign_argument_ == 0 ? foreign_device_ : first;
    TORCH_CHECK(second_index_ < 0 && foreign_argument_ != 0,
                "indices should be either on cpu or on the same device as the indexed tensor (",
                self, ")");
    return;
  }
  if (rule == DeviceRule::kIndexedWrite) {  // self, indices from anywhere, values
    constexpr uint32_t kSelf = 0b001;
    constexpr uint32_t kValues = 0b100;
    const bool self_elsewhere = (elsewhere_ & kSelf) != 0;
    if (((self_elsewhere ? home_ : elsewhere_) & kValues) == 0) return;
    const auto other =
        second_argument_ == 2 ? c10::Device(kFlagos, second_index_) : foreign_device_;
    TORCH_CHECK(
        false, "Expected all tensors to be on the same device, but found at least two devices, ",
        self_elsewhere ? foreign_device_ : first, " and ", self_elsewhere ? first : other, "!");
  }
  if (rule == DeviceRule::kNumberFromAnywhere && (elsewhere_ & 0b11) == 0) return;
  if (rule == DeviceRule::kSame) {
    const bool second_device = second_index_ >= 0;
    const auto other = second_device ? c10::Device(kFlagos, second_index_) : foreign_device_;
    const auto argument = second_device ? second_argument_ : foreign_argument_;
    if (!second_device && foreign_argument_ < 0) return;
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but got ",
                argument_name(op.name(), op.overload(), argument), " is on ", other,
                ", different from other tensors on ", first, " (when checking argument in method ",
                method_name(op.name()), ")");
  }
  // TensorIterator's rule: scalars of the CPU may join.
  if (second_index_ >= 0) {
    TORCH_CHECK(false,
                "Expected all tensors to be on the same device, but found at least two devices, ",
                first, " and ", c10::Device(kFlagos, second_index_), "!");
  }
  if (foreign_argument_ >= 0 && !foreign_is_cpu_scalar_) {
    // (The accelerator comes first, whatever the order of the arguments.)
    TORCH_CHECK(false,
                "Expected all tensors to be on the same device, but found at least two devices, ",
                first, " and ", foreign_device_, "!");
  }
}

void check_devices(const c10::OperatorHandle& handle, c10::ArrayRef<c10::IValue> arguments) {
  const auto& name = handle.operator_name();
  if (!std::string_view(name.name).starts_with("aten::")) return;  // only PyTorch's rules are known
  CallDevices devices;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = handle.schema().arguments()[i].alias_info();
    note(devices, arguments[i], alias != nullptr && alias->isWrite());
  }
  if (spans_devices(name) && devices.mixed()) return;
  OperatorRule rule(name.name.c_str(), name.overload_name.c_str());
  devices.check(rule);
}

}  // namespace torch_fl
