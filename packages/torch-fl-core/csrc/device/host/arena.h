// Owns: one reserved range of addresses, from which every block of the host runtime comes. "Is this
// ours, and whose?" is then two comparisons and a table look-up, for any pointer, without a lock.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace torch_fl::host {

class Pool;

// A run of whole units that belongs to one pool.
struct Segment {
  Pool* pool = nullptr;
  char* base = nullptr;
  size_t size = 0;       // bytes, a multiple of Arena::kUnit
  size_t slot_size = 0;  // bytes; `size` for a segment that holds a single block
  size_t slots = 0;
  uint64_t slot_reciprocal = 0;
  size_t size_class = 0;
  size_t carved = 0;                    // slots handed out at least once
  size_t live = 0;                      // slots in use
  std::unique_ptr<size_t[]> requested;  // bytes asked for, per slot
  // FLAGOS_HOST_GUARD; under the pool's lock
  bool adopted = false;
  int openings = 0;
  uint64_t life = 0;

  void set_slots(size_t bytes, size_t count) {
    slot_size = bytes;
    slots = count;
    slot_reciprocal = ((uint64_t{1} << 32) + bytes - 1) / bytes;
  }
  // Which slot `data` is in, without a division: exact for offsets within a unit.
  size_t slot_of(const char* data) const {
    return slots == 1
               ? 0
               : static_cast<size_t>((static_cast<uint64_t>(data - base) * slot_reciprocal) >> 32);
  }
};

class Arena {
 public:
  static constexpr size_t kUnit = size_t{2} << 20;

  static Arena& instance();

  bool contains(const void* data) const noexcept {
    return static_cast<const char*>(data) - base_ >= 0 &&
           static_cast<size_t>(static_cast<const char*>(data) - base_) < size_;
  }
  // The segment that holds `data`, or null.
  Segment* segment_of(const void* data) const noexcept {
    if (!contains(data)) return nullptr;
    const auto unit = static_cast<size_t>(static_cast<const char*>(data) - base_) / kUnit;
    return table_[unit].load(std::memory_order_acquire);
  }

  // A readable and writable segment of at least `size` bytes, or null when addresses or memory
  // have run out.
  Segment* take(size_t size, Pool* pool);
  // Every segment of `pool`, whose lock is held, by rising addresses.
  void for_each_segment(const Pool* pool, const std::function<void(const Segment&)>& visit);
  // Returns the memory to the system and the addresses to the arena.
  void give_back(Segment* segment);
  // While a process forks. Whoever holds a pool's lock may take this one, not the other way round.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  Arena();

  char* base_ = nullptr;
  size_t size_ = 0;
  std::unique_ptr<std::atomic<Segment*>[], void (*)(std::atomic<Segment*>*)> table_;
  std::mutex mutex_;
  std::map<size_t, size_t> holes_;  // first unit -> units, neighbours always merged
};

}  // namespace torch_fl::host
