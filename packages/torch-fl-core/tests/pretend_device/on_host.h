// Owns: how kernels of the pretend device compute: its memory is host memory, so PyTorch's CPU
// kernels do the work on tensors that borrow it.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "device.h"

namespace pretend {

// A CPU tensor over the memory of `tensor`, which must outlive it. Resizing it gives it memory of
// its own.
at::Tensor borrowed(const at::Tensor& tensor);

// One kernel call: arguments become CPU tensors, results tensors of this device.
class HostCall {
 public:
  // Of another device: itself. Two devices of this type in one call are an error, as on any
  // accelerator.
  at::Tensor argument(const at::Tensor& tensor, bool written);
  c10::IValue argument(const c10::IValue& value, bool written);
  void set_device(DeviceIndex device) { device_ = device; }
  DeviceIndex device() const { return device_ < 0 ? current_device() : device_; }

  // What was written and resized on the way is brought back.
  void finish();
  at::Tensor result(const at::Tensor& tensor);
  c10::IValue result(const c10::IValue& value);

 private:
  struct Entry {
    at::Tensor original;
    at::Tensor host;
    bool written;
  };
  std::vector<Entry> entries_;
  DeviceIndex device_ = -1;
};

}  // namespace pretend
