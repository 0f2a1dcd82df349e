// Owns: the host runtime. CPU has no devices, streams or limits, so all of them are made here.
// A stream is in order and synchronous: work is complete when the call that gave it returns, so
// waiting is a no-op and an event is the time at which it was recorded.
#include "device/host/runtime.h"

#include <ATen/CPUGeneratorImpl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "device/host/cpu_allocator.h"
#include "device/host/fork_locks.h"
#include "device/host/pinned.h"
#include "device/page_guard.h"

namespace torch_fl {
namespace host {
namespace {

constexpr int kMaxDevices = 64;
constexpr StreamId kDefaultStream = 0;
constexpr StreamId kPooledStreams = 32;  // per priority, as CUDA has
// A stream's id says its priority: behind the default stream, 0, come the pooled ones, the high ones
// last, and then new ones in pairs, of which one half is used.
constexpr StreamId kFirstNewStream = 1 + 2 * kPooledStreams;

size_t machine_memory() {
  size_t total =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    size_t limit = 0;
    if (std::ifstream(path) >> limit && limit > 0) total = std::min(total, limit);
  }
  return total;
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const auto colon = line.find(':');
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(line.find_first_not_of(" \t", colon + 1));
    }
  }
  return "CPU";
}

struct Event {
  std::atomic<int64_t> nanoseconds{0};
  bool timed = false;
};

// Each thread has its own current device, and its own current stream on each device.
thread_local DeviceIndex t_device = 0;
thread_local std::array<StreamId, kMaxDevices> t_streams{};

void report_memory(void* data, int64_t change, size_t allocated, size_t reserved, int device) {
  c10::reportMemoryUsageToProfiler(data, change, allocated, reserved,
                                   c10::Device(kFlagos, static_cast<DeviceIndex>(device)));
}

class HostRuntime final : public Runtime {
 public:
  explicit HostRuntime(const Options& options)
      : memory_(machine_memory()), pinned_(memory_), processor_(processor_name()) {
    TORCH_CHECK(options.device_count >= 1 && options.device_count <= kMaxDevices,
                "FLAGOS_HOST_DEVICES must be between 1 and ", kMaxDevices, ", but is ",
                options.device_count, ".");
    const size_t limit = options.memory_limit == 0 ? memory_ : options.memory_limit;
    for (int device = 0; device < options.device_count; ++device) {
      auto& pool = pools_.emplace_back("flagos:" + std::to_string(device), limit, options.guard);
      pool.observe(&report_memory, device);
      // The CPU's seed at this moment: torch.manual_seed() before activation counts too.
      generators_.push_back(
          at::detail::createCPUGenerator(at::detail::getDefaultCPUGenerator().current_seed()));
    }
    page_guard::g_enabled = options.guard;
    install_cpu_allocator(pools_);
    std::vector<Pool*> pools{&pinned_.pool()};
    for (auto& pool : pools_) pools.push_back(&pool);
    hold_while_forking(std::move(pools));
  }

  c10::DeviceType target_type() const noexcept override { return c10::DeviceType::CPU; }
  void initialize() override {}

  DeviceIndex device_count() const noexcept override {
    return static_cast<DeviceIndex>(pools_.size());
  }
  DeviceIndex current_device() const override { return t_device; }
  void set_device(DeviceIndex device) override { t_device = device; }
  void restore_device(DeviceIndex device) noexcept override { t_device = device; }
  bool has_context(DeviceIndex) override { return true; }
  DeviceProperties properties(DeviceIndex device) override {
    return {.name = "flagos host: " + processor_,
            .total_memory = pool(device).limit(),
            .multi_processor_count = static_cast<int>(std::thread::hardware_concurrency()),
            .is_integrated = true};
  }
  c10::DeviceCapability capability(DeviceIndex) override { return {}; }
  void synchronize_device(DeviceIndex) override {}

  StreamId current_stream(DeviceIndex device) override { return stream_slot(device); }
  StreamId default_stream(DeviceIndex) override { return kDefaultStream; }
  StreamId pooled_stream(DeviceIndex, bool high_priority) override {
    auto& next = high_priority ? next_high_ : next_normal_;
    const auto turn = static_cast<StreamId>(next.fetch_add(1, std::memory_order_relaxed));
    return 1 + (high_priority ? kPooledStreams : 0) + turn % kPooledStreams;
  }
  StreamId new_stream(DeviceIndex, int priority) override {
    const auto pair = next_pair_.fetch_add(1, std::memory_order_relaxed);
    return kFirstNewStream + 2 * pair + (priority < 0 ? 1 : 0);
  }
  int stream_priority(StreamId stream) const override {
    const bool high =
        stream >= kFirstNewStream ? (stream - kFirstNewStream) % 2 != 0 : stream > kPooledStreams;
    return high ? -1 : 0;
  }
  StreamId exchange_stream(DeviceIndex device, StreamId stream) override {
    return std::exchange(stream_slot(device), stream);
  }
  bool query_stream(DeviceIndex, StreamId) override { return true; }
  void synchronize_stream(DeviceIndex, StreamId) override {}
  bool is_capturing(DeviceIndex, StreamId) override { return false; }
  void* native_stream(DeviceIndex, StreamId stream) override {
    return reinterpret_cast<void*>(stream);  // NOLINT(performance-no-int-to-ptr): an identity
  }

