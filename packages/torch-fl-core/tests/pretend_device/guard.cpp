// Owns: devices, streams and events of the pretend device, through c10's device guard, and what
// tests are told of them.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>

#include "device.h"

namespace pretend {
namespace {

constexpr StreamId kDefaultStream = 0;
constexpr StreamId kFirstPooled = 1;
constexpr StreamId kFirstHighPriority = 33;
constexpr StreamId kPooled = 4;  // per device and priority; then they come round again
constexpr StreamId kFirstNew = 100;

// The driver's current device, and the one that was asked for without making a context.
thread_local DeviceIndex t_device = 0;
thread_local DeviceIndex t_wanted = -1;
thread_local std::array<StreamId, kDevices> t_streams{};

std::array<std::atomic<bool>, kDevices> g_contexts{};
std::atomic<bool> g_initialized{false};
std::atomic<int> g_initializing{0};
std::atomic<bool> g_held{false};
std::mutex g_fault_mutex;
std::string g_fault;

struct Told {
  std::mutex mutex;
  std::map<std::string, int64_t> values;
};

Told& all_told() {
  static auto* told = new Told;
  return *told;
}

size_t slot(DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < kDevices, "hpu:", static_cast<int>(device),
              " does not exist (hpu has ", static_cast<int>(kDevices), " devices)");
  return static_cast<size_t>(device);
}

struct Event {
  DeviceIndex device;
  StreamId stream;
  bool timed;
  std::chrono::steady_clock::time_point at;
};

Stream label(DeviceIndex device, StreamId id) {
  return Stream(Stream::UNSAFE, Device(kType, device), id);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }

  Device getDevice() const override { return {kType, current_device()}; }
  void setDevice(Device device) const override { set_device(own(device)); }
  void uncheckedSetDevice(Device device) const noexcept override { restore_device(device.index()); }
  Device exchangeDevice(Device device) const override {
    const Device previous = getDevice();
    if (device.index() != previous.index()) setDevice(device);
    return previous;
  }
  DeviceIndex deviceCount() const noexcept override { return kDevices; }
  // A device that has no double precision: not what anybody assumes.
  c10::DeviceCapability getDeviceCapability(Device device) const override {
    own(device);
    c10::DeviceCapability capability;
    capability.capability_data.supported_scalar_types.has_Double = 0;
    return capability;
  }

  Stream getStream(Device device) const override {
    const auto index = own(device);
    return label(index, current_stream(index));
  }
  Stream getDefaultStream(Device device) const override {
    return label(own(device), kDefaultStream);
  }
  Stream getStreamFromGlobalPool(Device device, bool high_priority) const override {
    static std::array<std::atomic<StreamId>, kDevices> turns{};
    const auto index = own(device);
    const auto first = high_priority ? kFirstHighPriority : kFirstPooled;
    return label(index, first + turns[slot(index)]++ % kPooled);
  }
  Stream getNewStream(Device device, int priority) const override {
    static std::atomic<StreamId> next{kFirstNew};
    note("new stream: priority", priority);
    return label(own(device), next++);
  }
  Stream exchangeStream(Stream stream) const override {
    const auto index = own(stream.device());
    return label(index, std::exchange(t_streams[slot(index)], stream.id()));
  }
  void* getStreamNativeHandle(const Stream stream) const override {
    return reinterpret_cast<void*>(0x1000 * (own(stream.device()) + 1) + stream.id());
  }
  bool queryStream(const Stream& stream) const override {
    own(stream.device());
    return !g_held;
  }
  void synchronizeStream(const Stream& stream) const override {
    check_fault();
    count("synchronize stream of hpu:" + std::to_string(own(stream.device())));
    note("synchronize stream: id", stream.id());
  }
  void synchronizeDevice(DeviceIndex device) const override {
    check_fault();
    count("synchronize hpu:" + std::to_string(slot(device)));
  }

