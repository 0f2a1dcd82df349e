// Owns: the dispatching kernel. PyTorch's dispatcher gets one stateless kernel per operator, once;
// what it runs sits behind an atomic pointer, because PyTorch's own table is not safe to change
// while other threads call. A call costs one relaxed load and an indirect call.
//
// Behind the pointer is either the operator's own route itself, or, while it has a plan or is
// watched, an entry that asks for the plan first.
#pragma once
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "export.h"
#include "routing/call_device.h"
#include "routing/call_dtype.h"
#include "routing/plan.h"
#include "routing/scope.h"

namespace torch_fl::routing {

// True while this thread makes the copies of a fallback (fallback.h).
bool falling_back() noexcept;

struct Operator;
using BoxedKernel = void (*)(Operator&, const c10::OperatorHandle&, torch::jit::Stack*);

// Whatever somebody counted about one operator and one label.
struct Count {
  std::atomic<uint64_t> calls{0};
  std::atomic<int64_t> device_ns{0};
  std::atomic<uint64_t> bytes_moved{0};
};

// One operator under one flagos dispatch key. Lives as long as the process.
struct Operator {
  Operator(c10::OperatorHandle op, c10::DispatchKey dispatch_key, Route own)
      : handle(std::move(op)), key(dispatch_key), route(own), name(handle.operator_name()) {}

  const c10::OperatorHandle handle;
  const c10::DispatchKey key;
  const Route route;  // its own: what runs where nobody said anything

  // The own route on a stack. Null: the operator is the device's own and no plan may replace it.
  BoxedKernel kernel = nullptr;
  // What a call runs now. A typed operator's entry has the operator's own C++ type and is elsewhere;
  // `set_entry` switches it between the own route (true) and the asking entry (false).
  std::atomic<BoxedKernel> entry{nullptr};
  void (*set_entry)(bool direct) = nullptr;

  std::atomic<const Plan*> plan{nullptr};  // for all threads; null: the own route
  std::atomic<int> scopes{0};              // open scopes that name this operator

  Count fallback;  // of the cpu route, always counted

  // For whoever tells of the operator later: a library may have been unloaded then, and the handle
  // with it.
  const c10::OperatorName name;
  std::atomic<uint8_t> device_rule{0xff};  // what boxing has found out about it (device_rules.h)

  // The plan of this thread's calls. The copies that a fallback makes take their own routes: theirs
  // may be the fallback too.
  const Plan* plan_here() const {
    if (C10_UNLIKELY(falling_back())) return nullptr;
    if (C10_UNLIKELY(scopes.load(std::memory_order_relaxed) > 0)) {
      if (const auto* scoped = scoped_plan(*this)) return scoped->second;
    }
    return plan.load(std::memory_order_acquire);
  }
};

// -- installing, at activation. Nothing is ever taken out again: a call under way in another thread
//    may still be in it.

Operator& install(const c10::OperatorHandle& handle, c10::DispatchKey key, Route own,
                  c10::KernelFunction&& kernel);
Operator& install_boxed(const c10::OperatorHandle& handle, c10::DispatchKey key, Route own,
                        BoxedKernel kernel);
// What boxing does for other routes: it runs a kernel that takes the target's tensors (`handle` carries
// it), and applies the rules about tensors of several devices.
struct Boxing {
  BoxedKernel relabelled;
  void (*check_devices)(const c10::OperatorHandle& handle, c10::ArrayRef<c10::IValue> arguments);
};
void set_boxing(Boxing boxing);
bool is_installed(const c10::OperatorName& name, c10::DispatchKey key);
c10::OperatorHandle find(const char* name, const char* overload);

// The operator of that name for strided tensors, if it is installed.
FLAGOS_API Operator* find_installed(const c10::OperatorName& name);
FLAGOS_API void for_each_operator(const std::function<void(Operator&)>& visit);

// -- changing, at any time, from any thread

FLAGOS_API void set_plan(Operator& op, const Plan* plan);
void add_scope(Operator& op, int count);
// While anything is watched, every call says what it runs (routing/observation.h).
void set_watched(bool on);
// From now on every call throws `reason`, until it is null.
FLAGOS_API void refuse_calls(const char* reason);
// In a child process after fork(), where the device cannot go on: every call throws `reason`.
FLAGOS_API void refuse_after_fork(const char* reason);

// -- running

// True while calls are counted or logged. Throws while calls are refused.
bool watched();
// Runs the chain of this thread's plan for the call on the stack.
void run_plan(Operator& op, const c10::OperatorHandle& handle, torch::jit::Stack* stack);

// Counts, times and logs one call, as it was asked for. `device`: the call's; -1 for the current one.
class Observation {
 public:
  Observation(Operator& op, const char* label, c10::DeviceIndex device);
  ~Observation();
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

