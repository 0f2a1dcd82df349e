// Owns: counting what runs. Device time is what passes between two events on the current stream;
// an operator that calls others is timed as a whole and they are only counted.
#include "routing/observation.h"

#include <map>
#include <mutex>

#include "device/runtime.h"
#include "routing/operator.h"

namespace torch_fl::routing {
namespace {

struct Interval {
  Operator* op;
  void* start;
  void* end;
  DeviceIndex device;
};

constexpr size_t kPendingLimit = 4096;  // events alive at once, on an asynchronous target

std::mutex g_mutex;
std::vector<Interval> g_pending;
thread_local int t_depth = 0;

void settle(const Interval& interval) {
  auto& current = runtime();
  current.synchronize_event(interval.end);
  interval.op->device_ns +=
      static_cast<int64_t>(current.elapsed_ms(interval.start, interval.end, interval.device) * 1e6);
  current.destroy_event(interval.start, interval.device);
  current.destroy_event(interval.end, interval.device);
}

void settle_all() {
  std::vector<Interval> pending;
  {
    const std::lock_guard<std::mutex> lock(g_mutex);
    pending.swap(g_pending);
  }
  for (const auto& interval : pending) settle(interval);
}

void* record_now(DeviceIndex device) {
  void* event = nullptr;
  runtime().record(&event, device, runtime().current_stream(device),
                   c10::EventFlag::BACKEND_DEFAULT);
  return event;
}

void observed_boxed(Operator& op, const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Observation observation(op);
  op.kernel(op, handle, stack);
}

void set_observed(bool on) {
  for (auto& op : operators()) {
    if (op.set_observed != nullptr) {
      op.set_observed(on);
    } else {
      op.entry.store(on ? &observed_boxed : op.kernel, std::memory_order_relaxed);
    }
  }
}

}  // namespace

Observation::Observation(Operator& op) : operator_(op) {
  op.calls.fetch_add(1, std::memory_order_relaxed);
  if (t_depth++ == 0) start_ = record_now(runtime().current_device());
}

Observation::~Observation() {
  --t_depth;
  if (start_ == nullptr) return;
  const auto device = runtime().current_device();
  const Interval interval{&operator_, start_, record_now(device), device};
  if (runtime().query_event(interval.end)) {
    settle(interval);
    return;
  }
  bool full = false;
  {
    const std::lock_guard<std::mutex> lock(g_mutex);
    g_pending.push_back(interval);
    full = g_pending.size() >= kPendingLimit;
  }
  if (full) settle_all();
}

void start_observing() {
  for (auto& op : operators()) {
    op.calls = 0;
    op.device_ns = 0;
  }
  set_observed(true);
}

void stop_observing() { set_observed(false); }

std::vector<Observed> observations() {
  settle_all();
  std::map<std::pair<std::string, std::string>, Observed> rows;  // one operator, several keys
  for (auto& op : operators()) {
    const uint64_t calls = op.calls;
    if (calls == 0) continue;
    const auto name = c10::toString(op.handle.operator_name());
    auto& row = rows[{name, op.route}];
    row.name = name;
    row.route = op.route;
    row.calls += calls;
    row.device_ns += op.device_ns;
  }
  std::vector<Observed> result;
  for (auto& [key, row] : rows) result.push_back(std::move(row));
  return result;
}

}  // namespace torch_fl::routing
