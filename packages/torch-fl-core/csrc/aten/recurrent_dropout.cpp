// Owns: the dropout state of recurrent layers. It is made as PyTorch makes the target's own, from a
// number of the device's generator, at the first layer that drops something and after each seed: so
// the same seed gives the same numbers.
#include "aten/recurrent_dropout.h"

#include <ATen/ops/_cudnn_init_dropout_state_ops.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/item_ops.h>
#include <ATen/ops/random_ops.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <deque>
#include <optional>

#include "device/generator.h"
#include "device/runtime.h"
#include "device/target.h"

namespace torch_fl {

struct RecurrentDropout::State {
  std::mutex mutex;
  at::Tensor buffer;
  std::optional<c10::Stream> last;  // the stream that used it
  // The target's generator when the state was made, and as it was last seen.
  uint64_t seed = 0;
  uint64_t offset = 0;
};

namespace {

RecurrentDropout::State& state_of(c10::DeviceIndex device) {
  static std::mutex mutex;
  static auto* states = new std::deque<RecurrentDropout::State>;  // (its elements never move)
  const std::lock_guard<std::mutex> lock(mutex);
  while (states->size() <= static_cast<size_t>(device)) states->emplace_back();
  return (*states)[static_cast<size_t>(device)];
}

at::Tensor made(const at::Tensor& input, double probability) {
  auto number = at::_ops::empty_memory_format::call({}, at::kLong, at::kStrided, input.device(),
                                                    std::nullopt, std::nullopt);
  const auto seed = at::_ops::item::call(at::_ops::random_::call(number, std::nullopt)).toLong();
  return at::_ops::_cudnn_init_dropout_state::call(probability, /*train=*/true, seed, at::kByte,
                                                   at::kStrided, input.device(), std::nullopt);
}

// How far the target's generator is. None while a graph is recorded, which not every runtime can tell
// otherwise.
std::optional<uint64_t> offset_of(c10::DeviceIndex device, const c10::Stream& stream) {
  if (runtime().is_capturing(device, stream.id())) return std::nullopt;
  try {
    return runtime().default_generator(device).get_offset();
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

// Also in the target's own name a generator may be seeded: then its seed is another one, or it is
// further back than it was.
bool restarted(RecurrentDropout::State& state, c10::DeviceIndex device,
               std::optional<uint64_t> offset) {
  const bool here = take_restarted(device);
  if (!offset) return here;
  const auto seed = runtime().default_generator(device).current_seed();
  return here || seed != state.seed || *offset < state.offset;
}

}  // namespace

RecurrentDropout::RecurrentDropout(const at::Tensor& input, double probability, bool train) {
  if (!train || probability == 0) return;
  const auto device = input.device().index();
  state_ = &state_of(device);
  lock_ = std::unique_lock<std::mutex>(state_->mutex);
  const c10::impl::VirtualGuardImpl guard(kFlagos);
  const auto stream = guard.getStream(input.device());
  const auto offset = offset_of(device, stream);
  if (restarted(*state_, device, offset) || !state_->buffer.defined()) {
    state_->buffer = at::Tensor();  // if there is no memory for a new one, the next layer tries
    state_->buffer = made(input, probability);
  } else if (state_->last && state_->last != stream && offset) {
    // (A graph that is being recorded cannot wait for what is not in it.)
    c10::Event done(kFlagos);
    done.record(*state_->last);
    done.block(stream);
  }
  if (offset) {
    state_->seed = runtime().default_generator(device).current_seed();
    state_->offset = runtime().default_generator(device).get_offset();
  }
  state_->last = stream;
}

RecurrentDropout::~RecurrentDropout() = default;

const at::Tensor& RecurrentDropout::buffer() const {
  static const at::Tensor kNone;
  return state_ == nullptr ? kNone : state_->buffer;
}

}  // namespace torch_fl
