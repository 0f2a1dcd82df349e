// Owns: plans for one thread's calls: what `with torch_fl.routing.use(...)` opens. A scope follows
// the thread into the threads that work for it, such as autograd's.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "export.h"

namespace torch_fl::routing {

struct Operator;
struct Plan;

using ScopedPlans = std::vector<std::pair<Operator*, const Plan*>>;

// Opens a scope in this thread, inside the one that is open. A plan may be null: the operator's own
// route.
FLAGOS_API std::shared_ptr<void> open_scope(ScopedPlans plans);
// Closes it, also for the threads it has followed into.
FLAGOS_API void close_scope(const std::shared_ptr<void>& scope);

// The innermost plan for `op` in this thread; null if no scope names it.
const std::pair<Operator*, const Plan*>* scoped_plan(const Operator& op);

}  // namespace torch_fl::routing
