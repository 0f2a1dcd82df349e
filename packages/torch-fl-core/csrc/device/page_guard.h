// Owns: the debug mode FLAGOS_HOST_GUARD, in which device memory can be touched only inside a
// boxed call or a copy: a stray host access faults where it happens. Implemented by the host
// runtime; off everywhere else, and then one well-predicted branch.
//
// A block is plain memory until somebody adopts it as device memory; from then on it is closed
// unless opened. Openings are counted per block and thread-safe; pointers that are not adopted
// blocks are ignored.
#pragma once
#include <cstdint>

namespace torch_fl::page_guard {

inline bool g_enabled = false;
inline bool enabled() { return g_enabled; }

void adopt(const void* data);
// `open` tells which life of the block was opened; closing one that has been freed since is a no-op.
uint64_t open(const void* data);
void close(const void* data, uint64_t life);

class Opening {
 public:
  explicit Opening(const void* data) : data_(data), life_(enabled() ? open(data) : 0) {}
  ~Opening() {
    if (enabled()) close(data_, life_);
  }
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;

 private:
  const void* data_;
  uint64_t life_;
};

}  // namespace torch_fl::page_guard
