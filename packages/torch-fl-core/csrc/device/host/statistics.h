// Owns: what a pool counts. PyTorch's DeviceStats takes four updates per figure; these take three
// instructions, and become DeviceStats when somebody asks.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace torch_fl::host {

using DeviceStats = c10::CachingDeviceAllocator::DeviceStats;

// A quantity that rises and falls.
struct Tally {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t total = 0;  // everything that was ever added

  void add(int64_t amount) {
    current += amount;
    total += amount;
    peak = std::max(peak, current);
  }
  void take(int64_t amount) { current -= amount; }
};

struct Statistics {
  struct Group {
    Tally blocks;
    Tally block_bytes;
    Tally requested_bytes;
    Tally segments;
    Tally reserved_bytes;
  };

  // Aggregate, small and large blocks, in the order of c10's StatType.
  std::array<Group, 3> groups;
  // What reset_accumulated() subtracts.
  std::array<Group, 3> accumulated_before;
  int64_t retries = 0;
  int64_t out_of_memory = 0;
  int64_t segments_made = 0;
  int64_t segments_released = 0;

  void count(int64_t rounded, int64_t requested, bool small) {
    for (Group* group : {&groups[0], &groups[small ? 1 : 2]}) {
      group->blocks.add(1);
      group->block_bytes.add(rounded);
      group->requested_bytes.add(requested);
    }
  }
  void discount(int64_t rounded, int64_t requested, bool small) {
    for (Group* group : {&groups[0], &groups[small ? 1 : 2]}) {
      group->blocks.take(1);
      group->block_bytes.take(rounded);
      group->requested_bytes.take(requested);
    }
  }

  void make_segment(bool small);
  void release_segment(bool small);
  void reserve(int64_t bytes, bool small);

  int64_t allocated() const { return groups[0].block_bytes.current; }
  DeviceStats device_stats() const;
  void reset_peaks();
  void reset_accumulated();
};

}  // namespace torch_fl::host
