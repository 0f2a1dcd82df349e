// Owns: turning a pool's counts into PyTorch's DeviceStats.
#include "device/host/statistics.h"

namespace torch_fl::host {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;

Stat stat(const Tally& tally, const Tally& before) {
  Stat result;
  result.current = tally.current;
  result.peak = tally.peak;
  result.allocated = tally.total - before.total;
  result.freed = (tally.total - tally.current) - (before.total - before.current);
  return result;
}

template <class F>
void for_each_tally(Statistics::Group& group, F&& apply) {
  for (auto* tally : {&group.blocks, &group.block_bytes, &group.requested_bytes, &group.segments,
                      &group.reserved_bytes}) {
    apply(*tally);
  }
}

}  // namespace

void Statistics::make_segment(bool small) {
  for (const size_t index : {0, small ? 1 : 2}) groups[index].segments.add(1);
  ++segments_made;
}

void Statistics::release_segment(bool small) {
  for (const size_t index : {0, small ? 1 : 2}) groups[index].segments.take(1);
  ++segments_released;
}

void Statistics::reserve(int64_t bytes, bool small) {
  for (const size_t index : {0, small ? 1 : 2}) {
    auto& reserved = groups[index].reserved_bytes;
    bytes >= 0 ? reserved.add(bytes) : reserved.take(-bytes);
  }
}

DeviceStats Statistics::device_stats() const {
  DeviceStats stats;
  for (size_t type = 0; type < groups.size(); ++type) {
    const auto& now = groups[type];
    const auto& before = accumulated_before[type];
    stats.allocation[type] = stats.active[type] = stat(now.blocks, before.blocks);
    stats.allocated_bytes[type] = stats.active_bytes[type] =
        stat(now.block_bytes, before.block_bytes);
    stats.requested_bytes[type] = stat(now.requested_bytes, before.requested_bytes);
    stats.segment[type] = stat(now.segments, before.segments);
    stats.reserved_bytes[type] = stat(now.reserved_bytes, before.reserved_bytes);
  }
  stats.num_alloc_retries = retries;
  stats.num_ooms = out_of_memory;
  stats.num_device_alloc = segments_made;
  stats.num_device_free = segments_released;
  return stats;
}

void Statistics::reset_peaks() {
  for (auto& group : groups) {
    for_each_tally(group, [](Tally& tally) { tally.peak = tally.current; });
  }
}

void Statistics::reset_accumulated() {
  accumulated_before = groups;
  retries = out_of_memory = segments_made = segments_released = 0;
}

}  // namespace torch_fl::host
