// Owns: torch.ops.pretend, what tests ask of the pretend device and third-party operators of it.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mul.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include "on_host.h"

namespace pretend {
namespace {

std::string text(Device device) { return device.str(); }

// -- operators with a kernel for this device alone

// What the kernel sees: devices of tensor, storage and memory.
std::vector<std::string> seen(const at::Tensor& tensor) {
  return {text(tensor.device()), text(tensor.storage().device()),
          text(tensor.storage().data_ptr().device()),
          text(Device(kType, device_of(tensor.data_ptr())))};
}

at::Tensor scale(const at::Tensor& tensor, double factor) { return at::mul(tensor, factor); }

at::Tensor complain(const at::Tensor& tensor, const std::string& kind) {
  const auto device = tensor.device();
  const auto message = c10::str("no luck on ", device, " with ", kind, ", and nothing on my_hpu:1");
  TORCH_CHECK_INDEX(kind != "index", message);
  TORCH_CHECK_VALUE(kind != "value", message);
  TORCH_CHECK_TYPE(kind != "type", message);
  TORCH_CHECK_NOT_IMPLEMENTED(kind != "not implemented", message);
  TORCH_CHECK_LINALG(kind != "linalg", message);
  TORCH_CHECK_WITH(OutOfMemoryError, kind != "memory", message);
  TORCH_CHECK(false, message);
}

at::Tensor compare(const at::Tensor& left, const at::Tensor& right) {
  TORCH_CHECK(false, "left is on ", left.device(), ", right is on ", right.device());
}

TORCH_LIBRARY_IMPL(pretend, HPU, library) {
  library.impl("seen", &seen);
  library.impl("scale", &scale);
  library.impl("complain", &complain);
  library.impl("compare", &compare);
}

// -- questions

int64_t told_of(const std::string& what) { return told(what); }
int64_t stream_on(int64_t device) { return current_stream(static_cast<DeviceIndex>(device)); }
void set_current_stream(int64_t device, int64_t stream) {
  c10::impl::VirtualGuardImpl(kType).exchangeStream(
      Stream(Stream::UNSAFE, Device(kType, static_cast<DeviceIndex>(device)), stream));
}
int64_t memory_stream(int64_t data) { return stream_of(reinterpret_cast<void*>(data)); }

std::vector<int64_t> contexts() {
  std::vector<int64_t> made;
  for (DeviceIndex device = 0; device < kDevices; ++device) {
    if (has_context(device)) made.push_back(device);
  }
  return made;
}

const at::AcceleratorHooksInterface& hooks(const std::string& type) {
  return at::globalContext().getAcceleratorHooksInterface(Device(type).type());
}

// `type` is that of any accelerator, so that two can be compared.
bool has_primary_context(const std::string& type, int64_t device) {
  return hooks(type).hasPrimaryContext(static_cast<DeviceIndex>(device));
}

int64_t pooled_stream(const std::string& device, bool high_priority) {
  const Device place(device);
  return c10::impl::VirtualGuardImpl(place.type())
      .getStreamFromGlobalPool(place, high_priority)
      .id();
}

std::string device_of_pointer(const std::string& type, int64_t data) {
  return text(hooks(type).getDeviceFromPtr(reinterpret_cast<void*>(data)));
}

std::optional<at::Generator> default_generator_of(int64_t device) {
  return default_generator(static_cast<DeviceIndex>(device));
}

c10::Dict<std::string, int64_t> memory(int64_t device) {
  auto* allocator = c10::getDeviceAllocator(kType);
  const auto index = static_cast<DeviceIndex>(device);
  const auto stats = allocator->getDeviceStats(index);
  c10::Dict<std::string, int64_t> result;
  const auto insert = [&](const std::string& name, const c10::CachingAllocator::StatArray& stat) {
    result.insert(name + ".all.current", stat[0].current);
    result.insert(name + ".all.peak", stat[0].peak);
    result.insert(name + ".all.allocated", stat[0].allocated);
    result.insert(name + ".all.freed", stat[0].freed);
  };
  insert("allocation", stats.allocation);
  insert("segment", stats.segment);
  insert("active", stats.active);
  insert("allocated_bytes", stats.allocated_bytes);
  insert("reserved_bytes", stats.reserved_bytes);
  insert("active_bytes", stats.active_bytes);
  insert("requested_bytes", stats.requested_bytes);
  result.insert("num_ooms", stats.num_ooms);
  result.insert("num_alloc_retries", stats.num_alloc_retries);
  result.insert("num_device_alloc", stats.num_device_alloc);
  result.insert("num_device_free", stats.num_device_free);
  const auto [free, total] = allocator->getMemoryInfo(index);
  result.insert("free", static_cast<int64_t>(free));
  result.insert("total", static_cast<int64_t>(total));
  return result;
}

TORCH_LIBRARY(pretend, library) {
  library.def("seen(Tensor tensor) -> str[]");
  library.def("scale(Tensor tensor, float factor) -> Tensor");
  library.def("complain(Tensor tensor, str kind) -> Tensor");
  library.def("compare(Tensor left, Tensor right) -> Tensor");
  // As `torch.cuda._lazy_init` starts its device.
  library.def("lazy_init() -> ()", [] { at::globalContext().lazyInitDevice(kType); });
  library.def("told(str what) -> int", &told_of);
  library.def("current_device() -> int", [] { return int64_t{current_device()}; });
  library.def("set_device(int device) -> ()",
              [](int64_t device) { set_device(static_cast<DeviceIndex>(device)); });
  library.def("current_stream(int device) -> int", &stream_on);
  library.def("set_stream(int device, int stream) -> ()", &set_current_stream);
  library.def("pooled_stream(str device, bool high_priority) -> int", &pooled_stream);
  library.def("memory_stream(int data) -> int", &memory_stream);
  library.def("contexts() -> int[]", &contexts);
  library.def("has_primary_context(str type, int device) -> bool", &has_primary_context);
  library.def("device_of_pointer(str type, int data) -> str", &device_of_pointer);
  library.def("is_pinned(int data) -> bool",
              [](int64_t data) { return is_pinned(reinterpret_cast<void*>(data)); });
  library.def("default_generator(int device) -> Generator?", &default_generator_of);
  library.def("memory(int device) -> Dict(str, int)", &memory);
  library.def("set_memory_limit(int nbytes) -> ()", &set_memory_limit);
  library.def("hold(bool on) -> ()", &hold);
  library.def("break_with(str fault) -> ()", &break_with);
}

}  // namespace
}  // namespace pretend
