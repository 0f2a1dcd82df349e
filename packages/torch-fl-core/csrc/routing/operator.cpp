// Owns: the operators flagos has installed, and their registrations.
#include "routing/operator.h"

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace torch_fl::routing {
namespace {

class BoxedDispatch final : public c10::OperatorKernel {
 public:
  void bind(Operator& op) { operator_ = &op; }
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet,
                  torch::jit::Stack* stack) {
    operator_->entry.load(std::memory_order_relaxed)(*operator_, handle, stack);
  }

 private:
  Operator* operator_ = nullptr;
};

// Kernels are never taken out again: a call under way in another thread may still be in one.
struct Table {
  std::deque<Operator> operators;
  std::vector<c10::RegistrationHandleRAII> registrations;
  std::unordered_set<std::string> names;
};

Table& table() {
  static auto* instance = new Table;
  return *instance;
}

std::string row(const c10::OperatorName& name, c10::DispatchKey key) {
  return std::string(c10::toString(key)) + ' ' + name.name + '.' + name.overload_name;
}

}  // namespace

Operator& install(const c10::OperatorHandle& handle, c10::DispatchKey key, const char* route,
                  c10::KernelFunction&& kernel) {
  auto& all = table();
  all.names.insert(row(handle.operator_name(), key));
  all.registrations.push_back(c10::Dispatcher::singleton().registerImpl(
      handle.operator_name(), key, std::move(kernel), std::nullopt, nullptr, "torch_fl"));
  return all.operators.emplace_back(handle, key, route);
}

Operator& install_boxed(const c10::OperatorHandle& handle, c10::DispatchKey key, const char* route,
                        BoxedKernel kernel) {
  auto functor = std::make_unique<BoxedDispatch>();
  auto* dispatch = functor.get();
  auto& op = table().operators.emplace_back(handle, key, route);
  op.kernel = kernel;
  op.entry.store(kernel, std::memory_order_relaxed);
  dispatch->bind(op);
  table().names.insert(row(handle.operator_name(), key));
  table().registrations.push_back(c10::Dispatcher::singleton().registerImpl(
      handle.operator_name(), key, c10::KernelFunction::makeFromBoxedFunctor(std::move(functor)),
      std::nullopt, nullptr, "torch_fl"));
  return op;
}

bool is_installed(const c10::OperatorName& name, c10::DispatchKey key) {
  return table().names.count(row(name, key)) > 0;
}

c10::OperatorHandle find(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

std::deque<Operator>& operators() { return table().operators; }

}  // namespace torch_fl::routing
