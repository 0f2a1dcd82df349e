// Owns: one device's memory. Small blocks are slots of 2 MiB segments, one size class each; a large
// block is a segment of its own. Both are kept when freed and given back by empty_cache().
#include "device/host/pool.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "device/mebibytes.h"

namespace torch_fl::host {
namespace {

constexpr size_t kAlignment = 64;          // what PyTorch's CPU kernels assume
constexpr size_t kLargestSmall = 1 << 20;  // bytes

// Sizes of classes: every 64 bytes up to 512, then four per doubling.
size_t class_of(size_t nbytes) {
  if (nbytes <= 512) return (nbytes + kAlignment - 1) / kAlignment - 1;
  const auto power = static_cast<size_t>(std::bit_width(nbytes - 1)) - 1;  // 2^power < nbytes
  const size_t step = size_t{1} << (power - 2);
  const size_t quarter = (nbytes - (size_t{1} << power) + step - 1) / step;  // 1..4
  return 8 + (power - 9) * 4 + quarter - 1;
}

size_t class_size(size_t size_class) {
  if (size_class < 8) return (size_class + 1) * kAlignment;
  const size_t power = 9 + (size_class - 8) / 4;
  const size_t quarter = (size_class - 8) % 4 + 1;
  return (size_t{1} << power) + quarter * (size_t{1} << (power - 2));
}

}  // namespace

Pool::Pool(std::string name, size_t limit, bool guarded)
    : name_(std::move(name)), limit_(limit), allowed_(limit), guarded_(guarded) {}

void* Pool::allocate(size_t nbytes) {
  if (C10_UNLIKELY(g_watched.load(std::memory_order_relaxed))) {
    auto cause = gather(Stacks::kLiveBlocks);
    return allocate(nbytes, &cause);
  }
  return allocate(nbytes, nullptr);
}

void Pool::free(Segment* segment, void* data) noexcept {
  if (C10_UNLIKELY(g_watched.load(std::memory_order_relaxed))) {
    auto cause = gather(Stacks::kAll);
    return free(segment, data, &cause);
  }
  free(segment, data, nullptr);
}

C10_ALWAYS_INLINE void* Pool::allocate(size_t nbytes, Context* cause) {
  const auto refuse = [&] {
    if (cause != nullptr) history_.cause = *cause;
    throw_out_of_memory(nbytes);
  };
  // Before any rounding, which could overflow.
  if (C10_UNLIKELY(nbytes > allowed_.load(std::memory_order_relaxed))) {
    const std::lock_guard lock(lock_);
    refuse();
  }
  const bool small = !guarded_ && nbytes <= kLargestSmall;
  const size_t size_class = small ? class_of(nbytes) : 0;
  const size_t rounded = small ? class_size(size_class) : round_large(nbytes);
  size_t allocated = 0;
  size_t reserved = 0;
  Block block;
  {
    const std::lock_guard lock(lock_);
    const auto take = [&] { return small ? take_small(size_class) : take_large(nbytes); };
    if (cause != nullptr) history_.cause = *cause;
    block = take();
    if (C10_UNLIKELY(block.data == nullptr)) {
      ++statistics_.retries;
      release_unused();
      block = take();
      if (block.data == nullptr) refuse();
    }
    ++block.segment->live;
    block.segment->requested[block.segment->slot_of(block.data)] = nbytes;
    statistics_.count(static_cast<int64_t>(rounded), static_cast<int64_t>(nbytes), small);
    if (cause != nullptr) {
      history_.allocated(block.data, nbytes);
      history_.cause.reset();
    }
    allocated = static_cast<size_t>(statistics_.allocated());
    reserved = reserved_;
  }
  if (observer_ != nullptr) {
    observer_(block.data, static_cast<int64_t>(rounded), allocated, reserved, observed_device_);
  }
  return block.data;
}

C10_ALWAYS_INLINE void Pool::free(Segment* segment, void* data, Context* cause) noexcept {
  size_t allocated = 0;
  size_t reserved = 0;
  size_t rounded = 0;
  {
    const std::lock_guard lock(lock_);
    auto* slot = static_cast<char*>(data);
    const bool small = segment->slot_size != segment->size;
    const size_t requested = segment->requested[segment->slot_of(slot)];
    rounded = small ? segment->slot_size : round_large(requested);
    --segment->live;
    statistics_.discount(static_cast<int64_t>(rounded), static_cast<int64_t>(requested), small);
    if (small) {
      free_slots_[segment->size_class].push_back(slot);
    } else {
      if (segment->adopted) {
        mprotect(segment->base, segment->size, PROT_READ | PROT_WRITE);
        segment->adopted = false;
      }
      segment->openings = 0;
      ++segment->life;
      free_large_.emplace(segment->size, segment);
    }
    if (cause != nullptr) {
      history_.cause = *cause;
      history_.freed(data, requested);
      if (!caching_) release_unused();
      history_.cause.reset();
    }
    allocated = static_cast<size_t>(statistics_.allocated());
    reserved = reserved_;
  }
  if (observer_ != nullptr) {
    observer_(data, -static_cast<int64_t>(rounded), allocated, reserved, observed_device_);
  }
}

Pool::Block Pool::take_small(size_t size_class) {
  auto& slots = free_slots_[size_class];
  auto& arena = Arena::instance();
  if (C10_LIKELY(!slots.empty())) {
    char* slot = slots.back();
    slots.pop_back();
    return {arena.segment_of(slot), slot};
  }
  const size_t slot_size = class_size(size_class);
  if (reserved_ + slot_size > allowed_.load(std::memory_order_relaxed)) return {};
  auto*& segment = carving_[size_class];
  if (segment == nullptr) {
    segment = arena.take(Arena::kUnit, this);
    if (segment == nullptr) return {};
    segment->set_slots(slot_size, Arena::kUnit / slot_size);
    segment->size_class = size_class;
    segment->requested = std::make_unique<size_t[]>(segment->slots);
    small_segments_.push_back(segment);
    statistics_.make_segment(/*small=*/true);
    history_.note(Action::kSegmentAlloc, segment->base, segment->size);
  }
  const Block block{segment, segment->base + segment->carved++ * slot_size};
  reserve(static_cast<int64_t>(slot_size), /*small=*/true);
  if (segment->carved == segment->slots) segment = nullptr;
  return block;
}

Pool::Block Pool::take_large(size_t nbytes) {
  // A cached segment serves what needs at least three quarters of it; larger ones would hide
  // memory that the next large request needs.
  const auto cached = free_large_.lower_bound(nbytes);
  if (cached != free_large_.end() &&
      cached->first - cached->first / 4 <= std::max(nbytes, Arena::kUnit)) {
    auto* segment = cached->second;
    free_large_.erase(cached);
    return {segment, segment->base};
  }
  const size_t allowed = allowed_.load(std::memory_order_relaxed);
  if (nbytes > allowed || reserved_ > allowed - nbytes) return {};
  auto* segment = Arena::instance().take(nbytes, this);
  if (segment == nullptr) return {};
  segment->set_slots(segment->size, 1);
  segment->carved = 1;
  segment->requested = std::make_unique<size_t[]>(1);
  // Pages past the request are never touched: only what was asked for counts against the limit.
  segment->requested[0] = nbytes;
  statistics_.make_segment(/*small=*/false);
  history_.note(Action::kSegmentAlloc, segment->base, segment->size);
  reserve(static_cast<int64_t>(segment->size), /*small=*/false);
  return {segment, segment->base};
}

void Pool::release_unused() {
  auto& arena = Arena::instance();
  for (const auto& [size, segment] : free_large_) {
    reserve(-static_cast<int64_t>(size), /*small=*/false);
    statistics_.release_segment(/*small=*/false);
    history_.note(Action::kSegmentFree, segment->base, segment->size);
    arena.give_back(segment);
  }
  free_large_.clear();

  const auto idle = [](const Segment* segment) { return segment->live == 0; };
  for (auto& slots : free_slots_) {
    std::erase_if(slots, [&](char* slot) { return idle(arena.segment_of(slot)); });
  }
  for (auto*& segment : carving_) {
    if (segment != nullptr && idle(segment)) segment = nullptr;
  }
  std::erase_if(small_segments_, [&](Segment* segment) {
    if (!idle(segment)) return false;
    reserve(-static_cast<int64_t>(segment->carved * segment->slot_size), /*small=*/true);
    statistics_.release_segment(/*small=*/true);
    history_.note(Action::kSegmentFree, segment->base, segment->size);
    arena.give_back(segment);
    return true;
  });
}

void Pool::reserve(int64_t bytes, bool small) {
  reserved_ = static_cast<size_t>(static_cast<int64_t>(reserved_) + bytes);
  statistics_.reserve(bytes, small);
}

void Pool::throw_out_of_memory(size_t nbytes) {
  ++statistics_.out_of_memory;
  const auto allocated = static_cast<size_t>(statistics_.allocated());
  const size_t free = limit_ > reserved_ ? limit_ - reserved_ : 0;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the viewer's format has the free bytes there
  history_.note(Action::kOutOfMemory, reinterpret_cast<void*>(free), nbytes);
  history_.cause.reset();
  const size_t allowed = allowed_.load(std::memory_order_relaxed);
  const auto share = allowed == limit_ ? std::string{}
                                       : "; this process may reserve " + mebibytes(allowed) +
                                             " of it (set_per_process_memory_fraction)";
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, name_, " out of memory. Tried to allocate ", mebibytes(nbytes),
      ". It has a total capacity of ", mebibytes(limit_), " of which ", mebibytes(free), " is free",
      share, "; ", mebibytes(allocated), " is allocated by tensors and ",
      mebibytes(reserved_ > allocated ? reserved_ - allocated : 0), " is reserved but unused.");
}

