// Owns: installing a composition of our own in the place of one of PyTorch's. It consists of operators
// that autograd knows, so it stands under the autograd key as well and no gradient is lost.
#pragma once
#include "routing/operator.h"

namespace torch_fl {

template <auto kComposition>
void install_composition(const char* name, const char* overload) {
  for (const auto key : {c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutogradPrivateUse1}) {
    routing::install(routing::find(name, overload), key, routing::Route::kCore,
                     c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(kComposition)));
  }
}

}  // namespace torch_fl
