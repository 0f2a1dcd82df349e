// Owns: torch_fl._C, the thin bindings. What PyTorch already offers for every accelerator
// (streams, events, memory statistics) is not repeated here.
#include <ATen/Context.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include "activation.h"
#include "device/delegate/runtime.h"
#include "device/generator.h"
#include "device/host/runtime.h"
#include "device/refusal.h"
#include "device/unavailable/runtime.h"
#include "python/bindings.h"
#include "routing/operator.h"

namespace py = pybind11;

namespace torch_fl {
namespace {

bool g_initialized = false;

void activate_host(int device_count, size_t memory_limit, bool guard) {
  activate(host::make_runtime(
      {.device_count = device_count, .memory_limit = memory_limit, .guard = guard}));
}

void activate_delegate(const std::string& device_type, bool foreach_takes_any_device) {
  const auto target = c10::Device(device_type).type();
  activate(delegate::make_runtime(target, foreach_takes_any_device));
}

void activate_unavailable(const std::string& reason) {
  activate(unavailable::make_runtime(reason));
}

void initialize() {
  const py::gil_scoped_release released;        // a driver may take seconds to start
  at::globalContext().lazyInitDevice(kFlagos);  // so that PyTorch knows too: is_pinned() asks it
  g_initialized = true;
}

DeviceIndex to_index(int64_t device) {
  if (device < 0 || device > std::numeric_limits<DeviceIndex>::max()) refuse_device(device);
  return checked_device(static_cast<DeviceIndex>(device));
}

int exchange_device(int64_t device) {
  const auto index = to_index(device);
  const auto previous = runtime().current_device();
  runtime().set_device(index);
  return previous;
}

int maybe_exchange_device(int64_t device) {
  if (device < 0) return -1;
  const auto index = to_index(device);
  const auto previous = runtime().current_device();
  runtime().restore_device(index);
  return previous;
}

void synchronize(int64_t device) {
  const auto index = to_index(device);
  const py::gil_scoped_release released;
  runtime().synchronize_device(index);
}

py::dict device_properties(int64_t device) {
  const auto properties = runtime().properties(to_index(device));
  py::dict result;
  result["name"] = properties.name;
  result["total_memory"] = properties.total_memory;
  result["multi_processor_count"] = properties.multi_processor_count;
  result["major"] = properties.major;
  result["minor"] = properties.minor;
  result["is_integrated"] = properties.is_integrated;
  return result;
}

py::object generator(int64_t device) {
  return py::reinterpret_steal<py::object>(THPGenerator_Wrap(default_generator(to_index(device))));
}

}  // namespace
}  // namespace torch_fl

PYBIND11_MODULE(_C, module) {
  using namespace torch_fl;
  def(module, "activate_host", activate_host);
  def(module, "activate_delegate", activate_delegate);
  def(module, "activate_unavailable", activate_unavailable);

  def(module, "initialize", initialize);
  def(module, "is_initialized", [] { return g_initialized; });
  def(module, "is_in_bad_fork", [] { return torch::utils::is_device_in_bad_fork(kFlagos); });
  def(module, "register_fork_handler", [] {
    torch::utils::register_fork_handler_for_device_init(kFlagos);
    routing::refuse_after_fork(
        "Cannot re-initialize flagos in forked subprocess. To use flagos with multiprocessing, you "
        "must use the 'spawn' start method");
  });

  def(module, "stream_priority", [](int64_t stream) { return runtime().stream_priority(stream); });
  def(module, "device_count", [] { return static_cast<int>(runtime().device_count()); });
  def(module, "current_device", [] { return static_cast<int>(runtime().current_device()); });
  def(module, "set_device", [](int64_t device) { runtime().set_device(to_index(device)); });
  def(module, "exchange_device", exchange_device);
  def(module, "maybe_exchange_device", maybe_exchange_device);
  def(module, "synchronize", synchronize);
  def(module, "device_properties", device_properties);
  def(module, "memory_info",
      [](int64_t device) { return runtime().memory_info(to_index(device)); });
  def(module, "default_generator", generator);
  def(module, "target_generator", [](const py::object& given) {
    TORCH_CHECK_TYPE(THPGenerator_Check(given.ptr()), "Expected a torch.Generator.");
    const auto& own = reinterpret_cast<THPGenerator*>(given.ptr())->cdata;
    return py::reinterpret_steal<py::object>(
        THPGenerator_Wrap(target_generator(own, own.device().index())));
  });

  bind_compiled(module);
  bind_interop(module);
  bind_memory(module);
  bind_routing(module);
  bind_testing(module);
}
