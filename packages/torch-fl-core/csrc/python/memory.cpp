// Owns: bindings of device memory: what users ask of it and do to it beyond making tensors.
#include <ATen/core/CachingHostAllocator.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <mutex>
#include <unordered_map>

#include "device/host/memory_tools.h"
#include "device/refusal.h"
#include "device/runtime.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace torch_fl {
namespace {

void require_host() {
  TORCH_CHECK_NOT_IMPLEMENTED(host::in_use(),
                              "Only the host backend's memory is flagos' own: ask the target.");
}

// -- history

constexpr const char* kActions[] = {"alloc",         "free_requested", "free_completed",
                                    "segment_alloc", "segment_free",   "oom",
                                    "snapshot"};

host::Context python_stack() { return torch::CapturedTraceback::gather(true, true, false); }
host::Context whole_stack() { return torch::CapturedTraceback::gather(true, true, true); }

void start_history(bool events, int stacks, bool cpp, size_t max_entries, bool clear,
                   const std::vector<std::string>& skipped) {
  require_host();
  uint32_t mask = 0;
  for (uint32_t action = 0; action < std::size(kActions); ++action) {
    if (std::find(skipped.begin(), skipped.end(), kActions[action]) != skipped.end()) {
      mask |= uint32_t{1} << action;
    }
  }
  host::start_history({.events = events,
                       .max_entries = max_entries,
                       .stacks = static_cast<host::Stacks>(stacks),
                       .skipped = mask,
                       .gather = cpp ? &whole_stack : &python_stack},
                      clear);
}

void stop_history() {
  require_host();
  host::stop_history();
}

// Turns stacks into lists of frames, all at once: many share frames.
class Frames {
 public:
  // `holder["frames"]` will be the frames of `context`.
  void add(const host::Context& context, const py::dict& holder) {
    holder["frames"] = py::list();
    auto* stack = dynamic_cast<torch::CapturedTraceback*>(context.get());
    if (stack == nullptr) return;
    const auto [place, is_new] = index_.emplace(stack, stacks_.size());
    if (is_new) stacks_.push_back(stack);
    wanted_.emplace_back(place->second, holder);
  }
  void write() {
    const auto symbols = torch::symbolize(stacks_);
    std::vector<py::dict> frames;
    for (const auto& frame : symbols.all_frames) {
      py::dict entry;
      entry["filename"] = frame.filename;
      entry["line"] = frame.lineno;
      entry["name"] = frame.funcname;
      frames.push_back(entry);
    }
    std::vector<py::list> lists;
    for (const auto& stack : symbols.tracebacks) {
      auto& list = lists.emplace_back();
      for (const auto frame : stack) list.append(frames.at(frame));
    }
    for (const auto& [stack, holder] : wanted_) holder["frames"] = lists.at(stack);
  }

