// Owns: what PyTorch's older profiler asks of the device.
#pragma once

namespace torch_fl {

// Once per process.
void install_profiler_stubs();

}  // namespace torch_fl
