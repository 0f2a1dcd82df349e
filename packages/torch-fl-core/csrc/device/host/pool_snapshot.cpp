// Owns: telling what a pool's segments hold.
#include <mutex>
#include <unordered_set>

#include "device/host/memory_tools.h"
#include "device/host/pool.h"

namespace torch_fl::host {

void Pool::add_to(Snapshot& snapshot, c10::DeviceIndex device, bool with_events) {
  const auto cause = gather(Stacks::kAllocations);
  const std::lock_guard lock(lock_);
  std::unordered_set<const char*> unused;
  for (const auto& slots : free_slots_) unused.insert(slots.begin(), slots.end());

  Arena::instance().for_each_segment(this, [&](const Segment& segment) {
    auto& info = snapshot.segments.emplace_back();
    info.device = device;
    info.address = reinterpret_cast<uintptr_t>(segment.base);
    info.size = segment.size;
    info.large = segment.slots == 1;
    size_t covered = 0;
    // Unused neighbours are one block.
    const auto add_unused_until = [&](size_t end) {
      if (covered < end)
        info.blocks.push_back({info.address + covered, end - covered, 0, false, {}});
      covered = end;
    };
    for (size_t slot = 0; slot < segment.carved; ++slot) {
      const char* data = segment.base + slot * segment.slot_size;
      if (info.large ? segment.live == 0 : unused.contains(data)) continue;
      add_unused_until(slot * segment.slot_size);
      const size_t requested = segment.requested[slot];
      const size_t size = info.large ? round_large(requested) : segment.slot_size;
      info.blocks.push_back(
          {info.address + covered, size, requested, true, history_.context_of(data)});
      covered += size;
    }
    add_unused_until(segment.size);
  });
  if (!with_events) {
    snapshot.events.emplace_back();
    return;
  }
  history_.cause = cause;
  history_.note(Action::kSnapshot, nullptr, static_cast<size_t>(statistics_.allocated()));
  history_.cause.reset();
  snapshot.events.push_back(history_.events());
}

}  // namespace torch_fl::host
