// Owns: the runtime of a backend that stands on a device which PyTorch already has. Nothing here
// knows which one: everything goes through the device guard, device allocator, host allocator and
// accelerator hooks that the target registered.
#include "device/delegate/runtime.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/AcceleratorHooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "device/breadcrumbs.h"

namespace torch_fl::delegate {
namespace {

using breadcrumbs::explained;
using c10::Device;
using c10::Stream;

class DelegateRuntime final : public Runtime {
 public:
  DelegateRuntime(c10::DeviceType target, bool foreach_takes_any_device)
      : type_(target), foreach_takes_any_device_(foreach_takes_any_device), guard_(target) {}

  c10::DeviceType target_type() const noexcept override { return type_; }
  bool foreach_takes_any_device() const noexcept override { return foreach_takes_any_device_; }
  // PyTorch's own way, once per process, however the target is first used and by whichever thread.
  // Needed before the first allocation: CUDA's allocator asserts otherwise.
  void initialize() override { at::globalContext().lazyInitDevice(type_); }

  DeviceIndex device_count() const noexcept override { return guard_.deviceCount(); }
  DeviceIndex current_device() const override { return guard_.getDevice().index(); }
  void set_device(DeviceIndex device) override { guard_.setDevice({type_, device}); }
  void restore_device(DeviceIndex device) noexcept override {
    guard_.uncheckedSetDevice({type_, device});
  }
  bool has_context(DeviceIndex device) override { return hooks().hasPrimaryContext(device); }
  DeviceProperties properties(DeviceIndex device) override {
    // Names and units per vendor come from the plugin's target module; here only what every device
    // can say.
    DeviceProperties result{.name = c10::DeviceTypeName(type_, /*lower_case=*/true)};
    if (auto* memory = device_allocator_or_null()) {
      result.total_memory = memory->getMemoryInfo(device).second;
    }
    return result;
  }
  c10::DeviceCapability capability(DeviceIndex device) override {
    return guard_.getDeviceCapability({type_, device});
  }
  void synchronize_device(DeviceIndex device) override {
    explained([&] { guard_.synchronizeDevice(device); });
  }

  StreamId current_stream(DeviceIndex device) override {
    return guard_.getStream({type_, device}).id();
  }
  StreamId default_stream(DeviceIndex device) override {
    return guard_.getDefaultStream({type_, device}).id();
  }
  StreamId pooled_stream(DeviceIndex device, bool high_priority) override {
    return guard_.getStreamFromGlobalPool({type_, device}, high_priority).id();
  }
  StreamId new_stream(DeviceIndex device, int priority) override {
    return guard_.getNewStream({type_, device}, priority).id();
  }
  StreamId exchange_stream(DeviceIndex device, StreamId stream) override {
    return guard_.exchangeStream(on_target(device, stream)).id();
  }
  bool query_stream(DeviceIndex device, StreamId stream) override {
    return explained([&] { return guard_.queryStream(on_target(device, stream)); });
  }
  void synchronize_stream(DeviceIndex device, StreamId stream) override {
    explained([&] { guard_.synchronizeStream(on_target(device, stream)); });
  }
  bool is_capturing(DeviceIndex device, StreamId stream) override {
#ifdef TORCH_FL_GUARD_HAS_CAPTURE  // torch 2.12 and newer
    return guard_.isStreamCapturing(on_target(device, stream));
#else
    (void)device;
    (void)stream;
    return false;
#endif
  }
  void* native_stream(DeviceIndex device, StreamId stream) override {
    return guard_.getStreamNativeHandle(on_target(device, stream));
  }

  void record(void** event, DeviceIndex device, StreamId stream, c10::EventFlag flag) override {
    explained([&] { guard_.record(event, on_target(device, stream), device, flag); });
  }
  void block(void* event, DeviceIndex device, StreamId stream) override {
    explained([&] { guard_.block(event, on_target(device, stream)); });
  }
  bool query_event(void* event) override {
    return explained([&] { return guard_.queryEvent(event); });
  }
  void synchronize_event(void* event) override {
    explained([&] { guard_.synchronizeEvent(event); });
  }
  double elapsed_ms(void* start, void* end, DeviceIndex device) override {
    return guard_.elapsedTime(start, end, device);
  }
  void destroy_event(void* event, DeviceIndex device) noexcept override {
    guard_.destroyEvent(event, device);
  }

