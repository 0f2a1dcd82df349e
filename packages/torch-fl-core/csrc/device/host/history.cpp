// Owns: recording memory events and the stacks of live blocks.
#include "device/host/history.h"

#include <algorithm>
#include <chrono>
#include <iterator>

namespace torch_fl::host {
namespace {

std::atomic<Stacks> g_stacks{Stacks::kNone};
std::atomic<Context (*)()> g_gather{nullptr};

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Context gather(Stacks least) {
  if (g_stacks.load(std::memory_order_acquire) < least) return nullptr;
  auto* function = g_gather.load(std::memory_order_acquire);
  return function == nullptr ? nullptr : function();
}

void gather_with(Stacks stacks, Context (*function)()) {
  g_gather.store(function, std::memory_order_release);
  g_stacks.store(stacks, std::memory_order_release);
}

void History::start(const HistoryOptions& options, bool clear) {
  auto kept = clear ? std::vector<MemoryEvent>{} : events();
  options_ = options;
  options_.max_entries = std::max<size_t>(options.max_entries, 1);
  const size_t excess = kept.size() - std::min(kept.size(), options_.max_entries);
  ring_.assign(std::next(kept.begin(), static_cast<std::ptrdiff_t>(excess)), kept.end());
  oldest_ = 0;
  on_ = true;
}

void History::stop() {
  on_ = false;
  ring_.clear();
  ring_.shrink_to_fit();
  oldest_ = 0;
  live_.clear();
}

void History::note(Action action, const void* address, size_t size) {
  if (!on_ || !options_.events || ((options_.skipped >> static_cast<unsigned>(action)) & 1) != 0) {
    return;
  }
  MemoryEvent event{.action = action,
                    .address = reinterpret_cast<uintptr_t>(address),
                    .size = size,
                    .time_us = now_us(),
                    .context = options_.stacks >= Stacks::kAllocations ? cause : nullptr};
  if (ring_.size() < options_.max_entries) {
    ring_.push_back(std::move(event));
    return;
  }
  ring_[oldest_] = std::move(event);
  oldest_ = (oldest_ + 1) % options_.max_entries;
}

void History::allocated(const void* block, size_t size) {
  note(Action::kAlloc, block, size);
  if (cause != nullptr) live_[block] = cause;
}

void History::freed(const void* block, size_t size) {
  // No other stream can still be at it: what was asked for is done at once.
  note(Action::kFreeRequested, block, size);
  note(Action::kFreeCompleted, block, size);
  live_.erase(block);
}

std::vector<MemoryEvent> History::events() const {
  const auto middle = std::next(ring_.begin(), static_cast<std::ptrdiff_t>(oldest_));
  std::vector<MemoryEvent> result(middle, ring_.end());
  result.insert(result.end(), ring_.begin(), middle);
  return result;
}

Context History::context_of(const void* block) const {
  const auto found = live_.find(block);
  return found == live_.end() ? nullptr : found->second;
}

}  // namespace torch_fl::host