  void record(void** event, DeviceIndex, StreamId, c10::EventFlag flag) override {
    if (*event == nullptr) *event = new Event{.timed = flag == c10::EventFlag::BACKEND_DEFAULT};
    static_cast<Event*>(*event)->nanoseconds =
        std::chrono::steady_clock::now().time_since_epoch().count();
  }
  void block(void*, DeviceIndex, StreamId) override {}
  bool query_event(void*) override { return true; }
  void synchronize_event(void*) override {}
  double elapsed_ms(void* start, void* end, DeviceIndex) override {
    const auto& from = *static_cast<Event*>(start);
    const auto& to = *static_cast<Event*>(end);
    TORCH_CHECK_VALUE(from.timed && to.timed,
                      "Both events must be created with argument 'enable_timing=True'.");
    return static_cast<double>(to.nanoseconds - from.nanoseconds) * 1e-6;
  }
  void destroy_event(void* event, DeviceIndex) noexcept override {
    delete static_cast<Event*>(event);
  }

  c10::DataPtr allocate(size_t nbytes, DeviceIndex device) override {
    return allocate_from(pool(device), nbytes);
  }
  c10::Allocator* target_allocator() override { return cpu_allocator(); }
  void empty_cache() override {
    for (auto& pool : pools_) pool.empty_cache();
  }
  void record_stream(const c10::DataPtr&, DeviceIndex, StreamId) override {}
  DeviceStats memory_stats(DeviceIndex device) override { return pool(device).stats(); }
  void reset_peak_stats(DeviceIndex device) override { pool(device).reset_peak_stats(); }
  void reset_accumulated_stats(DeviceIndex device) override {
    pool(device).reset_accumulated_stats();
  }
  std::pair<size_t, size_t> memory_info(DeviceIndex device) override {
    const size_t limit = pool(device).limit();
    return {limit - std::min(limit, pool(device).reserved()), limit};
  }
  DeviceIndex device_of(const void* data) override {
    const auto* segment = Arena::instance().segment_of(data);
    for (DeviceIndex device = 0; segment != nullptr && device < device_count(); ++device) {
      if (segment->pool == &pool(device)) return device;
    }
    return -1;
  }
  at::HostAllocator* pinned_allocator() override { return &pinned_; }
  bool is_pinned(const void* data) override { return pinned_.owns(data); }

  at::Generator default_generator(DeviceIndex device) override {
    return generators_[static_cast<size_t>(device)];
  }
  at::Generator new_generator(DeviceIndex) override { return at::detail::createCPUGenerator(); }

 private:
  Pool& pool(DeviceIndex device) { return pools_[static_cast<size_t>(device)]; }
  static StreamId& stream_slot(DeviceIndex device) {
    return t_streams[static_cast<size_t>(device)];
  }

  const size_t memory_;
  std::deque<Pool> pools_;  // never moves: segments point at their pool
  PinnedAllocator pinned_;
  std::vector<at::Generator> generators_;
  const std::string processor_;
  std::atomic<uint32_t> next_normal_{0};
  std::atomic<uint32_t> next_high_{0};
  std::atomic<StreamId> next_pair_{0};
};

}  // namespace

std::unique_ptr<Runtime> make_runtime(const Options& options) {
  return std::make_unique<HostRuntime>(options);
}

}  // namespace host

namespace page_guard {

void adopt(const void* data) {
  if (auto* segment = host::Arena::instance().segment_of(data)) segment->pool->adopt(*segment);
}
uint64_t open(const void* data) {
  auto* segment = host::Arena::instance().segment_of(data);
  return segment == nullptr ? 0 : segment->pool->open(*segment);
}
void close(const void* data, uint64_t life) {
  if (auto* segment = host::Arena::instance().segment_of(data)) {
    segment->pool->close(*segment, life);
  }
}

}  // namespace page_guard
}  // namespace torch_fl
