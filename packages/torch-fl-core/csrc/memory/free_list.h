// Owns: memory of objects that every call makes and drops, kept per thread.
#pragma once
#include <c10/macros/Macros.h>

#include <cstddef>
#include <new>
#include <utility>

namespace torch_fl {

// Blocks of `kSize` bytes. One list per thread; what a thread frees beyond `kKept` blocks, or after
// its own end has begun, goes back to the system.
template <size_t kSize, int kKept = 64>
class FreeList {
 public:
  static void* take() {
    auto& list = t_list;
    if (C10_UNLIKELY(list.head_ == nullptr)) return ::operator new(kSize);
    --list.count_;
    return std::exchange(list.head_, list.head_->next);
  }

  static void give(void* memory) noexcept {
    auto& list = t_list;
    if (C10_UNLIKELY(list.count_ >= kKept || !list.open_)) {
      ::operator delete(memory);
      return;
    }
    list.head_ = new (memory) Block{list.head_};
    ++list.count_;
  }

 private:
  struct Block {
    Block* next;
  };
  static_assert(kSize >= sizeof(Block));

  ~FreeList() {
    open_ = false;
    while (head_ != nullptr) ::operator delete(std::exchange(head_, head_->next));
  }

  Block* head_ = nullptr;
  int count_ = 0;
  bool open_ = true;

  // initial-exec: every other model calls into the loader on each access.
  static thread_local FreeList t_list __attribute__((tls_model("initial-exec")));
};

template <size_t kSize, int kKept>
thread_local FreeList<kSize, kKept> FreeList<kSize, kKept>::t_list;

}  // namespace torch_fl
