// Owns: which rule about devices an operator has.
#pragma once

#include <atomic>
#include <cstdint>

namespace torch_fl {

enum class DeviceRule : uint8_t {
  kSame,                // every tensor on one device
  kIterator,            // the same, but zero-dimensional CPU tensors may join
  kIndexed,             // index tensors may be on the CPU
  kIndexedWrite,        // index tensors may be anywhere, the values only where the tensor is
  kNumberFromAnywhere,  // the third argument may be a zero-dimensional tensor of any device
  kNone,                // the operator is about several devices, or not PyTorch's
};

DeviceRule device_rule(const char* name, const char* overload);

// An operator's name, and its rule once it has been looked up: a search among thousands of names.
class OperatorRule {
 public:
  constexpr OperatorRule(const char* name, const char* overload) noexcept
      : name_(name), overload_(overload) {}
  // With the rule kept elsewhere, at first `kUnknown`.
  OperatorRule(const char* name, const char* overload, std::atomic<uint8_t>& kept) noexcept
      : name_(name), overload_(overload), elsewhere_(&kept) {}
  const char* name() const { return name_; }
  const char* overload() const { return overload_; }
  DeviceRule get() {
    auto& kept = elsewhere_ != nullptr ? *elsewhere_ : own_;
    auto rule = kept.load(std::memory_order_relaxed);
    if (rule == kUnknown) {
      rule = static_cast<uint8_t>(device_rule(name_, overload_));
      kept.store(rule, std::memory_order_relaxed);
    }
    return static_cast<DeviceRule>(rule);
  }

 private:
  static constexpr uint8_t kUnknown = 0xff;
  const char* const name_;
  const char* const overload_;
  std::atomic<uint8_t> own_{kUnknown};
  std::atomic<uint8_t>* const elsewhere_ = nullptr;
};

}  // namespace torch_fl
