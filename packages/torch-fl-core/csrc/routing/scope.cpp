// Owns: scopes, kept where PyTorch keeps what follows a thread into its helpers.
#include "routing/scope.h"

#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>
#include <string_view>

#include "routing/operator.h"

namespace torch_fl::routing {
namespace {

constexpr std::string_view kName = "flagos routes";

// Before torch 2.13 the kinds are a closed list, with two for whoever has none.
template <class Kind>
Kind scope_kind() {
  if constexpr (std::is_enum_v<Kind>) {
    return Kind::TEST_INFO_2;
  } else {
    return Kind(&kName);
  }
}

struct Scope final : c10::DebugInfoBase, std::enable_shared_from_this<Scope> {
  ScopedPlans plans;  // sorted by operator
  std::shared_ptr<Scope> outer;
  std::atomic<bool> open{true};
};

Scope* current() {
  return static_cast<Scope*>(c10::ThreadLocalDebugInfo::get(scope_kind<c10::DebugInfoKind>()));
}

}  // namespace

std::shared_ptr<void> open_scope(ScopedPlans plans) {
  auto scope = std::make_shared<Scope>();
  std::sort(plans.begin(), plans.end());
  scope->plans = std::move(plans);
  if (auto* outer = current()) scope->outer = outer->shared_from_this();
  for (const auto& [op, plan] : scope->plans) add_scope(*op, 1);
  c10::ThreadLocalDebugInfo::_push(scope_kind<c10::DebugInfoKind>(), scope);
  return scope;
}

void close_scope(const std::shared_ptr<void>& handle) {
  auto* scope = static_cast<Scope*>(handle.get());
  if (!scope->open.exchange(false)) return;
  for (const auto& [op, plan] : scope->plans) add_scope(*op, -1);
  if (current() != scope) return;  // closed from another thread, or out of order
  try {
    c10::ThreadLocalDebugInfo::_pop(scope_kind<c10::DebugInfoKind>());
  } catch (const c10::Error&) {
    // A profiler was started inside and still runs: its entry lies on top. A closed scope is no
    // longer asked, so it may stay underneath.
    return;
  }
}

const std::pair<Operator*, const Plan*>* scoped_plan(const Operator& op) {
  for (const auto* scope = current(); scope != nullptr; scope = scope->outer.get()) {
    if (!scope->open.load(std::memory_order_relaxed)) continue;
    const auto found = std::lower_bound(
        scope->plans.begin(), scope->plans.end(), &op,
        [](const auto& entry, const Operator* wanted) { return entry.first < wanted; });
    if (found != scope->plans.end() && found->first == &op) return &*found;
  }
  return nullptr;
}

}  // namespace torch_fl::routing
