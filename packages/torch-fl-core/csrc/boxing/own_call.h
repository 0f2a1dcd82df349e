// Owns: a boxed call of an operator that we carry out ourselves, with operators of the target: what
// typed.h does around PyTorch's kernels, around a function.
#pragma once
#include <ATen/core/Tensor.h>

#include <deque>
#include <optional>
#include <utility>

#include "boxing/relabeling.h"
#include "boxing/results.h"
#include "device/kernel_scope.h"

namespace torch_fl {

template <class Op>
class OwnCall {
 public:
  // -- all tensor arguments, in the order of the schema

  const at::Tensor& in(const at::Tensor& tensor) {
    call_.devices().next_argument();
    return aliases_.emplace_back(call_.alias(tensor));
  }
  const at::Tensor& in(const std::optional<at::Tensor>& tensor) {
    return in(tensor ? *tensor : kNone);
  }

  // -- after the arguments

  c10::DeviceIndex device() const { return call_.device(); }

  // Checks devices, and gives what `body` gives as the caller must see it. Errors have flagos' names.
  template <class Body>
  auto run(Body&& body) {
    call_.devices().check(rule_);
    const KernelScope scope(call_.memory_device());
    return call_.run([&] {
      auto results = std::forward<Body>(body)();
      typed::wrap(call_, results);
      return results;
    });
  }

 private:
  static inline constinit OperatorRule rule_{Op::name, Op::overload_name};
  static inline const at::Tensor kNone;

  Relabeling call_;
  std::deque<at::Tensor> aliases_;  // (its elements never move)
};

}  // namespace torch_fl
