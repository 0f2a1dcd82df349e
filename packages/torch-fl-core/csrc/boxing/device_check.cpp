#include "boxing/device_check.h"

#include <string_view>

#include "boxing/call_devices.h"
#include "boxing/composites.h"

namespace torch_fl {
namespace {

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
