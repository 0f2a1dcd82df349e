// Owns: the devices that one call names: those of its tensors and of a device argument; where its
// results lie; and PyTorch's rules about tensors on different devices, in the names the caller
// knows. They are applied before relabelling: on the target the difference may be gone (the CPU has
// no index) and the call would pass silently.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/TensorImpl.h>

#include "boxing/device_rules.h"
#include "device/target.h"

namespace torch_fl {

class CallDevices {
 public:
  // -- while the arguments are read, in the order of the schema

  // Marks where the next tensor or tensor-list argument begins.
  void next_argument() { ++argument_; }

  void note(const c10::TensorImpl& tensor) {
    const auto index = tensor.device().index();
    if (C10_LIKELY(index_ < 0)) {
      index_ = index;
    } else if (C10_UNLIKELY(index != index_)) {
      note_second(index, tensor);
      return;
    }
    home_ |= static_cast<uint32_t>(tensor.dim() > 0) << (argument_ & 31);
  }
  void note_foreign(const c10::TensorImpl& tensor, bool written);
  // Where a factory's result goes, which may be away from flagos.
  void set_argument(c10::Device device);

  // -- after the arguments

  // The fast path is one branch.
  void check(OperatorRule& rule) const {
    if (C10_UNLIKELY(suspicious_)) check_slow(rule);
  }
  bool mixed() const { return suspicious_ && (second_index_ >= 0 || !foreign_is_cpu_scalar_); }

  // The flagos device of this call: the device argument, else that of the tensors, else current.
  c10::DeviceIndex index() const {
    return C10_LIKELY(argument_index_ < 0 && index_ >= 0) ? index_ : index_slow();
  }
  // Results belong to another device type: a device argument says so, or a written tensor.
  bool results_elsewhere() const { return results_elsewhere_; }
  bool has_foreign(c10::DeviceType type) const {
    return foreign_argument_ >= 0 && foreign_device_.type() == type;
  }

 private:
  void note_second(c10::DeviceIndex index, const c10::TensorImpl& tensor);
  void check_slow(OperatorRule& op) const;
  c10::DeviceIndex index_slow() const;

  int16_t argument_ = -1;  // counts tensor arguments
  c10::DeviceIndex index_ = -1;
  c10::DeviceIndex argument_index_ = -1;
  bool argument_given_ = false;
  bool suspicious_ = false;
  bool results_elsewhere_ = false;
  bool foreign_is_cpu_scalar_ = true;
  c10::DeviceIndex second_index_ = -1;
  int16_t second_argument_ = -1;
  int16_t foreign_argument_ = -1;
  c10::Device foreign_device_{c10::DeviceType::CPU};
  // A bit for each argument that is not a number: on the first flagos device, and on another.
  uint32_t home_ = 0;
  uint32_t elsewhere_ = 0;
};

// The same for calls that are not boxed: on other routes tensors of several devices must not pass
// silently either. Throws what boxing would throw for the arguments.
void check_devices(const c10::OperatorHandle& handle, c10::ArrayRef<c10::IValue> arguments);

}  // namespace torch_fl
