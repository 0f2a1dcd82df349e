// Owns: the dispatching kernel. PyTorch's dispatcher gets one stateless kernel per operator, once;
// what it runs sits behind an atomic pointer, because PyTorch's own table is not safe to change
// while other threads call. A call costs one relaxed load and an indirect call.
#pragma once
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <utility>

namespace torch_fl::routing {

struct Operator;
using BoxedKernel = void (*)(Operator&, const c10::OperatorHandle&, torch::jit::Stack*);

// One operator under one flagos dispatch key. Lives as long as the process.
struct Operator {
  Operator(c10::OperatorHandle op, c10::DispatchKey dispatch_key, const char* route_name)
      : handle(std::move(op)), key(dispatch_key), route(route_name) {}

  const c10::OperatorHandle handle;
  const c10::DispatchKey key;
  const char* const route;

  // Boxed operators: what a call runs now, and what the route runs.
  std::atomic<BoxedKernel> entry{nullptr};
  BoxedKernel kernel = nullptr;
  // Typed operators: their entry has the operator's own type; this switches it.
  void (*set_observed)(bool on) = nullptr;

  // Counted only while observed (routing/observation.h).
  std::atomic<uint64_t> calls{0};
  std::atomic<int64_t> device_ns{0};
};

// Registers `kernel` with the dispatcher for ever.
Operator& install(const c10::OperatorHandle& handle, c10::DispatchKey key, const char* route,
                  c10::KernelFunction&& kernel);
Operator& install_boxed(const c10::OperatorHandle& handle, c10::DispatchKey key, const char* route,
                        BoxedKernel kernel);
bool is_installed(const c10::OperatorName& name, c10::DispatchKey key);
c10::OperatorHandle find(const char* name, const char* overload);

// Every installed operator, in order of installation.
std::deque<Operator>& operators();

// Counts and times one call of an observed operator.
class Observation {
 public:
  explicit Observation(Operator& op);
  ~Observation();
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

 private:
  Operator& operator_;
  void* start_ = nullptr;
};

template <class Op, class Schema = typename Op::schema>
class Typed;

template <class Op, class Result, class... Args>
class Typed<Op, Result(Args...)> {
 public:
  using Kernel = Result (*)(Args...);

  static void install(const char* route, Kernel kernel) {
    kernel_ = kernel;
    entry_.store(kernel, std::memory_order_relaxed);
    operator_ =
        &routing::install(find(Op::name, Op::overload_name), c10::DispatchKey::PrivateUse1, route,
                          c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(&Typed::dispatch)));
    operator_->set_observed = &set_observed;
  }
  // The same kernel for tensors of another layout. After install().
  static void also_for(c10::DispatchKey key) {
    routing::install(operator_->handle, key, operator_->route,
                     c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(&Typed::dispatch)));
  }

 private:
  static Result dispatch(Args... args) {
    return entry_.load(std::memory_order_relaxed)(std::forward<Args>(args)...);
  }
  static Result observed(Args... args) {
    const Observation observation(*operator_);
    return kernel_(std::forward<Args>(args)...);
  }
  static void set_observed(bool on) {
    entry_.store(on ? &observed : kernel_, std::memory_order_relaxed);
  }

  static inline std::atomic<Kernel> entry_{nullptr};
  static inline Kernel kernel_ = nullptr;
  static inline Operator* operator_ = nullptr;
};

}  // namespace torch_fl::routing
