// Owns: the cpu route: PyTorch's CPU kernel on copies. Always counted; an error where the user does
// not want it.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "export.h"

namespace torch_fl::routing {

struct Operator;

// A dispatch key that no backend registers: what runs under it is PyTorch's own composition.
constexpr c10::DispatchKey kComposition = c10::DispatchKey::FPGA;

void fall_back_to_cpu(Operator& op, const c10::OperatorHandle& handle, torch::jit::Stack* stack);

struct FallbackRules {
  bool forbidden = false;  // FLAGOS_STRICT
  bool logged = false;     // FLAGOS_LOG_FALLBACK
};
FLAGOS_API void set_fallback_rules(FallbackRules rules);

}  // namespace torch_fl::routing
