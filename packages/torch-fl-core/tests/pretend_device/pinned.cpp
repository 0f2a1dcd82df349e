// Owns: pinned memory of the pretend device.
#include <ATen/core/CachingHostAllocator.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "device.h"

namespace pretend {
namespace {

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    void* data = nbytes == 0 ? nullptr : std::malloc(nbytes);
    if (data != nullptr) {
      const std::lock_guard<std::mutex> lock(mutex_);
      blocks_.emplace(data, nbytes);
      count("pinned bytes", static_cast<int64_t>(nbytes));
    }
    return {data, data, &release, Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override {
    std::memcpy(to, from, count);
  }
  bool record_event(void* data, void*, Stream stream) override {
    if (!owns(data)) return false;
    count("pinned: record_event");
    note("pinned: stream", stream.id());
    return true;
  }
  void empty_cache() override { count("pinned: empty_cache"); }
  at::HostStats get_stats() override {
    at::HostStats stats;
    stats.num_host_alloc = told("pinned bytes");
    return stats;
  }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  bool owns(const void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto after = blocks_.upper_bound(const_cast<void*>(data));
    if (after == blocks_.begin()) return false;
    const auto& [start, nbytes] = *--after;
    return static_cast<const char*>(data) < static_cast<char*>(start) + nbytes;
  }

 private:
  static void release(void* data);

  std::mutex mutex_;
  std::map<void*, size_t> blocks_;
};

PinnedAllocator& pinned_allocator() {
  static auto* instance = new PinnedAllocator;
  return *instance;
}

void PinnedAllocator::release(void* data) {
  auto& self = pinned_allocator();
  const std::lock_guard<std::mutex> lock(self.mutex_);
  const auto found = self.blocks_.find(data);
  if (found == self.blocks_.end()) return;
  count("pinned bytes", -static_cast<int64_t>(found->second));
  self.blocks_.erase(found);
  std::free(data);
}

const at::HostAllocatorRegistry<kType> g_register_pinned(&pinned_allocator());

}  // namespace

bool is_pinned(const void* data) { return pinned_allocator().owns(data); }

void record_pinned_use(const c10::DataPtr& data, Stream stream) {
  pinned_allocator().record_event(data.get(), data.get_context(), stream);
}

}  // namespace pretend
