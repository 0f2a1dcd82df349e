// Owns: PyTorch's accelerator hooks of the pretend device, and its generators.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/HPUHooksInterface.h>

#include <array>

#include "device.h"

namespace pretend {
namespace {

class Generator final : public c10::GeneratorImpl {
 public:
  Generator(DeviceIndex device, at::Generator engine)
      : GeneratorImpl(Device(kType, device), c10::DispatchKeySet(c10::DispatchKey::HPU)),
        engine_(std::move(engine)) {}

  const at::Generator& engine() const { return engine_; }

  void set_current_seed(uint64_t seed) override { engine_.set_current_seed(seed); }
  uint64_t current_seed() const override { return engine_.current_seed(); }
  uint64_t seed() override { return engine_.seed(); }
  void set_offset(uint64_t offset) override { engine_.set_offset(offset); }
  uint64_t get_offset() const override { return engine_.get_offset(); }
  void set_state(const c10::TensorImpl& state) override {
    engine_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return engine_.unsafeGetGeneratorImpl()->get_state();
  }
  // The other's state itself, not a copy of it.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override {
    const auto* other = dynamic_cast<const Generator*>(state.get());
    TORCH_CHECK(other != nullptr, "not a generator of hpu");
    engine_ = other->engine_;
  }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<Generator>(device().index(), engine_);
  }

 private:
  Generator* clone_impl() const override {
    return new Generator(device().index(), engine_.clone());
  }

  at::Generator engine_;
};

}  // namespace

at::Generator new_generator(DeviceIndex device) {
  const auto index = device < 0 ? current_device() : device;
  return at::make_generator<Generator>(index, at::detail::createCPUGenerator());
}

const at::Generator& default_generator(DeviceIndex device) {
  static const std::array<at::Generator, kDevices> kDefaults{new_generator(0), new_generator(1)};
  return kDefaults.at(static_cast<size_t>(device < 0 ? current_device() : device));
}

at::Generator engine_of(const at::Generator& generator) {
  TORCH_CHECK(generator.device().type() == kType, "Expected a 'hpu' device type for generator but ",
              "found '", generator.device().type(), "'");
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->engine();
}

namespace {

struct Hooks final : at::HPUHooksInterface {
  explicit Hooks(at::HPUHooksArgs) {}

  bool hasHPU() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex device) const override { return has_context(device); }
  void init() const override { initialize(); }

  DeviceIndex deviceCount() const override { return kDevices; }
  DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(DeviceIndex device) const override { set_device(device); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const auto previous = current_device();
    set_device(device);
    return previous;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    const auto previous = current_device();
    restore_device(device);
    return previous;
  }

  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return at::getHostAllocator(kType); }
  Device getDeviceFromPtr(void* data) const override {
    const auto device = device_of(data);
    TORCH_CHECK(device >= 0, "The pointer is host memory and not registered with any HPU device.");
    return {kType, device};
  }

  const at::Generator& getDefaultGenerator(DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(DeviceIndex device) const override { return new_generator(device); }
};

using at::HPUHooksRegistry;
using at::RegistererHPUHooksRegistry;
C10_REGISTER_CLASS(HPUHooksRegistry, HPUHooks, Hooks)

}  // namespace
}  // namespace pretend
