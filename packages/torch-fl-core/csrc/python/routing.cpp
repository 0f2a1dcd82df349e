// Owns: the bindings of routes: what can be routed, plans, scopes, counts.
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>

#include "boxing/routable.h"
#include "device/breadcrumbs.h"
#include "python/bindings.h"
#include "routing/fallback.h"
#include "routing/observation.h"
#include "routing/operator.h"
#include "routing/plan.h"
#include "routing/refusal.h"
#include "routing/scope.h"

namespace py = pybind11;

namespace torch_fl {
namespace {

// (route, label, name of the operator that carries the kernel or None)
using StepTuple = std::tuple<std::string, std::string, std::optional<std::string>>;
// The chains, and by dtype which of them; dtypes not named take chain 0.
using PlanTuple =
    std::tuple<std::vector<std::vector<StepTuple>>, std::vector<std::pair<py::object, int>>>;

routing::Route route_of(const std::string& word) {
  using routing::Route;
  for (const auto route : {Route::kCore, Route::kBoxing, Route::kComposite, Route::kCpu,
                           Route::kKernel, Route::kTargetKernel}) {
    if (word == routing::name_of(route)) return route;
  }
  TORCH_CHECK_VALUE(false, "There is no route '", word, "'.");
}

const routing::Plan* to_plan(const std::optional<PlanTuple>& given) {
  if (!given) return nullptr;
  const auto& [chains, dtypes] = *given;
  routing::Plan plan;
  for (const auto& chain : chains) {
    auto& steps = plan.chains.emplace_back();
    for (const auto& [route, label, kernel] : chain) {
      auto& step = steps.emplace_back(routing::Step{route_of(route), routing::intern(label)});
      if (kernel) step.kernel = c10::Dispatcher::singleton().findSchemaOrThrow(kernel->c_str(), "");
    }
  }
  for (const auto& [dtype, chain] : dtypes) {
    TORCH_CHECK_TYPE(THPDtype_Check(dtype.ptr()), "A plan's dtypes are torch.dtype objects.");
    TORCH_CHECK_VALUE(chain >= 0 && static_cast<size_t>(chain) < plan.chains.size(),
                      "A plan has no chain ", chain, ".");
    const auto index = static_cast<size_t>(reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type);
    plan.chain_of[index] = static_cast<uint8_t>(chain);
  }
  return routing::intern(std::move(plan));
}

void set_plan(const std::string& name, const std::optional<PlanTuple>& plan) {
  routing::set_plan(routable(name), to_plan(plan));
}

std::shared_ptr<void> open_scope(
    const std::vector<std::pair<std::string, std::optional<PlanTuple>>>& plans) {
  routing::ScopedPlans scoped;
  scoped.reserve(plans.size());
  for (const auto& [name, plan] : plans) scoped.emplace_back(&routable(name), to_plan(plan));
  return routing::open_scope(std::move(scoped));
}

// An open scope, as Python holds it.
struct Scope {
  std::shared_ptr<void> scope;
};

py::list operators() {
  py::list rows;
  for (const auto& op : routable_operators()) {
    rows.append(
        py::make_tuple(op.name, op.own, op.fixed, op.implicit, op.boxing, op.composite, op.cpu));
  }
  return rows;
}

py::list observations() {
  py::list rows;
  const auto found = [] {
    const py::gil_scoped_release released;  // it waits for the device
    return routing::observations();
  }();
  for (const auto& row : found) {
    rows.append(py::make_tuple(row.name, row.route, row.calls, row.device_ns));
  }
  return rows;
}

py::list fallbacks() {
  py::list rows;
  for (const auto& row : routing::fallbacks()) {
    rows.append(py::make_tuple(row.name, row.calls, row.bytes_moved));
  }
  return rows;
}

}  // namespace

void bind_routing(py::module_& module) {
  // NOLINTNEXTLINE(bugprone-unused-raii): making it registers the class
  py::class_<Scope>(module, "Scope");
  def(module, "operators", operators);
  def(module, "set_plan", set_plan);
  def(module, "open_scope",
      [](const std::vector<std::pair<std::string, std::optional<PlanTuple>>>& plans) {
        return Scope{open_scope(plans)};
      });
  def(module, "close_scope", [](const Scope& scope) { routing::close_scope(scope.scope); });
  def(module, "refuse_calls", [](const std::optional<std::string>& reason) {
    routing::refuse_calls(reason ? routing::intern(*reason) : nullptr);
  });
  def(module, "refuse_call", [] { routing::refuse_call(); });

  def(module, "start_counting", routing::start_counting);
  def(module, "stop_counting", routing::stop_counting);
  def(module, "set_logging", routing::set_logging);
  def(module, "set_breadcrumbs", routing::set_breadcrumbs);
  def(module, "last_calls", breadcrumbs::last_calls);
  def(module, "set_fallback_rules", [](bool forbidden, bool logged) {
    routing::set_fallback_rules({.forbidden = forbidden, .logged = logged});
  });
  def(module, "observations", observations);
  def(module, "fallbacks", fallbacks);
}

}  // namespace torch_fl
