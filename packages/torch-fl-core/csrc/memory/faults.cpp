// Owns: numbering device allocations and failing the ones that a test asked for.
#include "memory/faults.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <string>

#include "device/kernel_scope.h"
#include "device/mebibytes.h"

namespace torch_fl::faults {

std::atomic<bool> g_armed{false};
c10::Allocator* g_wrapped = nullptr;

namespace {

std::mutex g_mutex;
std::optional<Plan> g_plan;  // under g_mutex, as are the counts
Counts g_counts;

// In front of an allocator that serves the target's kernels and everybody else: only what a kernel
// allocates for a flagos device counts.
class FailingAllocator final : public c10::Allocator {
 public:
  explicit FailingAllocator(c10::Allocator* ordinary) : ordinary_(ordinary) {}

  c10::DataPtr allocate(size_t nbytes) override {
    if (C10_UNLIKELY(g_armed.load(std::memory_order_relaxed)) && t_kernel_device >= 0) {
      count(nbytes, t_kernel_device);
    }
    return ordinary_->allocate(nbytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return ordinary_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    ordinary_->copy_data(to, from, bytes);
  }

 private:
  c10::Allocator* ordinary_;
};

// PyTorch's pointer is changed at the first use and never back: a process without injected failures
// pays nothing, and what was allocated through the wrapper may outlive any plan.
void stand_in_the_way() {
  [[maybe_unused]] static const bool kOnce = [] {
    if (g_wrapped != nullptr) {
      c10::SetAllocator(runtime().target_type(), g_wrapped, std::numeric_limits<uint8_t>::max());
    }
    return true;
  }();
}

[[noreturn]] void throw_out_of_memory(size_t nbytes, c10::DeviceIndex device) {
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto [free, total] = runtime().memory_info(device);
  const auto stats = runtime().memory_stats(device);
  const auto allocated = stats.allocated_bytes[kAll].current;
  const auto unused = stats.reserved_bytes[kAll].current - allocated;
  TORCH_CHECK_WITH(OutOfMemoryError, false, "flagos:", static_cast<int>(device),
                   " out of memory. Tried to allocate ", mebibytes(nbytes),
                   ". It has a total capacity of ", mebibytes(total), " of which ", mebibytes(free),
                   " is free; ", mebibytes(static_cast<size_t>(std::max<int64_t>(allocated, 0))),
                   " is allocated by tensors and ",
                   mebibytes(static_cast<size_t>(std::max<int64_t>(unused, 0))),
                   " is reserved but unused. (A test asked for this failure.)");
}

}  // namespace

Counts arm(std::optional<Plan> plan) {
  stand_in_the_way();
  const std::lock_guard lock(g_mutex);
  TORCH_CHECK(!plan || !g_plan,
              "Allocations are already made to fail: end the other context first.");
  const auto before = g_counts;
  if (plan) g_counts = {};
  g_plan = plan;
  g_armed.store(plan.has_value(), std::memory_order_relaxed);
  return before;
}

Counts counts() {
  const std::lock_guard lock(g_mutex);
  return g_counts;
}

void count(size_t nbytes, c10::DeviceIndex device) {
  if (nbytes == 0) return;
  bool recovers = false;
  {
    const std::lock_guard lock(g_mutex);
    if (!g_plan || (g_plan->device && *g_plan->device != device)) return;
    const auto number = ++g_counts.seen;
    if (number < g_plan->first || number - g_plan->first >= g_plan->times) return;
    ++g_counts.failed;
    recovers = g_plan->recovers;
  }
  // As an allocator does before it gives up.
  runtime().empty_cache();
  if (!recovers) throw_out_of_memory(nbytes, device);
}

void wrap_target_allocator() {
  auto* ordinary = runtime().target_allocator();
  const bool caching = dynamic_cast<c10::DeviceAllocator*>(ordinary) != nullptr;
  if (ordinary != nullptr && !caching) g_wrapped = new FailingAllocator(ordinary);
}

}  // namespace torch_fl::faults
