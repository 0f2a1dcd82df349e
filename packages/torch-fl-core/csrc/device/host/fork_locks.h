// Owns: the allocator's locks across fork(). A child may free what it inherits; without this a lock
// that another thread held at that moment would never be given back in it.
#pragma once
#include <vector>

#include "device/host/pool.h"

namespace torch_fl::host {

// From now on, while the process forks, nobody is in the middle of a change of `pools` or the arena.
// Once per process; the pools live as long as it does.
void hold_while_forking(std::vector<Pool*> pools);

}  // namespace torch_fl::host