  void record(void** event, const Stream& stream, DeviceIndex device,
              c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "hpu events stay on one device");
    const bool timed = flag == c10::EventFlag::BACKEND_DEFAULT;
    if (*event == nullptr) {
      *event = new Event{.device = own(stream.device()), .stream = 0, .timed = timed, .at = {}};
      count("events alive");
    }
    auto& recorded = *static_cast<Event*>(*event);
    TORCH_CHECK(recorded.device == stream.device_index(),
                "this event belongs to hpu:", static_cast<int>(recorded.device));
    recorded.stream = stream.id();
    recorded.at = std::chrono::steady_clock::now();
    count("record");
  }
  void block(void* event, const Stream& stream) const override {
    count("block");
    note("block: waits", stream.id() + 1000 * own(stream.device()));
    note("block: for", static_cast<Event*>(event)->stream);
  }
  bool queryEvent(void* event) const override {
    count("query event");
    return event == nullptr || !g_held;
  }
  void synchronizeEvent(void*) const override {
    check_fault();
    count("synchronize event");
  }
  double elapsedTime(void* start, void* end, DeviceIndex device) const override {
    const auto& first = *static_cast<Event*>(start);
    const auto& last = *static_cast<Event*>(end);
    TORCH_CHECK(first.timed && last.timed, "hpu events without timing have no time");
    TORCH_CHECK(first.device == device && last.device == device, "hpu events of one device only");
    return std::chrono::duration<double, std::milli>(last.at - first.at).count();
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    if (event == nullptr) return;
    delete static_cast<Event*>(event);
    count("events alive", -1);
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const Stream& stream) const override {
    record_use(data, stream);
  }

 private:
  static DeviceIndex own(Device device) {
    TORCH_CHECK(device.type() == kType, "expected an hpu device, but got ", device);
    const auto index = device.has_index() ? device.index() : current_device();
    slot(index);
    return index;
  }
};

C10_REGISTER_GUARD_IMPL(HPU, Guard);

}  // namespace

void count(const std::string& what, int64_t by) {
  const std::lock_guard<std::mutex> lock(all_told().mutex);
  all_told().values[what] += by;
}

void note(const std::string& what, int64_t value) {
  const std::lock_guard<std::mutex> lock(all_told().mutex);
  all_told().values[what] = value;
}

int64_t told(const std::string& what) {
  const std::lock_guard<std::mutex> lock(all_told().mutex);
  const auto found = all_told().values.find(what);
  return found == all_told().values.end() ? 0 : found->second;
}

DeviceIndex current_device() { return t_wanted >= 0 ? t_wanted : t_device; }

void set_device(DeviceIndex device) {
  slot(device);
  t_wanted = -1;
  if (device == t_device) return;
  make_context(device);
  t_device = device;
}

void restore_device(DeviceIndex device) noexcept {
  if (device < 0 || device >= kDevices) return;
  if (g_contexts[static_cast<size_t>(device)]) {
    t_device = device;
    t_wanted = -1;
  } else {
    t_wanted = device;
  }
}

void make_context(DeviceIndex device) { g_contexts[slot(device)] = true; }

bool has_context(DeviceIndex device) { return g_contexts[slot(device)]; }

// Takes a while and must not run twice at once, as a driver's.
void initialize() {
  count("initialize");
  if (g_initializing++ > 0) count("initialize while initializing");
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
  while (std::chrono::steady_clock::now() < until) continue;
  --g_initializing;
  g_initialized = true;
}

bool initialized() { return g_initialized; }

StreamId current_stream(DeviceIndex device) { return t_streams[slot(device)]; }

void hold(bool on) { g_held = on; }

void break_with(const std::string& fault) {
  const std::lock_guard<std::mutex> lock(g_fault_mutex);
  g_fault = fault;
}

void check_fault() {
  constexpr int32_t kCode = 710;  // as CUDA's assertion in a kernel
  const std::lock_guard<std::mutex> lock(g_fault_mutex);
  if (g_fault.empty()) return;
  throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, kCode,
                              g_fault);
}

}  // namespace pretend
