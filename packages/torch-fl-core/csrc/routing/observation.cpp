// Owns: counting what runs. Device time is what passes between two events on the current stream;
// an operator that calls others is timed as a whole and they are only counted.
#include "routing/observation.h"

#include <cstdio>
#include <map>
#include <mutex>
#include <unordered_map>

#include "device/breadcrumbs.h"
#include "device/runtime.h"
#include "routing/operator.h"

namespace torch_fl::routing {
namespace {

struct Interval {
  Count* count;
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
  interval.count->device_ns +=
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

std::atomic<bool> g_counting{false};
std::atomic<bool> g_logging{false};

// Counts by operator and label, made at the first counted call.
struct Row {
  Operator* op;
  const char* label;
  bool operator==(const Row&) const = default;
};
struct RowHash {
  size_t operator()(const Row& row) const {
    return std::hash<const void*>()(row.op) ^ (std::hash<const void*>()(row.label) << 1U);
  }
};

std::unordered_map<Row, Count, RowHash>& counts() {
  static auto* all = new std::unordered_map<Row, Count, RowHash>;  // its nodes never move
  return *all;
}

// Operators say what they run while anybody wants to hear it.
void watch() { set_watched(g_counting || g_logging || breadcrumbs::on()); }

Count& count_of(Operator& op, const char* label) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  return counts()[{&op, label}];
}

void log_call(const Operator& op, const char* label) {
  const auto line =
      "[flagos dispatch] " + c10::toString(op.handle.operator_name()) + " -> " + label + '\n';
  std::fputs(line.c_str(), stderr);
}

}  // namespace

Operator& bystander(const c10::OperatorHandle& handle, c10::DispatchKey key) {
  static auto* rows = new std::map<std::pair<std::string, c10::DispatchKey>, Operator>;
  const std::lock_guard<std::mutex> lock(g_mutex);
  const auto name = c10::toString(handle.operator_name());
  return rows->try_emplace({name, key}, handle, key, Route::kBoxing).first->second;
}

Observation::Observation(Operator& op, const char* label) {
  if (breadcrumbs::on()) breadcrumbs::drop(op.handle.operator_name(), label);
  if (g_logging.load(std::memory_order_relaxed)) log_call(op, label);
  if (!g_counting.load(std::memory_order_relaxed)) return;
  count_ = &count_of(op, label);
  count_->calls.fetch_add(1, std::memory_order_relaxed);
  if (t_depth++ == 0) start_ = record_now(runtime().current_device());
}

Observation::~Observation() {
  if (count_ == nullptr) return;
  --t_depth;
  if (start_ == nullptr) return;
  const auto device = runtime().current_device();
  const Interval interval{count_, start_, record_now(device), device};
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

void start_counting() {
  g_counting = true;
  watch();
}

void stop_counting() {
  g_counting = false;
  watch();
}

void set_logging(bool on) {
  g_logging = on;
  watch();
}

void set_breadcrumbs(bool on) {
  breadcrumbs::set(on);
  watch();
}

std::vector<Observed> observations() {
  settle_all();
  std::map<std::pair<std::string, std::string>, Observed> rows;  // one operator, several keys
  {
    const std::lock_guard<std::mutex> lock(g_mutex);
    for (const auto& [key, count] : counts()) {
      const auto name = c10::toString(key.op->handle.operator_name());
      auto& row = rows[{name, key.label}];
      row.name = name;
      row.route = key.label;
      row.calls += count.calls;
      row.device_ns += count.device_ns;
    }
  }
  std::vector<Observed> result;
  result.reserve(rows.size());
  for (auto& [key, row] : rows) result.push_back(std::move(row));
  return result;
}

std::vector<Fallback> fallbacks() {
  std::vector<Fallback> result;
  for_each_operator([&](const Operator& op) {
    if (op.fallback.calls == 0) return;
    result.push_back({.name = c10::toString(op.handle.operator_name()),
                      .calls = op.fallback.calls,
                      .bytes_moved = op.fallback.bytes_moved});
  });
  return result;
}

}  // namespace torch_fl::routing
