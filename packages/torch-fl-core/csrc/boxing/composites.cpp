// Owns: the list of compositions that are boxed whole, each with its reason.
#include "boxing/composites.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace torch_fl {
namespace {

// Their composition goes wrong on a device that PyTorch does not know by name.
constexpr std::array<std::string_view, 11> kByDevice = {
    // chooses the implementation (oneDNN, cuDNN, ...) by device
    "aten::convolution",
    "aten::convolution_backward",
    "aten::_convolution",
    // calls a device's kernel table, which has no entry for flagos
    "aten::kaiser_window",
    "aten::kaiser_window.periodic",
    "aten::kaiser_window.beta",
    "aten::conj_physical_",
    // compares device names
    "aten::mode.values",
    "aten::mode",
    // only say that a backend must have them
    "aten::convolution_overrideable",
    "aten::convolution_backward_overrideable",
};

// One crossing instead of several, on hot paths.
constexpr std::array<std::string_view, 4> kHot = {"aten::clone", "aten::embedding",
                                                  "aten::slice_backward", "aten::select_backward"};

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + '.' + name.overload_name;
}

constexpr std::array<std::string_view, 4> kReadingGrad = {
    "aten::convolution",
    "aten::_convolution",
    "aten::_fused_sdp_choice",
    "aten::_sparse_mm_reduce_impl",
};

}  // namespace

bool reads_requires_grad(const c10::OperatorName& name) {
  return std::find(kReadingGrad.begin(), kReadingGrad.end(), name.name) != kReadingGrad.end();
}

bool boxed_whole(const c10::OperatorName& name) {
  constexpr std::string_view kForeach = "aten::_foreach_";
  // A foreach operator is a loop over tensors: boxed whole, each tensor crosses once.
  if (std::string_view(name.name).starts_with(kForeach)) {
    return std::string_view(name.overload_name).find("out") == std::string_view::npos;
  }
  return composes_by_device(name) ||
         std::find(kHot.begin(), kHot.end(), full_name(name)) != kHot.end();
}

bool composes_by_device(const c10::OperatorName& name) {
  return std::find(kByDevice.begin(), kByDevice.end(), full_name(name)) != kByDevice.end();
}

bool spans_devices(const c10::OperatorName& name) {
  return std::string_view(name.name).starts_with("aten::_foreach_");
}

}  // namespace torch_fl
