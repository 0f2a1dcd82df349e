// Owns: reserving addresses and handing out segments of them.
#include "device/host/arena.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace torch_fl::host {
namespace {

constexpr size_t kLargest = size_t{16} << 40;  // addresses only: nothing is committed
constexpr size_t kSmallest = size_t{1} << 30;

}  // namespace

Arena& Arena::instance() {
  // Never destroyed: blocks may be freed by static destructors that run after ours.
  static auto* arena = new Arena;
  return *arena;
}

Arena::Arena() : table_(nullptr, [](std::atomic<Segment*>* table) { std::free(table); }) {
  // Small address spaces (39-bit kernels, `ulimit -v`) get a smaller range.
  for (size_t size = kLargest; size >= kSmallest; size /= 2) {
    void* range =
        mmap(nullptr, size + kUnit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) continue;
    const auto address = reinterpret_cast<uintptr_t>(range);
    base_ = static_cast<char*>(range) + (address + kUnit - 1) / kUnit * kUnit - address;
    size_ = size;
    // calloc: zero pages that cost nothing until a unit is used.
    table_.reset(static_cast<std::atomic<Segment*>*>(
        std::calloc(size / kUnit, sizeof(std::atomic<Segment*>))));
    break;
  }
  TORCH_CHECK(base_ != nullptr && table_ != nullptr, "flagos could not reserve ", kSmallest >> 30,
              " GiB of addresses for its host memory: ", std::strerror(errno),
              ". A limit on virtual memory (`ulimit -v`) must be raised.");
  holes_.emplace(0, size_ / kUnit);
}

Segment* Arena::take(size_t size, Pool* pool) {
  if (size > size_) return nullptr;
  const size_t units = (size + kUnit - 1) / kUnit;
  size_t first = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto hole = holes_.begin();
    while (hole != holes_.end() && hole->second < units) ++hole;
    if (hole == holes_.end()) return nullptr;
    first = hole->first;
    const size_t left = hole->second - units;
    holes_.erase(hole);
    if (left > 0) holes_.emplace(first + units, left);
  }
  auto segment = std::make_unique<Segment>();
  segment->pool = pool;
  segment->base = base_ + first * kUnit;
  segment->size = units * kUnit;
  if (mprotect(segment->base, segment->size, PROT_READ | PROT_WRITE) != 0) {
    give_back(segment.release());
    return nullptr;
  }
  for (size_t unit = first; unit < first + units; ++unit) {
    table_[unit].store(segment.get(), std::memory_order_release);
  }
  return segment.release();
}

void Arena::for_each_segment(const Pool* pool, const std::function<void(const Segment&)>& visit) {
  // Another pool's segment may be on its way here or back. It cannot be deleted while its units
  // are waiting to become a hole.
  const std::lock_guard<std::mutex> lock(mutex_);
  auto hole = holes_.begin();
  for (size_t unit = 0; unit < size_ / kUnit;) {
    if (hole != holes_.end() && hole->first == unit) {
      unit += hole->second;
      ++hole;
      continue;
    }
    const auto* segment = table_[unit].load(std::memory_order_acquire);
    if (segment == nullptr) {
      ++unit;
      continue;
    }
    if (segment->pool == pool) visit(*segment);
    unit = static_cast<size_t>(segment->base - base_) / kUnit + segment->size / kUnit;
  }
}

void Arena::give_back(Segment* segment) {
  const std::unique_ptr<Segment> owned(segment);
  size_t first = static_cast<size_t>(segment->base - base_) / kUnit;
  size_t units = segment->size / kUnit;
  for (size_t unit = first; unit < first + units; ++unit) {
    table_[unit].store(nullptr, std::memory_order_release);
  }
  // A fresh mapping in place drops the pages and the protection in one step.
  mmap(segment->base, segment->size, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  const std::lock_guard<std::mutex> lock(mutex_);
  auto next = holes_.lower_bound(first);
  if (next != holes_.end() && next->first == first + units) {
    units += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == first) {
      previous->second += units;
      return;
    }
  }
  holes_.emplace(first, units);
}

}  // namespace torch_fl::host
