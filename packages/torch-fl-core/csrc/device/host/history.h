// Owns: what happens to a pool's memory, recorded for PyTorch's memory viewer while somebody asks
// for it: a ring of events, and the stack that each live block was allocated with.
#pragma once
#include <c10/core/Allocator.h>

#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace torch_fl::host {

// A stack, not yet turned into text.
using Context = std::shared_ptr<c10::GatheredContext>;

enum class Action : uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kOutOfMemory,
  kSnapshot,
};

struct MemoryEvent {
  Action action;
  uintptr_t address;  // kOutOfMemory: the bytes that were free
  size_t size;        // bytes
  int64_t time_us;    // since 1970
  Context context;
};

// Whose stacks are kept; each includes those before it.
enum class Stacks : uint8_t { kNone, kLiveBlocks, kAllocations, kAll };

struct HistoryOptions {
  bool events = true;  // false: stacks of live blocks alone
  size_t max_entries = 0;
  Stacks stacks = Stacks::kAll;
  uint32_t skipped = 0;  // one bit for each Action that is not recorded
  Context (*gather)() = nullptr;
};

// Whether a call has more to do than to allocate or free: to be recorded, or to bypass the cache.
// All that the fast path looks at.
inline std::atomic<bool> g_watched{false};

// The caller's stack, if such are kept. It may need Python's global lock, so no pool's lock may be
// held: another thread can hold the one and wait for the other.
Context gather(Stacks least);
// What `gather` does from now on.
void gather_with(Stacks stacks, Context (*function)());

// Everything below is under the pool's lock.
class History {
 public:
  void start(const HistoryOptions& options, bool clear);
  void stop();  // forgets everything
  bool on() const { return on_; }

  void note(Action action, const void* address, size_t size);
  void allocated(const void* block, size_t size);
  void freed(const void* block, size_t size);

  std::vector<MemoryEvent> events() const;  // in order
  Context context_of(const void* block) const;

  // The stack of the call that is being served.
  Context cause;

 private:
  bool on_ = false;
  HistoryOptions options_;
  std::vector<MemoryEvent> ring_;
  size_t oldest_ = 0;  // where the next event goes once the ring is full
  std::unordered_map<const void*, Context> live_;
};

}  // namespace torch_fl::host
