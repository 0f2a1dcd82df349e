// Owns: the state from which a library's recurrent layers draw their dropout, one for each device.
#pragma once
#include <ATen/core/Tensor.h>

#include <mutex>

namespace torch_fl {

// The device's state for as long as this lives; undefined where there is nothing to drop. Streams
// that use it after each other wait for each other.
class RecurrentDropout {
 public:
  RecurrentDropout(const at::Tensor& input, double probability, bool train);
  ~RecurrentDropout();
  RecurrentDropout(const RecurrentDropout&) = delete;
  RecurrentDropout& operator=(const RecurrentDropout&) = delete;

  const at::Tensor& buffer() const;

  struct State;

 private:
  State* state_ = nullptr;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace torch_fl
