// Owns: the order in which flagos is registered: runtime, device, memory, operators.
#include "activation.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "aten/own_operators.h"
#include "boxing/boxed.h"
#include "boxing/typed_operators.h"
#include "device/guard.h"
#include "device/hooks.h"
#include "memory/device_allocator.h"
#include "profiler/stubs.h"

namespace torch_fl {

void activate(std::unique_ptr<Runtime> runtime) {
  TORCH_CHECK(!at::isPrivateUse1HooksRegistered() &&
                  !c10::impl::hasDeviceGuardImpl(c10::DeviceType::PrivateUse1),
              "Another backend has already claimed PrivateUse1, the one slot that PyTorch keeps "
              "for a device from outside; flagos cannot be activated beside it.");
  set_runtime(std::move(runtime));
  register_guard();
  register_allocators();
  register_hooks(&resize_storage);

  install_factories();
  install_copies();
  install_views();
  install_storage_operators();
  install_attention();
  install_fused_attention();
  install_batch_norm();
  install_library_choices();
  install_deterministic_padding();
  install_recurrent_cells();
  install_recurrent_layers();
  install_dropout();
  install_histogram();
  install_autocast();
  install_profiler_stubs();
  install_typed_operators();
  install_boxed_boxing();
}

}  // namespace torch_fl
