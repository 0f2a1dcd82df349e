// Owns: device memory of the pretend device: a caching allocator per device and stream with statistics and
// a limit.
#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "device.h"

namespace pretend {
namespace {

using Stats = c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t kGranule = 512;

void* system_memory(size_t nbytes) {
  void* data = nullptr;
  TORCH_CHECK(posix_memalign(&data, 64, nbytes) == 0, "the host has no memory left");
  return data;
}

struct Block {
  DeviceIndex device;
  StreamId stream;
  size_t nbytes;
};

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    const auto device = current_device();
    if (nbytes == 0) return {nullptr, Device(kType, device)};
    require_initialized();
    make_context(device);
    const std::lock_guard<std::mutex> lock(mutex_);
    void* data = take(nbytes, device);
    return {data, data, &release, Device(kType, device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override {
    std::memcpy(to, from, count);
  }

  bool initialized() override { return pretend::initialized(); }
  void emptyCache(c10::MempoolId_t) override {
    require_initialized();
    const std::lock_guard<std::mutex> lock(mutex_);
    drop_cache();
  }
  void recordStream(const c10::DataPtr& data, Stream stream) override {
    TORCH_CHECK(data.get_deleter() == &release, "not memory of hpu's allocator");
    TORCH_CHECK(stream.device_type() == kType, "not a stream of hpu: ", stream);
    const std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(used_.count(data.get()) == 1, "not a block of hpu's allocator");
    count("record_stream");
    note("record_stream: stream", stream.id());
    note("record_stream: data", reinterpret_cast<int64_t>(data.get()));
  }
  Stats getDeviceStats(DeviceIndex device) override {
    require_initialized();
    const std::lock_guard<std::mutex> lock(mutex_);
    return stats_.at(static_cast<size_t>(device));
  }
  void resetAccumulatedStats(DeviceIndex device) override {
    each_stat(device, [](c10::CachingAllocator::Stat& stat) { stat.reset_accumulated(); });
    auto& stats = stats_.at(static_cast<size_t>(device));
    stats.num_ooms = stats.num_alloc_retries = 0;
  }
  void resetPeakStats(DeviceIndex device) override {
    each_stat(device, [](c10::CachingAllocator::Stat& stat) { stat.reset_peak(); });
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    require_initialized();
    const std::lock_guard<std::mutex> lock(mutex_);
    return {limit_ - reserved(device), limit_};
  }

  void set_limit(size_t limit) {
    const std::lock_guard<std::mutex> lock(mutex_);
    limit_ = limit;
  }
  // The block that `data` points into, if one does.
  std::optional<Block> find(const void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto after = used_.upper_bound(const_cast<void*>(data));
    if (after == used_.begin()) return std::nullopt;
    const auto& [start, block] = *--after;
    const bool inside = static_cast<const char*>(data) < static_cast<char*>(start) + block.nbytes;
    return inside ? std::optional(block) : std::nullopt;
  }

 private:
  static void release(void* data);

  static void require_initialized() {
    TORCH_INTERNAL_ASSERT(pretend::initialized(), "hpu's allocator was used before hpu's init");
  }
  size_t reserved(DeviceIndex device) {
    return static_cast<size_t>(stats_[static_cast<size_t>(device)].reserved_bytes[0].current);
  }

  void* take(size_t requested, DeviceIndex device) {
    const size_t nbytes = (requested + kGranule - 1) / kGranule * kGranule;
    auto& stats = stats_[static_cast<size_t>(device)];
    const Block wanted{device, current_stream(device), nbytes};
    void* data = nullptr;
    for (auto at = cached_.begin(); at != cached_.end() && data == nullptr; ++at) {
      const auto& block = at->second;
      if (block.device == device && block.stream == wanted.stream && block.nbytes == nbytes) {
        data = at->first;
        cached_.erase(at);
        break;
      }
    }
    if (data == nullptr) {
      if (reserved(device) + nbytes > limit_) {
        ++stats.num_alloc_retries;
        drop_cache();
      }
      if (reserved(device) + nbytes > limit_) {
        ++stats.num_ooms;
        TORCH_CHECK_WITH(OutOfMemoryError, false, "HPU out of memory. Tried to allocate ",
                         requested, " bytes. hpu:", static_cast<int>(device),
                         " has a total capacity of ", limit_, " bytes, of which ",
                         limit_ - reserved(device), " bytes are free.");
      }
      data = system_memory(nbytes);
      ++stats.num_device_alloc;
      stats.segment[0].increase(1);
      stats.reserved_bytes[0].increase(nbytes);
    }
    stats.allocation[0].increase(1);
    stats.active[0].increase(1);
    stats.allocated_bytes[0].increase(nbytes);
    stats.active_bytes[0].increase(nbytes);
    stats.requested_bytes[0].increase(requested);
    used_.emplace(data, wanted);
    requested_.emplace(data, requested);
    return data;
  }

  void give_back(void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = used_.find(data);
    auto& stats = stats_[static_cast<size_t>(found->second.device)];
    stats.allocation[0].decrease(1);
    stats.active[0].decrease(1);
    stats.allocated_bytes[0].decrease(found->second.nbytes);
    stats.active_bytes[0].decrease(found->second.nbytes);
    stats.requested_bytes[0].decrease(requested_.at(data));
    requested_.erase(data);
    cached_.insert(*found);
    used_.erase(found);
  }

  void drop_cache() {
    for (const auto& [data, block] : cached_) {
      auto& stats = stats_[static_cast<size_t>(block.device)];
      ++stats.num_device_free;
      stats.segment[0].decrease(1);
      stats.reserved_bytes[0].decrease(block.nbytes);
      std::free(data);
    }
    cached_.clear();
  }

  template <class F>
  void each_stat(DeviceIndex device, F&& change) {
    require_initialized();
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& stats = stats_.at(static_cast<size_t>(device));
    for (auto* array : {&stats.allocation, &stats.segment, &stats.active, &stats.allocated_bytes,
                        &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      change((*array)[0]);
    }
  }

  std::mutex mutex_;
  std::array<Stats, kDevices> stats_;
  std::map<void*, Block> used_;
  std::map<void*, Block> cached_;
  std::map<void*, size_t> requested_;
  size_t limit_ = size_t{256} << 20;
};

// Never destroyed: tensors may be freed by static destructors that run later.
Allocator& allocator() {
  static auto* instance = new Allocator;
  return *instance;
}

void Allocator::release(void* data) { allocator().give_back(data); }

const c10::AllocatorRegisterer<kType> g_register_allocator(&allocator());

}  // namespace

void set_memory_limit(int64_t bytes) { allocator().set_limit(static_cast<size_t>(bytes)); }

DeviceIndex device_of(const void* data) {
  const auto block = allocator().find(data);
  return block ? block->device : DeviceIndex{-1};
}

StreamId stream_of(const void* data) {
  const auto block = allocator().find(data);
  return block ? block->stream : -1;
}

void record_use(const c10::DataPtr& data, Stream stream) { allocator().recordStream(data, stream); }

}  // namespace pretend
