// Owns: what PyTorch's older profiler, torch.autograd.profiler with `use_device`, asks of the device:
// events around operators, and the time between them. It is asked for none of its annotations.
#include "profiler/stubs.h"

#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "device/runtime.h"

namespace torch_fl {
namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

// An event of the runtime, and the device that it was recorded on.
struct Recorded {
  explicit Recorded(c10::DeviceIndex index) : device(index) {
    runtime().record(&event, device, runtime().current_stream(device),
                     c10::EventFlag::BACKEND_DEFAULT);
  }
  ~Recorded() { runtime().destroy_event(event, device); }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  void* event = nullptr;
  c10::DeviceIndex device;
};

struct Stubs final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    const auto index = runtime().current_device();
    if (device != nullptr) *device = index;
    *event = std::make_shared<Recorded>(index);
    if (cpu_ns != nullptr) *cpu_ns = c10::getTime();
  }
  // Microseconds.
  float elapsed(const ProfilerVoidEventStub* start,
                const ProfilerVoidEventStub* end) const override {
    const auto& first = *static_cast<const Recorded*>(start->get());
    const auto& last = *static_cast<const Recorded*>(end->get());
    runtime().synchronize_event(first.event);
    runtime().synchronize_event(last.event);
    return static_cast<float>(runtime().elapsed_ms(first.event, last.event, first.device) * 1e3);
  }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> visit) const override {
    const auto count = runtime().device_count();
    for (c10::DeviceIndex index = 0; index < count; ++index) visit(index);
  }
  void synchronize() const override { runtime().synchronize_device(runtime().current_device()); }
};

}  // namespace

void install_profiler_stubs() {
  static Stubs stubs;
  torch::profiler::impl::registerPrivateUse1Methods(&stubs);
}

}  // namespace torch_fl
