// Owns: the memory of aliases.
#include "boxing/alias.h"

#include <new>

namespace torch_fl {
namespace {

struct Free {
  Free* next;
};

constexpr int kKept = 64;  // per thread; a call rarely holds more aliases

// Gives a thread's memory back when the thread ends; after that nothing is kept any more.
struct FreeList {
  Free* head = nullptr;
  int count = 0;
  bool open = true;

  ~FreeList() {
    open = false;
    while (head != nullptr) ::operator delete(std::exchange(head, head->next));
  }
};

thread_local FreeList t_free __attribute__((tls_model("initial-exec")));

}  // namespace

void* AliasImpl::operator new(size_t size) {
  auto& list = t_free;
  if (C10_UNLIKELY(list.head == nullptr)) return ::operator new(size);
  --list.count;
  return std::exchange(list.head, list.head->next);
}

void AliasImpl::operator delete(void* memory) noexcept {
  auto& list = t_free;
  if (C10_UNLIKELY(list.count >= kKept || !list.open)) {
    ::operator delete(memory);
    return;
  }
  list.head = new (memory) Free{list.head};
  ++list.count;
}

}  // namespace torch_fl
