// Owns: the lock of a pool. Held for some tens of nanoseconds, twice per tensor: one atomic exchange
// instead of a mutex's two, with a yield for the rare case that the holder has to ask the system.
#pragma once
#include <atomic>
#include <thread>

namespace torch_fl::host {

class SpinLock {
 public:
  void lock() noexcept {
    int spins = 0;
    while (held_.test_and_set(std::memory_order_acquire)) {
      while (held_.test(std::memory_order_relaxed)) {
        if (++spins > kSpins) std::this_thread::yield();
      }
    }
  }
  void unlock() noexcept { held_.clear(std::memory_order_release); }

 private:
  static constexpr int kSpins = 100;
  std::atomic_flag held_;
};

}  // namespace torch_fl::host
