// Owns: saying why there is no device, at every place where one is needed.
#include "device/unavailable/runtime.h"

namespace torch_fl::unavailable {
namespace {

class UnavailableRuntime final : public Runtime {
 public:
  explicit UnavailableRuntime(std::string reason) : reason_(std::move(reason)) {}

  c10::DeviceType target_type() const noexcept override { return c10::DeviceType::CPU; }
  bool is_usable() const noexcept override { return false; }
  void initialize() override { refuse(); }

  DeviceIndex device_count() const noexcept override { return 0; }
  DeviceIndex current_device() const override { refuse(); }
  void set_device(DeviceIndex) override { refuse(); }
  void restore_device(DeviceIndex) noexcept override {}
  bool has_context(DeviceIndex) override { return false; }
  DeviceProperties properties(DeviceIndex) override { refuse(); }
  c10::DeviceCapability capability(DeviceIndex) override { refuse(); }
  void synchronize_device(DeviceIndex) override { refuse(); }

  StreamId current_stream(DeviceIndex) override { refuse(); }
  StreamId default_stream(DeviceIndex) override { refuse(); }
  StreamId pooled_stream(DeviceIndex, bool) override { refuse(); }
  StreamId new_stream(DeviceIndex, int) override { refuse(); }
  StreamId exchange_stream(DeviceIndex, StreamId) override { refuse(); }
  bool query_stream(DeviceIndex, StreamId) override { refuse(); }
  void synchronize_stream(DeviceIndex, StreamId) override { refuse(); }
  bool is_capturing(DeviceIndex, StreamId) override { return false; }
  void* native_stream(DeviceIndex, StreamId) override { refuse(); }

  void record(void**, DeviceIndex, StreamId, c10::EventFlag) override { refuse(); }
  void block(void*, DeviceIndex, StreamId) override { refuse(); }
  bool query_event(void*) override { refuse(); }
  void synchronize_event(void*) override { refuse(); }
  double elapsed_ms(void*, void*, DeviceIndex) override { refuse(); }
  void destroy_event(void*, DeviceIndex) noexcept override {}

  c10::DataPtr allocate(size_t, DeviceIndex) override { refuse(); }
  c10::Allocator* target_allocator() override { refuse(); }
  void empty_cache() override {}  // there is nothing to give back
  void record_stream(const c10::DataPtr&, DeviceIndex, StreamId) override { refuse(); }
  DeviceStats memory_stats(DeviceIndex) override { refuse(); }
  void reset_peak_stats(DeviceIndex) override { refuse(); }
  void reset_accumulated_stats(DeviceIndex) override { refuse(); }
  std::pair<size_t, size_t> memory_info(DeviceIndex) override { refuse(); }
  DeviceIndex device_of(const void*) override { return -1; }
  at::HostAllocator* pinned_allocator() override { refuse(); }
  bool is_pinned(const void*) override { return false; }

  at::Generator default_generator(DeviceIndex) override { refuse(); }
  at::Generator new_generator(DeviceIndex) override { refuse(); }

 private:
  [[noreturn]] void refuse() const { TORCH_CHECK(false, reason_); }

  const std::string reason_;
};

}  // namespace

std::unique_ptr<Runtime> make_runtime(std::string reason) {
  return std::make_unique<UnavailableRuntime>(std::move(reason));
}

}  // namespace torch_fl::unavailable
