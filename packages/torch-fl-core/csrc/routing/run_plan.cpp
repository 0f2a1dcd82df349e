// Owns: running a chain: step by step until one carries the call out.
#include <c10/util/SmallVector.h>

#include <optional>
#include <sstream>

#include "routing/fallback.h"
#include "routing/operator.h"
#include "routing/refusal.h"

namespace torch_fl::routing {
namespace {

thread_local bool t_refused = false;
Boxing g_boxing{};

// False where the kernel says that it does not support this call.
bool run_kernel(Operator& op, const Step& step, torch::jit::Stack* stack) {
  t_refused = false;  // a kernel that somebody called as a function may have left it
  try {
    TORCH_INTERNAL_ASSERT(step.kernel, "a registered kernel's step has no kernel");
    const auto& kernel = *step.kernel;
    if (step.route == Route::kTargetKernel) {
      g_boxing.relabelled(op, kernel, stack);
    } else {
      kernel.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
    }
    return true;
  } catch (...) {
    if (!std::exchange(t_refused, false)) throw;
    return false;
  }
}

bool run_step(Operator& op, const Step& step, const c10::OperatorHandle& handle,
              torch::jit::Stack* stack) {
  std::optional<Observation> observation;
  if (C10_UNLIKELY(watched())) {
    observation.emplace(op, step.label, call_device(arguments_of(handle, *stack)));
  }
  switch (step.route) {
    case Route::kComposite:
      handle.redispatchBoxed(c10::DispatchKeySet(kComposition), stack);
      return true;
    case Route::kCpu:
      fall_back_to_cpu(op, handle, stack);
      return true;
    case Route::kKernel:
    case Route::kTargetKernel:
      return run_kernel(op, step, stack);
    case Route::kCore:
    case Route::kBoxing:
      op.kernel(op, handle, stack);
      return true;
  }
  return true;
}

[[noreturn]] void all_refused(const c10::OperatorHandle& handle, const Chain& chain,
                              at::ScalarType dtype) {
  std::ostringstream tried;
  for (const auto& step : chain) tried << (tried.tellp() > 0 ? ", " : "") << step.label;
  TORCH_CHECK_NOT_IMPLEMENTED(false, "flagos: no route of '", handle.operator_name(),
                              "' carries out this call (dtype ", c10::toString(dtype), "): tried ",
                              tried.str(),
                              ". Add a route to its chain, such as cpu: ", "torch_fl.routing.set('",
                              handle.operator_name(), "', '", tried.str(), ", cpu').");
}

}  // namespace

void set_boxing(Boxing boxing) { g_boxing = boxing; }

void refuse_call() noexcept { t_refused = true; }

void run_plan(Operator& op, const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const auto* plan = op.plan_here();
  if (plan == nullptr) {
    std::optional<Observation> observation;
    if (watched()) {
      observation.emplace(op, name_of(op.route), call_device(arguments_of(handle, *stack)));
    }
    op.kernel(op, handle, stack);
    return;
  }
  const auto arguments = arguments_of(handle, *stack);
  const size_t count = arguments.size();
  const auto dtype = call_dtype(handle.schema(), arguments);
  const auto& chain = plan->chain(dtype);
  const auto first = chain.front().route;
  if (first == Route::kCpu || first == Route::kKernel) g_boxing.check_devices(handle, arguments);
  for (const auto& step : chain) {
    const bool may_go_on = step.may_refuse() && &step != &chain.back();
    if (!may_go_on) {
      if (run_step(op, step, handle, stack)) return;
      break;
    }
    // A kernel takes its arguments from the stack before it can refuse.
    const size_t base = stack->size() - count;
    const c10::SmallVector<c10::IValue, 8> kept(stack->begin() + base, stack->end());
    if (run_step(op, step, handle, stack)) return;
    stack->resize(base);
    stack->insert(stack->end(), kept.begin(), kept.end());
  }
  all_refused(handle, chain, dtype);
}

}  // namespace torch_fl::routing
