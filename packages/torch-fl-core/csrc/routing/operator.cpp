// Owns: the operators flagos has installed, their registrations, and what their entries point to.
#include "routing/operator.h"

#include <pthread.h>

#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
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

// Registrations are kept for ever.
struct Table {
  std::deque<Operator> operators;
  std::vector<c10::RegistrationHandleRAII> registrations;
  std::unordered_map<std::string, Operator*> by_name;
};

Table& table() {
  static auto* instance = new Table;
  return *instance;
}

std::string row(const c10::OperatorName& name, c10::DispatchKey key) {
  return std::string(c10::toString(key)) + ' ' + name.name + '.' + name.overload_name;
}

void asking_boxed(Operator& op, const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  run_plan(op, handle, stack);
}

std::mutex g_changing;  // whoever computes an entry from the state of an operator
std::atomic<bool> g_watched{false};
std::atomic<const char*> g_refusal{nullptr};

void refresh(Operator& op) {
  const bool direct =
      !g_watched && g_refusal == nullptr && op.plan.load() == nullptr && op.scopes.load() == 0;
  if (op.set_entry != nullptr) {
    op.set_entry(direct);
  } else if (op.kernel != nullptr) {
    op.entry.store(direct ? op.kernel : &asking_boxed, std::memory_order_relaxed);
  }
}

void add(Operator& op, c10::KernelFunction&& kernel) {
  const auto& name = op.handle.operator_name();
  table().by_name.emplace(row(name, op.key), &op);
  table().registrations.push_back(c10::Dispatcher::singleton().registerImpl(
      name, op.key, std::move(kernel), std::nullopt, nullptr, "torch_fl"));
}

}  // namespace

Operator& install(const c10::OperatorHandle& handle, c10::DispatchKey key, Route own,
                  c10::KernelFunction&& kernel) {
  const std::lock_guard<std::mutex> lock(g_changing);
  auto& op = table().operators.emplace_back(handle, key, own);
  add(op, std::move(kernel));
  return op;
}

Operator& install_boxed(const c10::OperatorHandle& handle, c10::DispatchKey key, Route own,
                        BoxedKernel kernel) {
  auto functor = std::make_unique<BoxedDispatch>();
  auto* dispatch = functor.get();
  const std::lock_guard<std::mutex> lock(g_changing);
  auto& op = table().operators.emplace_back(handle, key, own);
  op.kernel = kernel;
  refresh(op);
  dispatch->bind(op);
  add(op, c10::KernelFunction::makeFromBoxedFunctor(std::move(functor)));
  return op;
}

bool is_installed(const c10::OperatorName& name, c10::DispatchKey key) {
  return table().by_name.count(row(name, key)) > 0;
}

c10::OperatorHandle find(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

Operator* find_installed(const c10::OperatorName& name) {
  const std::lock_guard<std::mutex> lock(g_changing);
  const auto found = table().by_name.find(row(name, c10::DispatchKey::PrivateUse1));
  return found == table().by_name.end() ? nullptr : found->second;
}

void for_each_operator(const std::function<void(Operator&)>& visit) {
  const std::lock_guard<std::mutex> lock(g_changing);
  for (auto& op : table().operators) visit(op);
}

void set_plan(Operator& op, const Plan* plan) {
  const std::lock_guard<std::mutex> lock(g_changing);
  op.plan.store(plan, std::memory_order_release);
  refresh(op);
}

void add_scope(Operator& op, int count) {
  const std::lock_guard<std::mutex> lock(g_changing);
  op.scopes += count;
  refresh(op);
}

void set_watched(bool on) {
  const std::lock_guard<std::mutex> lock(g_changing);
  g_watched = on;
  for (auto& op : table().operators) refresh(op);
}

bool watched() {
  if (const char* reason = g_refusal.load(std::memory_order_relaxed); C10_UNLIKELY(reason)) {
    TORCH_CHECK(false, reason);
  }
  return g_watched.load(std::memory_order_relaxed);
}

void refuse_calls(const char* reason) {
  const std::lock_guard<std::mutex> lock(g_changing);
  g_refusal = reason;
  for (auto& op : table().operators) refresh(op);
}

void refuse_after_fork(const char* reason) {
  // pthread_atfork gives no arguments. The child has one thread: a lock that another thread of the
  // parent held stays locked, so none is taken.
  static const char* told = nullptr;
  told = reason;
  pthread_atfork(nullptr, nullptr, [] {
    g_refusal = told;
    for (auto& op : table().operators) refresh(op);
  });
}

}  // namespace torch_fl::routing
