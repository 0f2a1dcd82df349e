// Owns: torch.autocast("flagos"). The policy of every operator comes from the lists in PyTorch's own
// header, those it has for every accelerator.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "aten/own_operators.h"

namespace torch_fl {
namespace {

// The header's macros name types and policies without a namespace.
using namespace at;
using namespace at::autocast;

// CUDA's rule: a loss over probabilities cannot be computed safely in low precision.
at::Tensor refuse_binary_cross_entropy(const at::Tensor&, const at::Tensor&,
                                       const std::optional<at::Tensor>&, int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to "
              "autocast: their inputs are probabilities. Use "
              "torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, "
              "or leave the autocast region for the loss.");
}

void register_policies(torch::Library& m) {
#define TORCH_FL_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define TORCH_FL_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define TORCH_FL_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define TORCH_FL_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(TORCH_FL_LOWER_PRECISION)
  AT_FORALL_FP32(TORCH_FL_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TORCH_FL_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(TORCH_FL_PROMOTE)
#undef TORCH_FL_LOWER_PRECISION
#undef TORCH_FL_FP32
#undef TORCH_FL_FP32_SET_OPT_DTYPE
#undef TORCH_FL_PROMOTE
  m.impl("binary_cross_entropy", TORCH_FN(refuse_binary_cross_entropy));
}

}  // namespace

void install_autocast() {
  constexpr auto kKey = c10::DispatchKey::AutocastPrivateUse1;
  static auto* fallback = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  fallback->fallback(torch::CppFunction::makeFallthrough());
  static auto* policies =
      new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  register_policies(*policies);
}

}  // namespace torch_fl
