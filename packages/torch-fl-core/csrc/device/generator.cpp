// Owns: flagos generators. State, seed and offset are the target generator's, so a state taken
// here can be set there and the numbers are the target's bit for bit.
#include "device/generator.h"

#include <atomic>
#include <deque>
#include <mutex>

#include "device/runtime.h"

namespace torch_fl {
namespace {

class Generator final : public c10::GeneratorImpl {
 public:
  Generator(DeviceIndex device, at::Generator target)
      : GeneratorImpl(c10::Device(kFlagos, device),
                      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        target_(std::move(target)) {}

  const at::Generator& target() const { return target_; }

  // Whether numbers have been made to begin elsewhere since this was last asked.
  bool take_restarted() { return restarted_.exchange(false); }

  void set_current_seed(uint64_t seed) override {
    restarted_ = true;
    const std::lock_guard<std::mutex> lock(target_.mutex());
    target_.set_current_seed(seed);
  }
  uint64_t current_seed() const override { return target_.current_seed(); }
  uint64_t seed() override {
    restarted_ = true;
    const std::lock_guard<std::mutex> lock(target_.mutex());
    return target_.seed();
  }
  // PyTorch pickles the offset of every generator but the CPU's, whose kind has none.
  void set_offset(uint64_t offset) override {
    restarted_ = true;
    if (has_offset() || offset != 0) target_.set_offset(offset);
  }
  uint64_t get_offset() const override { return has_offset() ? target_.get_offset() : 0; }
  void set_state(const c10::TensorImpl& state) override {
    restarted_ = true;
    const std::lock_guard<std::mutex> lock(target_.mutex());
    target_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const std::lock_guard<std::mutex> lock(target_.unsafeGetGeneratorImpl()->mutex_);
    return target_.unsafeGetGeneratorImpl()->get_state();
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override {
    const auto* other = dynamic_cast<const Generator*>(state.get());
    TORCH_CHECK(other != nullptr, "Expected a 'flagos' device type for generator but found '",
                state->device().type(), "'");
    target_.unsafeGetGeneratorImpl()->graphsafe_set_state(other->target_.getIntrusivePtr());
  }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<Generator>(
        device().index(), at::Generator(target_.unsafeGetGeneratorImpl()->graphsafe_get_state()));
  }

 private:
  Generator* clone_impl() const override {
    return new Generator(device().index(), target_.clone());
  }

  bool has_offset() const { return target_.device().type() != c10::DeviceType::CPU; }

  at::Generator target_;
  std::atomic<bool> restarted_{false};
};

// Made on first use, because a target may have to be initialised for it. A deque never moves its
// elements, so references stay good.
struct Defaults {
  std::mutex mutex;
  std::deque<std::optional<at::Generator>> generators;
};

Defaults& defaults() {
  static auto* instance = new Defaults;
  return *instance;
}

}  // namespace

const at::Generator& default_generator(DeviceIndex device) {
  const auto index = static_cast<size_t>(checked_device(device));
  auto& all = defaults();
  const std::lock_guard<std::mutex> lock(all.mutex);
  while (all.generators.size() <= index) all.generators.emplace_back();
  auto& slot = all.generators[index];
  if (!slot) {
    const auto device_index = static_cast<DeviceIndex>(index);
    slot = at::make_generator<Generator>(device_index, runtime().default_generator(device_index));
  }
  return *slot;
}

bool take_restarted(DeviceIndex device) {
  return static_cast<Generator*>(default_generator(device).unsafeGetGeneratorImpl())
      ->take_restarted();
}

at::Generator new_generator(DeviceIndex device) {
  const auto index = checked_device(device);
  return at::make_generator<Generator>(index, runtime().new_generator(index));
}

void check_generator(const std::optional<at::Generator>& generator) {
  TORCH_CHECK(!generator || !generator->defined() || generator->device().type() == kFlagos,
              "Expected a 'flagos' device type for generator but found '",
              c10::DeviceTypeName(generator->device().type(), /*lower_case=*/true), "'");
}

at::Generator target_generator(const std::optional<at::Generator>& generator, DeviceIndex device) {
  if (!generator || !generator->defined()) {
    return runtime().default_generator(checked_device(device));
  }
  check_generator(generator);
  return static_cast<Generator*>(generator->unsafeGetGeneratorImpl())->target();
}

}  // namespace torch_fl
