// Owns: the plans and labels of the process.
#include "routing/plan.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <unordered_set>

namespace torch_fl::routing {
namespace {

std::mutex g_mutex;

}  // namespace

const Plan* intern(Plan plan) {
  static auto* plans = new std::deque<Plan>;
  for (const auto& chain : plan.chains) TORCH_CHECK(!chain.empty(), "A plan's chain is empty.");
  const std::lock_guard<std::mutex> lock(g_mutex);
  const auto known = std::find_if(plans->begin(), plans->end(), [&](const Plan& other) {
    return other.chain_of == plan.chain_of && other.chains == plan.chains;
  });
  return known != plans->end() ? &*known : &plans->emplace_back(std::move(plan));
}

const char* intern(const std::string& label) {
  static auto* labels = new std::unordered_set<std::string>;  // its nodes never move
  const std::lock_guard<std::mutex> lock(g_mutex);
  return labels->insert(label).first->c_str();
}

const char* name_of(Route route) {
  switch (route) {
    case Route::kCore:
      return "core";
    case Route::kBoxing:
      return "boxing";
    case Route::kComposite:
      return "composite";
    case Route::kCpu:
      return "cpu";
    case Route::kKernel:
      return "kernel";
    case Route::kTargetKernel:
      return "target kernel";
  }
  return "";
}

}  // namespace torch_fl::routing
