// Owns: counting what runs. Device time is what passes between two events on the current stream;
// an operator that calls others is timed as a whole and they are only counted.
#include "routing/observation.h"

#include <c10/util/Logging.h>

#include <cstdio>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "device/breadcrumbs.h"
#include "device/runtime.h"
#include "routing/operator.h"

namespace torch_fl::routing {
namespace {

// Between two events of a device, which are its own.
class Interval {
 public:
  Interval(Count* count, void* start, DeviceIndex device)
      : count_(count), start_(start), device_(device) {}
  Interval(Interval&& other) noexcept
      : count_(other.count_),
        start_(std::exchange(other.start_, nullptr)),
        end_(std::exchange(other.end_, nullptr)),
        device_(other.device_) {}
  Interval& operator=(Interval&&) = delete;
  ~Interval() {
    for (void* event : {start_, end_}) {
      if (event != nullptr) runtime().destroy_event(event, device_);
    }
  }

  void end_at(void* event) { end_ = event; }
  bool is_over() const { return runtime().query_event(end_); }
  // Waits for its end, and counts it.
  void settle() const {
    runtime().synchronize_event(end_);
    const auto ms = runtime().elapsed_ms(start_, end_, device_);
    count_->device_ns += static_cast<int64_t>(ms * 1e6);
  }

 private:
  Count* count_;
  void* start_;
  void* end_ = nullptr;
  DeviceIndex device_;
};

constexpr size_t kPendingLimit = 4096;  // events alive at once, on an asynchronous target

std::mutex g_mutex;
std::vector<Interval> g_pending;
thread_local int t_depth = 0;

void settle_all() {
  std::vector<Interval> pending;
  {
    const std::lock_guard<std::mutex> lock(g_mutex);
    pending.swap(g_pending);
  }
  for (const auto& interval : pending) interval.settle();
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
  const auto line = "[flagos dispatch] " + c10::toString(op.name) + " -> " + label + '\n';
  std::fputs(line.c_str(), stderr);
}

}  // namespace

Operator& bystander(const c10::OperatorHandle& handle, c10::DispatchKey key) {
  static auto* rows = new std::map<std::pair<std::string, c10::DispatchKey>, Operator>;
  const std::lock_guard<std::mutex> lock(g_mutex);
  const auto name = c10::toString(handle.operator_name());
  return rows->try_emplace({name, key}, handle, key, Route::kBoxing).first->second;
}

Observation::Observation(Operator& op, const char* label, DeviceIndex device) {
  if (breadcrumbs::on()) breadcrumbs::drop(op.name, label);
  if (g_logging.load(std::memory_order_relaxed)) log_call(op, label);
  if (!g_counting.load(std::memory_order_relaxed)) return;
  auto& count = count_of(op, label);
  count.calls.fetch_add(1, std::memory_order_relaxed);
  device_ = device < 0 ? runtime().current_device() : device;
  // A graph that is being recorded runs later: there is no time to take.
  const bool outermost = t_depth == 0;
  if (outermost && !runtime().is_capturing(device_, runtime().current_stream(device_))) {
    start_ = record_now(device_);
  }
  count_ = &count;  // from here on there is an end
  ++t_depth;
}

Observation::~Observation() {
  if (count_ == nullptr) return;
  --t_depth;
  if (start_ == nullptr) return;
  try {
    finish();
  } catch (const std::exception& error) {
    // The call has its own error or none; that its time is not known is not worth another one.
    LOG(INFO) << "flagos: the time of a call is not known: " << error.what();
  }
}

void Observation::finish() {
  Interval interval(count_, start_, device_);
  interval.end_at(record_now(device_));
  if (interval.is_over()) return interval.settle();
  bool full = false;
  {
    const std::lock_guard<std::mutex> lock(g_mutex);
    g_pending.push_back(std::move(interval));
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
      const auto name = c10::toString(key.op->name);
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
    result.push_back({.name = c10::toString(op.name),
                      .calls = op.fallback.calls,
                      .bytes_moved = op.fallback.bytes_moved});
  });
  return result;
}

}  // namespace torch_fl::routing
