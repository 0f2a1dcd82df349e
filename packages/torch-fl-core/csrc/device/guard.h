// Owns: c10's device guard for flagos.
#pragma once

namespace torch_fl {

// Once per process; the guard lives for ever.
void register_guard();

}  // namespace torch_fl
