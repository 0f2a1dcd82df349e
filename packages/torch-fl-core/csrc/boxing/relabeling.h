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
#include "boxing/call_devices.h"
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
  enum class Aliases : uint8_t {
    kFull,
    // For kernels of PyTorch's own: what they only read gets light aliases (alias.h).
    kLight,
    // Aliases say `requires_grad` as the caller's tensors do, which costs each an allocation.
    kWithGrad,
  };

  explicit Relabeling(Aliases aliases = Aliases::kFull) : aliases_(aliases) {}
  Relabeling(const Relabeling&) = delete;
  Relabeling& operator=(const Relabeling&) = delete;

  // -- arguments, in the order of the schema

  // The target's tensor for `tensor`; tensors of other devices and undefined ones pass through.
  // The returned reference keeps the alias alive and must itself outlive the call.
  at::Tensor alias(const at::Tensor& tensor, Access access = Access::kRead);

  // Between these two, alias() is for the members of one tensor list. They are not compared with
  // each other, only with what came alone: lists are long.
  Access begin_list() {
    devices_.next_argument();
    if (compared_ < 0) compared_ = static_cast<int>(entries_.size());
    in_list_ = true;
    const bool written = (written_lists_ & 1U) != 0;
    written_lists_ >>= 1U;
    return written ? Access::kWriteUncounted : Access::kRead;
  }
  void end_list() { in_list_ = false; }
  // Which tensor lists are written, a bit for each in the order of the schema.
  void set_written_lists(uint32_t lists) { written_lists_ = lists; }

  CallDevices& devices() { return devices_; }

  // A tensor that a kernel takes as it is and writes, with nobody above who counts its version.
  void count(c10::TensorImpl* tensor);

  // -- after the arguments

  // The flagos device of this call.
  c10::DeviceIndex device() const { return devices_.index(); }
  c10::Device target_device() const { return target().device(device()); }
  // Whose memory the kernel's results are: -1 when they are of another device type.
  c10::DeviceIndex memory_device() const {
    return C10_LIKELY(!devices_.results_elsewhere()) ? device() : c10::DeviceIndex{-1};
  }

  // Declared after whatever holds the aliases: an alias that the kernel keeps outlives the call.
  class Settlement {
   public:
    explicit Settlement(Relabeling& call) : call_(call) {}
    ~Settlement() {
      for (const auto& entry : call_.entries_) {
        if (C10_UNLIKELY(entry.light && c10::raw::intrusive_ptr::use_count(entry.alias) > 1)) {
          static_cast<AliasImpl*>(entry.alias)->complete(*entry.original);
        }
      }
    }
    Settlement(const Settlement&) = delete;
    Settlement& operator=(const Settlement&) = delete;

   private:
    Relabeling& call_;
  };

  // -- after the kernel

  // Makes a result of the kernel what the caller must see: a written argument is the caller's own
  // tensor, a view shares the caller's storage, a fresh tensor is relabelled where it is.
  void relabel(at::Tensor& result);
  at::Tensor wrap(at::Tensor&& result);

  // Storage, shape and lazy bits of everything written, to the caller's tensors. After a failure a
  // shape that the storage does not hold (the kernel had no memory to grow it) is left out.
  void write_back(bool failed = false);

  // Versions of what was written and is counted nowhere else; part of write_back().
  void count_versions();

  // -- around both

  // Gives what `work` gives: the kernel, and what is done after it. Its errors have flagos' device
  // names. A kernel may have resized before it failed: even then what it wrote is written back, the
  // caller's tensors must not point to freed memory.
  template <class Work>
  C10_ALWAYS_INLINE auto run(Work&& work) -> decltype(std::forward<Work>(work)()) {
    try {
      return std::forward<Work>(work)();
    } catch (const c10::Error& error) {
      rethrow(error);
    } catch (...) {
      write_back(/*failed=*/true);
      throw;
    }
  }

 private:
  struct Entry {
    c10::TensorImpl* original;         // outlives the call: it is an argument
    c10::TensorImpl* alias = nullptr;  // kept alive by whoever called alias(); none for count()
    bool written = false;
    bool uncounted = false;
    bool light = false;
    uint32_t version = 0;  // before the call, where `uncounted`
  };
  // What few calls need. Its end is out of line: what all calls run should be short.
  struct Rare {
    ~Rare();
    c10::SmallVector<c10::TensorImpl*, 2> passed_through;  // after the first one
    std::vector<at::Tensor> members;                       // aliases inside other layouts
    // Results that share something, and what the caller gets for them.
    struct Wrapped {
      c10::TensorImpl* target;
      c10::TensorImpl* result;
    };
    c10::SmallVector<Wrapped, 4> wrapped;
    // FLAGOS_HOST_GUARD only: what was opened, and which life of it.
    std::vector<std::pair<const void*, uint64_t>> opened;
  };

  Rare& rare() {
    if (rare_ == nullptr) rare_ = std::make_unique<Rare>();
    return *rare_;
  }
  struct Noted {
    at::Tensor tensor;
    Entry& entry;
  };
  Noted noted(c10::TensorImpl* impl, c10::intrusive_ptr<AliasImpl>&& alias);
  at::Tensor alias_dense(c10::TensorImpl* impl, Access access);
  at::Tensor alias_full(c10::TensorImpl* impl, Access access);
  at::Tensor alias_layout(c10::TensorImpl* impl, Access access);
  at::Tensor wrap_shared(at::Tensor&& result);
  at::Tensor wrap_layout(c10::TensorImpl* impl);
  at::Tensor wrap_member(const at::Tensor& member);
  StoragePtr twin_here(const c10::TensorImpl& impl) const;
  void pass_through(c10::TensorImpl* impl);
  bool passed_through(const c10::TensorImpl* impl) const;
  c10::TensorImpl* owner_of(const c10::StorageImpl* twin) const;
  void write_back_layout(const Entry& entry);
  // Throws `error` again with the target's device names replaced by flagos'.
  [[noreturn]] void rethrow(const c10::Error& error);
  void note_access(Entry& entry, Access access);
  void note_version(Entry& entry);
  void open_pages(const void* data);
  void open_result(c10::StorageImpl* twin);
  void open_parameters(const c10::intrusive_ptr<at::Quantizer>& quantizer);

  c10::SmallVector<Entry, 8> entries_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  std::unique_ptr<Rare> rare_;
  c10::TensorImpl* passed_through_ = nullptr;  // a tensor of the target's own
  CallDevices devices_;
  uint32_t written_lists_ = 0;
  int compared_ = -1;  // how many entries stood before the first list
  bool in_list_ = false;
  bool uncounted_ = false;  // whether any entry is
  const Aliases aliases_;
};

}  // namespace torch_fl
