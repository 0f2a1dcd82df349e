// Owns: the flagos device of a call: that of its first flagos tensor, in the order of the schema.
#pragma once
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <optional>

#include "device/target.h"

namespace torch_fl::routing {

class DeviceFinder {
 public:
  void see(const at::Tensor& tensor) {
    if (found_ < 0 && tensor.defined() && tensor.device().type() == kFlagos) {
      found_ = tensor.device().index();
    }
  }
  void see(const std::optional<at::Tensor>& tensor) {
    if (tensor) see(*tensor);
  }
  void see(at::TensorList list) {
    for (const auto& tensor : list) see(tensor);
  }
  void see(const at::ITensorListRef& list) {
    for (const auto& tensor : list) see(tensor);
  }
  void see(const c10::List<std::optional<at::Tensor>>& list) {
    for (size_t i = 0; i < list.size() && found_ < 0; ++i) see(std::optional(list.get(i)));
  }
  void see(const c10::IValue& value) {
    if (value.isTensor()) {
      see(value.toTensor());
    } else if (value.isTensorList()) {
      const auto list = value.toTensorList();
      for (size_t i = 0; i < list.size() && found_ < 0; ++i) see(at::Tensor(list.get(i)));
    } else if (value.isOptionalTensorList()) {
      see(value.toOptionalTensorList());
    }
  }
  template <class T>
  void see(const T&) {}  // nothing that lies anywhere

  c10::DeviceIndex found() const { return found_; }

 private:
  c10::DeviceIndex found_ = -1;
};

// -1 if no tensor says: the current device.
template <class... Args>
c10::DeviceIndex call_device(const Args&... args) {
  DeviceFinder finder;
  (finder.see(args), ...);
  return finder.found();
}

// The same for a call on a stack, of these arguments.
inline c10::DeviceIndex call_device(c10::ArrayRef<c10::IValue> arguments) {
  DeviceFinder finder;
  for (const auto& argument : arguments) finder.see(argument);
  return finder.found();
}

}  // namespace torch_fl::routing
