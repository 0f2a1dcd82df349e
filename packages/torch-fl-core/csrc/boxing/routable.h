// Owns: which operators can be routed, and by which of the routes that need no kernel of anybody's.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "export.h"
#include "routing/operator.h"

namespace torch_fl {

struct Routable {
  std::string name;  // "aten::add.Tensor"
  std::string own;  // the route of its own: what runs where nobody said anything; "" if nothing can
  bool fixed = false;      // a view, the device's own, another package's: no route replaces it
  bool implicit = false;   // made of other operators, also for autograd: it never reaches a device
  bool boxing = false;     // the target has a kernel
  bool composite = false;  // PyTorch has a composition
  bool cpu = false;        // the CPU has a kernel, and it would give what the device gives
};

// Every operator of this process that has a schema.
FLAGOS_API std::vector<Routable> routable_operators();

// The operator, installed now if it was not yet (a call under way in another thread may miss that).
// Throws for an unknown, fixed or implicit one.
FLAGOS_API routing::Operator& routable(const std::string& name);

}  // namespace torch_fl