  c10::DataPtr allocate(size_t nbytes, DeviceIndex device) override {
    initialize();
    const auto allocate = [&] {
      return explained([&] { return target_allocator()->allocate(nbytes); });
    };
    // (The guard's end asks the driver whether there is anything on the device to come back to.)
    if (C10_LIKELY(guard_.getDevice().index() == device)) return allocate();
    const c10::DeviceGuard guard{Device(type_, device)};  // also when the target has no memory left
    return allocate();
  }
  c10::Allocator* target_allocator() override { return c10::GetAllocator(type_); }
  bool has_memory() override { return device_allocator_or_null() != nullptr; }
  void empty_cache() override {
    if (auto* memory = device_allocator_or_null()) {
      explained([&] { memory->emptyCache(); });
    }
  }
  void record_stream(const c10::DataPtr& data, DeviceIndex device, StreamId stream) override {
    guard_.recordDataPtrOnStream(data, on_target(device, stream));
  }
  // Statistics can be asked for before the target has been started: then there are none.
  DeviceStats memory_stats(DeviceIndex device) override {
    auto* memory = device_allocator_or_null();
    return memory == nullptr ? DeviceStats{} : memory->getDeviceStats(device);
  }
  void reset_peak_stats(DeviceIndex device) override {
    if (auto* memory = device_allocator_or_null()) memory->resetPeakStats(device);
  }
  void reset_accumulated_stats(DeviceIndex device) override {
    if (auto* memory = device_allocator_or_null()) memory->resetAccumulatedStats(device);
  }
  std::pair<size_t, size_t> memory_info(DeviceIndex device) override {
    initialize();
    return device_allocator().getMemoryInfo(device);
  }
  DeviceIndex device_of(const void* data) override {
    try {
      const auto device = hooks().getDeviceFromPtr(const_cast<void*>(data));
      return device.type() == type_ ? device.index() : DeviceIndex{-1};
    } catch (const c10::Error&) {  // the hooks' way to say that it is not
      return -1;
    }
  }
  at::HostAllocator* pinned_allocator() override { return at::getHostAllocator(type_); }
  bool is_pinned(const void* data) override { return hooks().isPinnedPtr(data); }

  at::Generator default_generator(DeviceIndex device) override {
    initialize();
    return hooks().getDefaultGenerator(device);
  }
  at::Generator new_generator(DeviceIndex device) override {
    return hooks().getNewGenerator(device);
  }

 private:
  const at::AcceleratorHooksInterface& hooks() const {
    return at::globalContext().getAcceleratorHooksInterface(type_);
  }
  Stream on_target(DeviceIndex device, StreamId stream) const {
    return Stream(Stream::UNSAFE, Device(type_, device), stream);
  }
  c10::DeviceAllocator& device_allocator() { return *c10::getDeviceAllocator(type_); }
  c10::DeviceAllocator* device_allocator_or_null() {
    auto* memory = dynamic_cast<c10::DeviceAllocator*>(target_allocator());
    return memory != nullptr && memory->initialized() ? memory : nullptr;
  }

  const c10::DeviceType type_;
  const bool foreach_takes_any_device_;
  const c10::impl::VirtualGuardImpl guard_;
};

}  // namespace

std::unique_ptr<Runtime> make_runtime(c10::DeviceType target, bool foreach_takes_any_device) {
  TORCH_CHECK(target != kFlagos, "flagos cannot stand on itself.");
  TORCH_CHECK(at::isAccelerator(target), "flagos cannot stand on ",
              c10::DeviceTypeName(target, /*lower_case=*/true),
              ": it is no accelerator of PyTorch.");
  TORCH_CHECK(c10::impl::hasDeviceGuardImpl(target), "This PyTorch has no support for ",
              c10::DeviceTypeName(target, /*lower_case=*/true),
              ", the device that the chosen flagos backend stands on.");
  return std::make_unique<DelegateRuntime>(target, foreach_takes_any_device);
}

}  // namespace torch_fl::delegate
