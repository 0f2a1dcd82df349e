// Owns: one device's memory. Small blocks are slots of 2 MiB segments, one size class each; a large
// block is a segment of its own. Both are kept when freed and given back by empty_cache().
#include "device/host/pool.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace torch_fl::host {
namespace {

constexpr size_t kAlignment = 64;           // what PyTorch's CPU kernels assume
constexpr size_t kLargestSmall = 1 << 20;   // bytes
constexpr size_t kLargeRounding = 512;      // as CUDA rounds

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

std::string mebibytes(size_t bytes) {
  const auto hundredths = bytes * 100 / (size_t{1} << 20);
  auto fraction = std::to_string(hundredths % 100);
  if (fraction.size() < 2) fraction.insert(0, "0");
  return std::to_string(hundredths / 100) + "." + fraction + " MiB";
}

using c10::CachingAllocator::Stat;

constexpr auto kAggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
constexpr auto kSmallPool = static_cast<size_t>(c10::CachingAllocator::StatType::SMALL_POOL);
constexpr auto kLargePool = static_cast<size_t>(c10::CachingAllocator::StatType::LARGE_POOL);

void change(c10::CachingAllocator::StatArray& stat, int64_t amount, bool small) {
  for (const size_t type : {kAggregate, small ? kSmallPool : kLargePool}) {
    if (amount >= 0) {
      stat[type].increase(static_cast<size_t>(amount));
    } else {
      stat[type].decrease(static_cast<size_t>(-amount));
    }
  }
}

}  // namespace

Pool::Pool(std::string name, size_t limit, bool guarded)
    : name_(std::move(name)), limit_(limit), guarded_(guarded) {}

void* Pool::allocate(size_t nbytes) {
  const bool small = !guarded_ && nbytes <= kLargestSmall;
  const size_t size_class = small ? class_of(nbytes) : 0;
  const size_t rounded =
      small ? class_size(size_class)
            : (nbytes + kLargeRounding - 1) / kLargeRounding * kLargeRounding;
  size_t allocated = 0;
  size_t reserved = 0;
  Block block;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto take = [&] { return small ? take_small(size_class) : take_large(nbytes); };
    block = take();
    if (C10_UNLIKELY(block.data == nullptr)) {
      ++stats_.num_alloc_retries;
      release_unused();
      block = take();
      if (block.data == nullptr) throw_out_of_memory(nbytes);
    }
    auto& segment = *block.segment;
    ++segment.live;
    segment.requested[static_cast<size_t>(block.data - segment.base) / segment.slot_size] = nbytes;
    count(rounded, nbytes, small);
    allocated = static_cast<size_t>(stats_.allocated_bytes[kAggregate].current);
    reserved = reserved_;
  }
  if (observer_ != nullptr) {
    observer_(block.data, static_cast<int64_t>(rounded), allocated, reserved, observed_device_);
  }
  return block.data;
}

void Pool::free(Segment* segment, void* data) noexcept {
  size_t allocated = 0;
  size_t reserved = 0;
  size_t rounded = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto* slot = static_cast<char*>(data);
    const bool small = segment->slot_size != segment->size;
    const size_t requested =
        segment->requested[static_cast<size_t>(slot - segment->base) / segment->slot_size];
    rounded = small ? segment->slot_size
                    : (requested + kLargeRounding - 1) / kLargeRounding * kLargeRounding;
    --segment->live;
    discount(rounded, requested, small);
    if (small) {
      free_slots_[class_of(segment->slot_size)].push_back(slot);
    } else {
      if (segment->adopted) {
        mprotect(segment->base, segment->size, PROT_READ | PROT_WRITE);
        segment->adopted = false;
      }
      segment->openings = 0;
      ++segment->life;
      free_large_.emplace(segment->size, segment);
    }
    allocated = static_cast<size_t>(stats_.allocated_bytes[kAggregate].current);
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
  if (reserved_ + slot_size > limit_) return {};
  auto*& segment = carving_[size_class];
  if (segment == nullptr) {
    segment = arena.take(Arena::kUnit, this);
    if (segment == nullptr) return {};
    segment->slot_size = slot_size;
    segment->slots = Arena::kUnit / slot_size;
    segment->requested = std::make_unique<size_t[]>(segment->slots);
    small_segments_.push_back(segment);
    change(stats_.segment, 1, /*small=*/true);
    ++stats_.num_device_alloc;
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
  if (nbytes > limit_ || reserved_ > limit_ - nbytes) return {};
  auto* segment = Arena::instance().take(nbytes, this);
  if (segment == nullptr) return {};
  segment->slot_size = segment->size;
  segment->slots = segment->carved = 1;
  segment->requested = std::make_unique<size_t[]>(1);
  // Pages past the request are never touched: only what was asked for counts against the limit.
  segment->requested[0] = nbytes;
  change(stats_.segment, 1, /*small=*/false);
  ++stats_.num_device_alloc;
  reserve(static_cast<int64_t>(segment->size), /*small=*/false);
  return {segment, segment->base};
}

void Pool::release_unused() {
  auto& arena = Arena::instance();
  for (const auto& [size, segment] : free_large_) {
    reserve(-static_cast<int64_t>(size), /*small=*/false);
    change(stats_.segment, -1, /*small=*/false);
    ++stats_.num_device_free;
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
    change(stats_.segment, -1, /*small=*/true);
    ++stats_.num_device_free;
    arena.give_back(segment);
    return true;
  });
}