 private:
  void finish();

  Count* count_ = nullptr;
  c10::DeviceIndex device_ = -1;
  void* start_ = nullptr;
};

template <class Op, class Schema = typename Op::schema>
class Typed;

template <class Op, class Result, class... Args>
class Typed<Op, Result(Args...)> {
 public:
  using Kernel = Result (*)(Args...);

  // `kernel` is the own route, `stacked` the same on a stack.
  static void install(Route own, Kernel kernel, BoxedKernel stacked) {
    install_as(own, kernel, &Typed::set_entry<&Typed::asking>);
    operator_->kernel = stacked;
  }
  // One of the device's own, which no plan replaces.
  static void install_fixed(Kernel kernel, Route own = Route::kCore) {
    install_as(own, kernel, &Typed::set_entry<&Typed::observed>);
  }
  // The same kernel for tensors of another layout. After an install.
  static void also_for(c10::DispatchKey key) {
    routing::install(operator_->handle, key, operator_->route,
                     c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(&Typed::dispatch)));
  }

 private:
  static void install_as(Route own, Kernel kernel, void (*set_entry)(bool)) {
    kernel_ = kernel;
    entry_.store(kernel, std::memory_order_relaxed);
    operator_ =
        &routing::install(find(Op::name, Op::overload_name), c10::DispatchKey::PrivateUse1, own,
                          c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(&Typed::dispatch)));
    operator_->set_entry = set_entry;
  }

  static Result dispatch(Args... args) {
    return entry_.load(std::memory_order_relaxed)(std::forward<Args>(args)...);
  }
  static Result observed(Args... args) {
    if (!watched()) return kernel_(std::forward<Args>(args)...);
    const Observation observation(*operator_, name_of(operator_->route), call_device(args...));
    return kernel_(std::forward<Args>(args)...);
  }
  static Result asking(Args... args) {
    const auto* plan = operator_->plan_here();
    if (plan == nullptr || plan->begins_with(operator_->route, call_dtype(args...))) {
      return observed(std::forward<Args>(args)...);
    }
    // Never destroyed: a thread may still call while the process ends.
    static const auto& stacked =
        *new c10::BoxedKernel(c10::BoxedKernel::makeFromFunctor(std::make_unique<Stacked>()));
    return c10::impl::BoxedKernelWrapper<Result(Args...)>::call(stacked, operator_->handle,
                                                                c10::DispatchKeySet(operator_->key),
                                                                std::forward<Args>(args)...);
  }
  struct Stacked final : c10::OperatorKernel {
    void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet,
                    torch::jit::Stack* stack) {
      run_plan(*operator_, handle, stack);
    }
  };

  template <auto kAsking>
  static void set_entry(bool direct) {
    entry_.store(direct ? kernel_ : kAsking, std::memory_order_relaxed);
  }

  static inline std::atomic<Kernel> entry_{nullptr};
  static inline Kernel kernel_ = nullptr;
  static inline Operator* operator_ = nullptr;
};

}  // namespace torch_fl::routing
