// Owns: one boxed call. Arguments become aliases of the target, the kernel runs below autograd,
// results become flagos tensors, and what a writing kernel changed goes back to the caller.
#pragma once
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <utility>
#include <vector>

#include "boxing/alias.h"
#include "device/page_guard.h"

namespace torch_fl {

class Relabeling {
 public:
  enum class Access : uint8_t {
    kRead,
    kWrite,
    // Written, and nothing above boxing counts the version: an operator over lists, a third
    // party's. Some kernels do it themselves (CUDA's over lists); write_back() does for the others.
    kWriteUncounted,
  };

  Relabeling() = default;
  // Aliases say `requires_grad` as the caller's tensors do, which costs each an allocation.
  struct WithGrad {};
  explicit Relabeling(WithGrad) : with_grad_(true) {}
  ~Relabeling() {
    if (C10_UNLIKELY(page_guard::enabled())) close_pages();
  }
  Relabeling(const Relabeling&) = delete;
  Relabeling& operator=(const Relabeling&) = delete;

  // -- arguments, in the order of the schema

  // The target's tensor for `tensor`; tensors of other devices and undefined ones pass through.
  // The returned reference keeps the alias alive and must itself outlive the call.
  at::Tensor alias(const at::Tensor& tensor, Access access = Access::kRead);

  // A device argument: where a factory's result goes, which may be away from flagos.
  void set_device_argument(c10::Device device);

  // Which tensor lists are written, a bit for each in the order of the schema; takes them in turn.
  void set_written_lists(uint32_t lists) { written_lists_ = lists; }
  Access next_list_access() {
    const bool written = (written_lists_ & 1U) != 0;
    written_lists_ >>= 1U;
    return written ? Access::kWriteUncounted : Access::kRead;
  }

  // Marks where the next tensor or tensor-list argument begins, for error messages.
  void next_argument() { ++argument_; }

  // -- after the arguments

  // Common-device rules of PyTorch, in the names the caller knows. The fast path is one branch.
  void check_devices(const char* name, const char* overload) const {
    if (C10_UNLIKELY(suspicious_)) check_devices_slow(name, overload);
  }
  bool mixed_devices() const {
    return suspicious_ && (second_index_ >= 0 || !foreign_is_cpu_scalar_);
  }

  // The flagos device of this call: the device argument, else that of the tensors, else current.
  c10::DeviceIndex device() const {
    return C10_LIKELY(device_argument_ < 0 && index_ >= 0) ? index_ : device_slow();
  }
  c10::Device target_device() const { return target().device(device()); }
  // Whose memory the kernel's results are: -1 when a device argument sends them elsewhere.
  c10::DeviceIndex memory_device() const {
    return C10_LIKELY(!results_elsewhere_) ? device() : c10::DeviceIndex{-1};
  }

  // -- after the kernel

  // A result of the kernel, as the caller must see it: a written argument is the caller's own
  // tensor, a view shares the caller's storage, a fresh tensor is relabelled where it is.
  at::Tensor wrap(at::Tensor&& result);

  // Storage, shape and lazy bits of everything written, to the caller's tensors. After a failure a
  // shape that the storage does not hold (the kernel had no memory to grow it) is left out.
  void write_back(bool failed = false);

  // Versions of what was written and is counted nowhere else; part of write_back().
  void count_versions();

  // Throws `error` again with the target's device names replaced by flagos'.
  // A kernel may have resized before it failed: the caller's tensors must not point to freed memory.
  [[noreturn]] void rethrow(const c10::Error& error);

 private:
  struct Entry {
    c10::TensorImpl* original;  // outlives the call: it is an argument
    c10::TensorImpl* alias;     // kept alive by whoever called alias()
    bool written = false;
    bool uncounted = false;
    uint32_t version = 0;  // before the call, where `uncounted`
  };

  at::Tensor alias_dense(c10::TensorImpl* impl, Access access);
  at::Tensor alias_layout(c10::TensorImpl* impl, Access access);
  at::Tensor wrap_layout(c10::TensorImpl* impl);
  at::Tensor wrap_member(const at::Tensor& member);
  void write_back_layout(const Entry& entry);
  static void note_access(Entry& entry, Access access);
  void note_foreign(const c10::TensorImpl& impl, Access access);
  void note_second_device(c10::DeviceIndex index, const c10::TensorImpl& impl);
  void open_pages(const void* data);
  void open_parameters(const c10::intrusive_ptr<at::Quantizer>& quantizer);
  void close_pages();
  c10::DeviceIndex device_slow() const;
  void check_devices_slow(const char* name, const char* overload) const;

  // A result of the kernel and what the caller gets for it; both alive while results are wrapped.
  struct Wrapped {
    c10::TensorImpl* target;
    c10::TensorImpl* result;
  };

  c10::SmallVector<Entry, 4> entries_;
  c10::SmallVector<Wrapped, 2> wrapped_;
  c10::SmallVector<c10::TensorImpl*, 1> passed_through_;  // tensors of other devices
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  // FLAGOS_HOST_GUARD only: what was opened, and which life of it.
  std::unique_ptr<std::vector<std::pair<const void*, uint64_t>>> opened_;
  std::unique_ptr<std::vector<at::Tensor>> members_;  // of other layouts only
  uint32_t written_lists_ = 0;
  int16_t argument_ = -1;
  c10::DeviceIndex index_ = -1;
  c10::DeviceIndex device_argument_ = -1;
  // What the device check needs, noted while aliasing; argument numbers count tensor arguments.
  bool suspicious_ = false;
  bool device_argument_given_ = false;
  bool results_elsewhere_ = false;
  const bool with_grad_ = false;
  bool foreign_first_ = false;  // the foreign tensor stood before any flagos tensor
  c10::DeviceIndex second_index_ = -1;
  int16_t second_argument_ = -1;
  int16_t foreign_argument_ = -1;
  // A bit for each argument that is not a number: on the first flagos device, and on another.
  uint32_t home_ = 0;
  uint32_t elsewhere_ = 0;
  bool foreign_is_cpu_scalar_ = true;
  c10::Device foreign_device_{c10::DeviceType::CPU};
};

}  // namespace torch_fl