 private:
  std::unordered_map<torch::CapturedTraceback*, size_t> index_;
  std::vector<torch::CapturedTraceback*> stacks_;
  std::vector<std::pair<size_t, py::dict>> wanted_;
};

constexpr int kStream = 0;  // a host block serves all streams

py::dict to_dict(const host::SegmentInfo& segment, Frames& frames) {
  size_t in_use = 0;
  size_t requested = 0;
  py::list blocks;
  for (const auto& block : segment.blocks) {
    py::dict entry;
    entry["address"] = block.address;
    entry["size"] = block.size;
    entry["requested_size"] = block.requested;
    entry["state"] = block.in_use ? "active_allocated" : "inactive";
    frames.add(block.context, entry);
    blocks.append(entry);
    in_use += block.in_use ? block.size : 0;
    requested += block.requested;
  }
  py::dict result;
  result["device"] = static_cast<int>(segment.device);
  result["address"] = segment.address;
  result["total_size"] = segment.size;
  result["allocated_size"] = in_use;
  result["active_size"] = in_use;
  result["requested_size"] = requested;
  result["stream"] = kStream;
  result["segment_type"] = segment.large ? "large" : "small";
  result["segment_pool_id"] = py::make_tuple(0, 0);
  result["is_expandable"] = false;
  result["frames"] = py::list();
  result["blocks"] = blocks;
  return result;
}

py::dict to_dict(const host::MemoryEvent& event, Frames& frames) {
  py::dict result;
  result["action"] = kActions[static_cast<size_t>(event.action)];
  result[event.action == host::Action::kOutOfMemory ? "device_free" : "addr"] = event.address;
  result["size"] = event.size;
  result["stream"] = kStream;
  result["time_us"] = event.time_us;
  result["pool_id"] = py::make_tuple(0, 0);
  frames.add(event.context, result);
  return result;
}

py::dict snapshot(bool with_events) {
  require_host();
  const auto taken = host::snapshot(with_events);
  Frames frames;
  py::list segments;
  for (const auto& segment : taken.segments) segments.append(to_dict(segment, frames));
  py::list traces;
  for (const auto& events : taken.events) {
    py::list trace;
    for (const auto& event : events) trace.append(to_dict(event, frames));
    traces.append(trace);
  }
  frames.write();
  py::dict result;
  result["segments"] = segments;
  result["device_traces"] = traces;
  result["allocator_settings"] = py::dict();
  result["external_annotations"] = py::list();
  return result;
}

// -- memory without a tensor

std::mutex g_raw_mutex;

// By address, under the mutex.
std::unordered_map<uintptr_t, c10::DataPtr>& raw_blocks() {
  // Never destroyed: blocks that nobody gives back go with the process.
  static auto* blocks = new std::unordered_map<uintptr_t, c10::DataPtr>;
  return *blocks;
}

uintptr_t raw_allocate(size_t size, int64_t device) {
  if (size == 0) return 0;
  const py::gil_scoped_release released;
  auto data = runtime().allocate(size, checked_device(static_cast<DeviceIndex>(device)));
  const auto address = reinterpret_cast<uintptr_t>(data.get());
  const std::lock_guard lock(g_raw_mutex);
  raw_blocks().insert_or_assign(address, std::move(data));
  return address;
}

void raw_free(uintptr_t address) {
  if (address == 0) return;
  const py::gil_scoped_release released;
  c10::DataPtr data;  // freed after the lock
  const std::lock_guard lock(g_raw_mutex);
  auto& blocks = raw_blocks();
  const auto found = blocks.find(address);
  TORCH_CHECK_VALUE(found != blocks.end(), "There is no memory from caching_allocator_alloc at ",
                    address, ": it was never there or was given back before.");
  data = std::move(found->second);
  blocks.erase(found);
}

// -- pinned memory

py::dict to_dict(const c10::CachingAllocator::Stat& stat) {
  py::dict result;
  result["current"] = stat.current;
  result["peak"] = stat.peak;
  result["allocated"] = stat.allocated;
  result["freed"] = stat.freed;
  return result;
}

py::dict to_dict(const c10::CachingAllocator::DurationStat& stat) {
  py::dict result;
  result["total"] = stat.total;
  result["max"] = stat.max;
  result["min"] = stat.min;
  result["count"] = stat.count;
  result["avg"] =
      stat.count == 0 ? 0.0 : static_cast<double>(stat.total) / static_cast<double>(stat.count);
  return result;
}

py::dict pinned_stats() {
  const auto stats = runtime().pinned_allocator()->get_stats();
  py::dict result;
  result["num_host_alloc"] = stats.num_host_alloc;
  result["num_host_free"] = stats.num_host_free;
  result["active_requests"] = to_dict(stats.active_requests);
  result["active_bytes"] = to_dict(stats.active_bytes);
  result["allocations"] = to_dict(stats.allocations);
  result["allocated_bytes"] = to_dict(stats.allocated_bytes);
  result["host_alloc_time"] = to_dict(stats.host_alloc_time);
  result["host_free_time"] = to_dict(stats.host_free_time);
  return result;
}

}  // namespace

void bind_memory(py::module_& module) {
  def(module, "refuse_device", refuse_device);

  def(module, "set_memory_fraction", [](int64_t device, double fraction) {
    require_host();
    host::set_memory_fraction(checked_device(static_cast<DeviceIndex>(device)), fraction);
  });
  def(module, "memory_fraction", [](int64_t device) {
    require_host();
    return host::memory_fraction(checked_device(static_cast<DeviceIndex>(device)));
  });
  def(module, "set_caching", [](bool on) {
    require_host();
    host::set_caching(on);
  });
  def(module, "is_caching", [] {
    require_host();
    return host::is_caching();
  });
  def(module, "start_history", start_history);
  def(module, "stop_history", stop_history);
  def(module, "memory_snapshot", snapshot);

  def(module, "raw_allocate", raw_allocate);
  def(module, "raw_free", raw_free);

  def(module, "pinned_stats", pinned_stats);
  def(module, "reset_accumulated_pinned_stats",
      [] { runtime().pinned_allocator()->reset_accumulated_stats(); });
  def(module, "reset_peak_pinned_stats", [] { runtime().pinned_allocator()->reset_peak_stats(); });
}

}  // namespace torch_fl
