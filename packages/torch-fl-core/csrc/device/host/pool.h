// Owns: one device's memory: a cache of blocks by size class over segments of the arena, with a
// limit, CUDA's statistics and, while it is asked for, a history.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "device/host/arena.h"
#include "device/host/history.h"
#include "device/host/spin_lock.h"
#include "device/host/statistics.h"

namespace torch_fl::host {

struct Snapshot;

constexpr size_t kLargeRounding = 512;  // bytes; as CUDA rounds

inline size_t round_large(size_t nbytes) {
  return (nbytes + kLargeRounding - 1) / kLargeRounding * kLargeRounding;
}

class Pool {
 public:
  // `name` appears in error messages; `limit` is in bytes. `guarded`: every block gets pages of its
  // own, so that page_guard can close it.
  Pool(std::string name, size_t limit, bool guarded);

  // At least `nbytes` (> 0) bytes aligned to 64. After one retry with an emptied cache it throws
  // c10::OutOfMemoryError with the sizes.
  void* allocate(size_t nbytes);
  void free(Segment* segment, void* data) noexcept;

  void empty_cache();
  DeviceStats stats();
  void reset_peak_stats();
  void reset_accumulated_stats();
  size_t limit() const { return limit_; }
  // The share of the limit, 0 to 1, that may be reserved; 1 at first. What is reserved stays.
  void set_fraction(double fraction);
  double fraction();
  size_t reserved();  // bytes

  void start_history(const HistoryOptions& options, bool clear);
  void stop_history();
  void set_caching(bool on);
  void add_to(Snapshot& snapshot, c10::DeviceIndex device, bool with_events);

  // FLAGOS_HOST_GUARD: protection of a block of this pool (see device/page_guard.h).
  void adopt(Segment& segment);
  uint64_t open(Segment& segment);
  void close(Segment& segment, uint64_t life);

  // While a process forks no other thread may be in the middle of a change (fork_locks.h).
  void lock() { lock_.lock(); }
  void unlock() { lock_.unlock(); }

  // Called with the change in bytes after every allocation and free; for the memory profiler.
  using Observer = void(void* data, int64_t change, size_t allocated, size_t reserved, int device);
  void observe(Observer* observer, int device) {
    observer_ = observer;
    observed_device_ = device;
  }

 private:
  static constexpr size_t kClasses = 52;

  struct Block {
    Segment* segment = nullptr;
    char* data = nullptr;
  };

  // `cause` is null unless the call is watched (history.h).
  void* allocate(size_t nbytes, Context* cause);
  void free(Segment* segment, void* data, Context* cause) noexcept;
  Block take_small(size_t size_class);
  Block take_large(size_t nbytes);
  void release_unused();
  void reserve(int64_t bytes, bool small);
  [[noreturn]] void throw_out_of_memory(size_t nbytes);

  const std::string name_;
  const size_t limit_;
  std::atomic<size_t> allowed_;  // of `limit_`
  const bool guarded_;
  Observer* observer_ = nullptr;
  int observed_device_ = -1;

  SpinLock lock_;
  std::array<std::vector<char*>, kClasses> free_slots_;
  std::array<Segment*, kClasses> carving_{};    // the segment that still has uncarved slots
  std::multimap<size_t, Segment*> free_large_;  // by size in bytes
  std::vector<Segment*> small_segments_;
  size_t reserved_ = 0;
  double fraction_ = 1;
  bool caching_ = true;
  Statistics statistics_;
  History history_;
};

}  // namespace torch_fl::host
