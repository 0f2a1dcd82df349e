// Owns: memory of objects that every call makes and drops, kept per thread.
#pragma once
#include <c10/macros/Macros.h>

#include <cstddef>
#include <new>
#include <utility>

namespace torch_fl {

// Blocks of `kSize` bytes. One list per thread; what a thread frees beyond `kKept` blocks, or after
// its own end has begun, goes back to the system. (An optimizer's step has an alias for each of its
// tensors at a time: a model's parameters and what belongs to them.)
template <size_t kSize, int kKept = 2048>
class FreeList {
 public:
  static void* take() {
    auto& list = t_list;
    if (C10_UNLIKELY(list.head == nullptr)) return fresh();
    --list.count;
    return std::exchange(list.head, list.head->next);
  }

  static void give(void* memory) noexcept {
    auto& list = t_list;
    if (C10_UNLIKELY(list.count >= list.limit)) {
      ::operator delete(memory);
      return;
    }
    list.head = new (memory) Block{list.head};
    ++list.count;
  }

 private:
  struct Block {
    Block* next;
  };
  static_assert(kSize >= sizeof(Block));

  // Without constructor and destructor: an access costs no question whether it has been made.
  struct List {
    Block* head;
    int count;
    int limit;  // 0 before the thread's first block, and from its end on
  };
  // Empties the list at the thread's end.
  struct End {
    ~End() {
      t_list.limit = 0;
      while (t_list.head != nullptr) {
        ::operator delete(std::exchange(t_list.head, t_list.head->next));
      }
    }
    bool made = false;
  };

  static void* fresh() {
    static thread_local End end;
    if (!std::exchange(end.made, true)) t_list.limit = kKept;
    return ::operator new(kSize);
  }

  // initial-exec: every other model calls into the loader on each access.
  static constinit thread_local List t_list __attribute__((tls_model("initial-exec")));
};

template <size_t kSize, int kKept>
constinit thread_local typename FreeList<kSize, kKept>::List FreeList<kSize, kKept>::t_list{};

}  // namespace torch_fl