void Pool::reserve(int64_t bytes, bool small) {
  reserved_ = static_cast<size_t>(static_cast<int64_t>(reserved_) + bytes);
  change(stats_.reserved_bytes, bytes, small);
}

void Pool::count(size_t rounded, size_t requested, bool small) {
  change(stats_.allocation, 1, small);
  change(stats_.active, 1, small);
  change(stats_.allocated_bytes, static_cast<int64_t>(rounded), small);
  change(stats_.active_bytes, static_cast<int64_t>(rounded), small);
  change(stats_.requested_bytes, static_cast<int64_t>(requested), small);
}

void Pool::discount(size_t rounded, size_t requested, bool small) {
  change(stats_.allocation, -1, small);
  change(stats_.active, -1, small);
  change(stats_.allocated_bytes, -static_cast<int64_t>(rounded), small);
  change(stats_.active_bytes, -static_cast<int64_t>(rounded), small);
  change(stats_.requested_bytes, -static_cast<int64_t>(requested), small);
}

void Pool::throw_out_of_memory(size_t nbytes) {
  ++stats_.num_ooms;
  const auto allocated = static_cast<size_t>(stats_.allocated_bytes[kAggregate].current);
  const size_t free = limit_ > reserved_ ? limit_ - reserved_ : 0;
  TORCH_CHECK_WITH(OutOfMemoryError, false, name_, " out of memory. Tried to allocate ",
                   mebibytes(nbytes), ". It has a total capacity of ", mebibytes(limit_),
                   " of which ", mebibytes(free), " is free; ", mebibytes(allocated),
                   " is allocated by tensors and ",
                   mebibytes(reserved_ > allocated ? reserved_ - allocated : 0),
                   " is reserved but unused.");
}

void Pool::empty_cache() {
  const std::lock_guard<std::mutex> lock(mutex_);
  release_unused();
}

DeviceStats Pool::stats() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

size_t Pool::reserved() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return reserved_;
}

namespace {

template <class F>
void for_each_stat(DeviceStats& stats, F&& apply) {
  for (auto* array : {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split,
                      &stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
                      &stats.inactive_split_bytes, &stats.requested_bytes}) {
    for (Stat& stat : *array) apply(stat);
  }
  apply(stats.oversize_allocations);
  apply(stats.oversize_segments);
}

}  // namespace

void Pool::reset_peak_stats() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for_each_stat(stats_, [](Stat& stat) { stat.reset_peak(); });
}

void Pool::reset_accumulated_stats() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for_each_stat(stats_, [](Stat& stat) { stat.reset_accumulated(); });
  stats_.num_alloc_retries = 0;
  stats_.num_ooms = 0;
  stats_.num_device_alloc = 0;
  stats_.num_device_free = 0;
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
  const std::lock_guard<std::mutex> lock(mutex_);
  if (segment.adopted) return;
  segment.adopted = true;
  if (segment.openings == 0) protect(segment, PROT_NONE);
}

uint64_t Pool::open(Segment& segment) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (segment.openings++ == 0 && segment.adopted) protect(segment, PROT_READ | PROT_WRITE);
  return segment.life;
}

void Pool::close(Segment& segment, uint64_t life) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (segment.life == life && --segment.openings == 0 && segment.adopted) {
    protect(segment, PROT_NONE);
  }
}

}  // namespace torch_fl::host
