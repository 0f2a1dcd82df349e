// Owns: what a route is, and plans: for one operator, which routes its calls try, by dtype.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "export.h"

namespace torch_fl::routing {

enum class Route : uint8_t {
  kCore,          // the device's own: memory, copies, views
  kBoxing,        // the target's operator on relabelled tensors
  kComposite,     // PyTorch's own composition
  kCpu,           // PyTorch's CPU kernel on copies
  kKernel,        // a kernel that somebody registered, on flagos tensors
  kTargetKernel,  // the same, on the target's tensors, relabelled as boxing does it
};

// One try. A kernel may refuse the call; then the next step is tried.
struct Step {
  Route route;
  // What reports call it: the route's word, or who provides the kernel. Interned.
  const char* label;
  // The operator that carries a registered kernel, of the same schema, under the key of the device
  // whose tensors the kernel takes.
  std::optional<c10::OperatorHandle> kernel = std::nullopt;

  // Only registered kernels refuse calls.
  bool may_refuse() const { return route == Route::kKernel || route == Route::kTargetKernel; }
  bool operator==(const Step& other) const {
    return route == other.route && label == other.label && kernel == other.kernel;
  }
};
using Chain = std::vector<Step>;

// Immutable. Lives as long as the process, since calls under way may be reading it: equal plans are
// one plan, so switching to and fro costs nothing.
struct Plan {
  static constexpr size_t kDtypes = 64;
  static_assert(static_cast<size_t>(c10::ScalarType::NumOptions) <= kDtypes);

  std::vector<Chain> chains;
  std::array<uint8_t, kDtypes> chain_of{};  // index into `chains`, by dtype

  const Chain& chain(c10::ScalarType dtype) const {
    return chains[chain_of[static_cast<size_t>(dtype)]];
  }
  bool begins_with(Route route, c10::ScalarType dtype) const {
    return chain(dtype).front().route == route;
  }
};

// The one plan equal to `plan`. Every chain must have a step.
FLAGOS_API const Plan* intern(Plan plan);
// The one text equal to `label`, for as long as the process lives.
FLAGOS_API const char* intern(const std::string& label);
FLAGOS_API const char* name_of(Route route);

}  // namespace torch_fl::routing
