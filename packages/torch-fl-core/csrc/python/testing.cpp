// Owns: the bindings of what tests need and nobody else: allocations that fail on purpose.
#include <pybind11/stl.h>

#include "device/runtime.h"
#include "memory/faults.h"
#include "python/bindings.h"

namespace torch_fl {
namespace {

std::pair<int64_t, int64_t> pair_of(const faults::Counts& counts) {
  return {counts.seen, counts.failed};
}

void start_failing(int64_t first, int64_t times, bool recovers, int64_t device) {
  faults::Plan plan{.first = first, .times = times, .recovers = recovers, .device = std::nullopt};
  if (device >= 0) plan.device = static_cast<DeviceIndex>(device);
  faults::arm(plan);
}

}  // namespace

void bind_testing(pybind11::module_& module) {
  def(module, "start_failing_allocations", start_failing);
  def(module, "stop_failing_allocations", [] { return pair_of(faults::arm(std::nullopt)); });
  def(module, "failing_allocations", [] { return pair_of(faults::counts()); });
}

}  // namespace torch_fl
