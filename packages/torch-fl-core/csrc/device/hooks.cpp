// Owns: PyTorch's accelerator hooks for flagos. What PyTorch asks while it only looks around
// (is it built, is it available, how many) never throws and never starts a device.
#include "device/hooks.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "device/generator.h"
#include "device/runtime.h"

namespace torch_fl {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  explicit Hooks(ResizeStorage* resize) : resize_(resize) {}

  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return has_runtime() && runtime().device_count() > 0; }
  bool hasPrimaryContext(DeviceIndex device) const override {
    return has_runtime() && device >= 0 && device < runtime().device_count() &&
           runtime().has_context(device);
  }
  void init() const override { runtime().initialize(); }

  DeviceIndex deviceCount() const override { return runtime().device_count(); }
  DeviceIndex getCurrentDevice() const override { return runtime().current_device(); }
  void setCurrentDevice(DeviceIndex device) const override {
    runtime().set_device(checked_device(device));
  }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const auto previous = runtime().current_device();
    runtime().set_device(checked_device(device));
    return previous;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    const auto previous = runtime().current_device();
    if (device >= 0) runtime().restore_device(checked_device(device));
    return previous;
  }

  at::Device getDeviceFromPtr(void* data) const override {
    const auto index = runtime().device_of(data);
    TORCH_CHECK(index >= 0, "The pointer ", data, " is not flagos device memory.");
    return {kFlagos, index};
  }
  bool isPinnedPtr(const void* data) const override { return runtime().is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return runtime().pinned_allocator(); }

  const at::Generator& getDefaultGenerator(DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(DeviceIndex device) const override { return new_generator(device); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_(storage, nbytes);
  }

 private:
  ResizeStorage* resize_;
};

}  // namespace

void register_hooks(ResizeStorage* resize) {
  at::RegisterPrivateUse1HooksInterface(new Hooks(resize));
}

}  // namespace torch_fl
