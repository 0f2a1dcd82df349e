// Owns: c10's device guard for flagos, a translation of the Runtime interface: indices are checked
// here and stream ids get their flagos label.
#include "device/guard.h"

#include "device/runtime.h"

namespace torch_fl {
namespace {

using c10::Device;
using c10::Stream;

Stream labelled(DeviceIndex device, StreamId id) {
  return Stream(Stream::UNSAFE, Device(kFlagos, device), id);
}

// Python can make a stream of any number.
DeviceIndex device_of(const Stream& stream) { return checked_device(stream.device_index()); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kFlagos; }

  Device exchangeDevice(Device device) const override {
    const Device previous = getDevice();
    setDevice(device);
    return previous;
  }
  Device getDevice() const override { return {kFlagos, runtime().current_device()}; }
  void setDevice(Device device) const override {
    TORCH_CHECK(device.type() == kFlagos, "Expected a flagos device, but got ", device, ".");
    runtime().set_device(checked_device(device.index()));
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < runtime().device_count()) {
      runtime().restore_device(device.index());
    }
  }
  DeviceIndex deviceCount() const noexcept override {
    return has_runtime() ? runtime().device_count() : DeviceIndex{0};
  }
  c10::DeviceCapability getDeviceCapability(Device device) const override {
    return runtime().capability(checked_device(device.index()));
  }

  Stream getStream(Device device) const override {
    const auto index = checked_device(device.index());
    return labelled(index, runtime().current_stream(index));
  }
  Stream getDefaultStream(Device device) const override {
    const auto index = checked_device(device.index());
    return labelled(index, runtime().default_stream(index));
  }
  Stream getStreamFromGlobalPool(Device device, bool high_priority) const override {
    const auto index = checked_device(device.index());
    return labelled(index, runtime().pooled_stream(index, high_priority));
  }
  Stream getNewStream(Device device, int priority) const override {
    const auto index = checked_device(device.index());
    return labelled(index, runtime().new_stream(index, priority));
  }
  Stream exchangeStream(Stream stream) const override {
    const auto index = device_of(stream);
    return labelled(index, runtime().exchange_stream(index, stream.id()));
  }
  void* getStreamNativeHandle(const Stream stream) const override {
    return runtime().native_stream(device_of(stream), stream.id());
  }
  bool queryStream(const Stream& stream) const override {
    return runtime().query_stream(device_of(stream), stream.id());
  }
  void synchronizeStream(const Stream& stream) const override {
    runtime().synchronize_stream(device_of(stream), stream.id());
  }
#ifdef TORCH_FL_GUARD_HAS_CAPTURE  // torch 2.12 and newer
  bool isStreamCapturing(const Stream& stream) const override {
    return runtime().is_capturing(device_of(stream), stream.id());
  }
#endif
  void synchronizeDevice(const DeviceIndex device) const override {
    runtime().synchronize_device(checked_device(device));
  }

  void record(void** event, const Stream& stream, const DeviceIndex device,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "Event device index ",
                static_cast<int>(device), " does not match recording stream's device index ",
                static_cast<int>(stream.device_index()), ".");
    runtime().record(event, device_of(stream), stream.id(), flag);
  }
  void block(void* event, const Stream& stream) const override {
    const auto index = device_of(stream);
    if (event != nullptr) runtime().block(event, index, stream.id());
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || runtime().query_event(event);
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) runtime().synchronize_event(event);
  }
  double elapsedTime(void* start, void* end, const DeviceIndex device) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "Both events must be recorded before calculating elapsed time.");
    return runtime().elapsed_ms(start, end, device);
  }
  void destroyEvent(void* event, const DeviceIndex device) const noexcept override {
    if (event != nullptr) runtime().destroy_event(event, device);
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const Stream& stream) const override {
    c10::getDeviceAllocator(kFlagos)->recordStream(data, stream);
  }
};

}  // namespace

void register_guard() { c10::impl::DeviceGuardImplRegistrar(kFlagos, new Guard); }

}  // namespace torch_fl