void Pool::empty_cache() {
  const auto cause = gather(Stacks::kAll);
  const std::lock_guard lock(lock_);
  history_.cause = cause;
  release_unused();
  history_.cause.reset();
}

void Pool::set_fraction(double fraction) {
  const std::lock_guard lock(lock_);
  fraction_ = fraction;
  // (A double has not all integers: the whole is the whole.)
  allowed_ = fraction == 1 ? limit_ : static_cast<size_t>(static_cast<double>(limit_) * fraction);
}

double Pool::fraction() {
  const std::lock_guard lock(lock_);
  return fraction_;
}

void Pool::start_history(const HistoryOptions& options, bool clear) {
  const std::lock_guard lock(lock_);
  history_.start(options, clear);
}

void Pool::stop_history() {
  const std::lock_guard lock(lock_);
  history_.stop();
}

void Pool::set_caching(bool on) {
  const std::lock_guard lock(lock_);
  caching_ = on;
  if (!on) release_unused();
}

DeviceStats Pool::stats() {
  const std::lock_guard lock(lock_);
  return statistics_.device_stats();
}

size_t Pool::reserved() {
  const std::lock_guard lock(lock_);
  return reserved_;
}

void Pool::reset_peak_stats() {
  const std::lock_guard lock(lock_);
  statistics_.reset_peaks();
}

void Pool::reset_accumulated_stats() {
  const std::lock_guard lock(lock_);
  statistics_.reset_accumulated();
}

namespace {

void protect(const Segment& segment, int protection) {
  TORCH_CHECK(mprotect(segment.base, segment.size, protection) == 0,
              "FLAGOS_HOST_GUARD: mprotect failed: ", std::strerror(errno),
              ". With very many live tensors the system's limit on mappings (vm.max_map_count) "
              "must be raised, or the guard switched off.");
}

}  // namespace

void Pool::adopt(Segment& segment) {
  const std::lock_guard lock(lock_);
  if (segment.adopted) return;
  segment.adopted = true;
  if (segment.openings == 0) protect(segment, PROT_NONE);
}

uint64_t Pool::open(Segment& segment) {
  const std::lock_guard lock(lock_);
  if (segment.openings++ == 0 && segment.adopted) protect(segment, PROT_READ | PROT_WRITE);
  return segment.life;
}

void Pool::close(Segment& segment, uint64_t life) {
  const std::lock_guard lock(lock_);
  if (segment.life == life && --segment.openings == 0 && segment.adopted) {
    protect(segment, PROT_NONE);
  }
}

}  // namespace torch_fl::host
