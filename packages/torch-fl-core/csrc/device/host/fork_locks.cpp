// Owns: the handlers that fork() calls.
#include "device/host/fork_locks.h"

#include <pthread.h>

#include "device/host/arena.h"

namespace torch_fl::host {
namespace {

std::vector<Pool*>& all() {
  static auto* pools = new std::vector<Pool*>;
  return *pools;
}

void take() {
  for (auto* pool : all()) pool->lock();
  Arena::instance().lock();
}

void give() {
  Arena::instance().unlock();
  for (auto* pool : all()) pool->unlock();
}

}  // namespace

void hold_while_forking(std::vector<Pool*> pools) {
  all() = std::move(pools);
  pthread_atfork(&take, &give, &give);
}

}  // namespace torch_fl::host
