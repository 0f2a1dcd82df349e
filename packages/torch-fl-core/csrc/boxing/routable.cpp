// Owns: what the dispatcher says about an operator, in the words of routes.
#include "boxing/routable.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "boxing/boxed.h"
#include "boxing/composites.h"
#include "device/target.h"
#include "routing/fallback.h"

namespace torch_fl {
namespace {

using c10::DispatchKey;
using routing::Route;

bool has_composition(const c10::OperatorHandle& handle) {
  if (composes_by_device(handle.operator_name())) return false;
  return handle.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
         handle.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// Results of a view share memory with an argument, and as_strided_ and its like look at their
// argument's memory in another way; on another route they would not.
bool is_view(const c10::OperatorHandle& handle) {
  const auto& schema = handle.schema();
  if (handle.hasTag(at::Tag::inplace_view)) return true;
  return std::any_of(schema.returns().begin(), schema.returns().end(), [](const auto& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

// Draws from a generator that no argument names: on the CPU from the CPU's, not from the device's.
bool draws_in_silence(const c10::OperatorHandle& handle) {
  const auto& arguments = handle.schema().arguments();
  return handle.hasTag(at::Tag::nondeterministic_seeded) &&
         std::none_of(arguments.begin(), arguments.end(),
                      [](const auto& argument) { return argument.name() == "generator"; });
}

// Depends on more of a tensor's memory than its elements, or returns a view without saying so (the
// schema of prims::as_strided says that it writes). On copies the first reads other values, and what
// is written to the second is lost.
bool needs_the_memory_itself(const std::string& name) {
  return name == "aten::as_strided_copy" || name == "aten::as_strided_scatter" ||
         name == "aten::_unsafe_view" || name == "aten::unsafe_split" ||
         name == "aten::unsafe_split_with_sizes" || name == "prims::as_strided";
}

bool runs_on_cpu(const c10::OperatorHandle& handle, bool composite) {
  return (composite || handle.hasKernelForDispatchKey(DispatchKey::CPU)) &&
         !draws_in_silence(handle) && !needs_the_memory_itself(handle.operator_name().name);
}

Routable describe(const c10::OperatorHandle& handle) {
  const auto& name = handle.operator_name();
  Routable result;
  result.name = c10::toString(name);
  result.composite = has_composition(handle);
  result.boxing = handle.hasKernelForDispatchKey(target().dense) || boxed_whole(name);
  result.cpu = runs_on_cpu(handle, result.composite);
  if (const auto* op = routing::find_installed(name)) {
    const bool refusing = op->route == Route::kBoxing && !result.boxing && op->kernel != nullptr;
    result.own = refusing ? "" : routing::name_of(op->route);
    result.fixed = op->kernel == nullptr || is_view(handle);
    return result;
  }
  result.fixed = handle.hasKernelForDispatchKey(DispatchKey::PrivateUse1);
  result.implicit = !result.fixed && !result.boxing && !result.composite &&
                    handle.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
  if (result.fixed) {
    result.own = "another package's";
    return result;
  }
  result.fixed = !result.implicit && is_view(handle);
  if (result.boxing) {
    result.own = "boxing";
  } else if (result.composite || result.implicit) {
    result.own = "composite";
  }
  return result;
}

void composition(routing::Operator&, const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  handle.redispatchBoxed(c10::DispatchKeySet(routing::kComposition), stack);
}

}  // namespace

std::vector<Routable> routable_operators() {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<Routable> result;
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (const auto handle = dispatcher.findSchema(name)) result.push_back(describe(*handle));
  }
  return result;
}

routing::Operator& routable(const std::string& text) {
  const auto dot = text.find('.');
  const c10::OperatorName name(text.substr(0, dot),
                               dot == std::string::npos ? "" : text.substr(dot + 1));
  if (auto* op = routing::find_installed(name)) {
    TORCH_CHECK_VALUE(!describe(op->handle).fixed, "'", text,
                      "' is the device's own and has one route.");
    return *op;
  }
  const auto handle = c10::Dispatcher::singleton().findSchema(name);
  TORCH_CHECK_VALUE(handle, "There is no operator '", text, "'.");
  const auto described = describe(*handle);
  TORCH_CHECK_VALUE(!described.fixed && !described.implicit, "'", text, "' cannot be routed.");
  if (described.composite && !described.boxing) {
    return routing::install_boxed(*handle, DispatchKey::PrivateUse1, Route::kComposite,
                                  &composition);
  }
  return routing::install_boxed(*handle, DispatchKey::PrivateUse1, Route::kBoxing,
                                &boxed_kernel_of_others);
}

}  // namespace torch_fl
