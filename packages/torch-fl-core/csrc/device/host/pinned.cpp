// Owns: pinned memory of the host runtime.
#include "device/host/pinned.h"

#include "device/host/cpu_allocator.h"

namespace torch_fl::host {

PinnedAllocator::PinnedAllocator(size_t limit)
    : pool_("flagos pinned memory", limit, /*guarded=*/false) {}

c10::DataPtr PinnedAllocator::allocate(size_t nbytes) { return allocate_from(pool_, nbytes); }

c10::DeleterFnPtr PinnedAllocator::raw_deleter() const { return &free_any; }

void PinnedAllocator::copy_data(void* to, const void* from, size_t count) const {
  default_copy_data(to, from, count);
}

bool PinnedAllocator::record_event(void* data, void*, c10::Stream) { return owns(data); }

void PinnedAllocator::empty_cache() { pool_.empty_cache(); }

at::HostStats PinnedAllocator::get_stats() {
  constexpr auto kAggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto device = pool_.stats();
  at::HostStats stats;
  stats.active_requests = device.active[kAggregate];
  stats.active_bytes = device.active_bytes[kAggregate];
  stats.allocations = device.segment[kAggregate];
  stats.allocated_bytes = device.reserved_bytes[kAggregate];
  stats.num_host_alloc = device.num_device_alloc;
  stats.num_host_free = device.num_device_free;
  return stats;
}

void PinnedAllocator::reset_accumulated_stats() { pool_.reset_accumulated_stats(); }

void PinnedAllocator::reset_peak_stats() { pool_.reset_peak_stats(); }

bool PinnedAllocator::owns(const void* data) const {
  const auto* segment = Arena::instance().segment_of(data);
  return segment != nullptr && segment->pool == &pool_;
}

}  // namespace torch_fl::host
