// Owns: the dropout state of recurrent layers. It is made as PyTorch makes the target's own, from a
// number of the device's generator, at the first layer that drops something: so the same seed gives
// the same numbers.
#include "aten/recurrent_dropout.h"

#include <ATen/ops/_cudnn_init_dropout_state_ops.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/item_ops.h>
#include <ATen/ops/random_ops.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <deque>
#include <optional>

#include "device/runtime.h"
#include "device/target.h"

namespace torch_fl {

struct RecurrentDropout::State {
  std::mutex mutex;
  at::Tensor buffer;
  std::optional<c10::Stream> last;  // the stream that used it
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

}  // namespace

RecurrentDropout::RecurrentDropout(const at::Tensor& input, double probability, bool train) {
  if (!train || probability == 0) return;
  const auto device = input.device().index();
  state_ = &state_of(device);
  lock_ = std::unique_lock<std::mutex>(state_->mutex);
  const c10::impl::VirtualGuardImpl guard(kFlagos);
  const auto stream = guard.getStream(input.device());
  if (!state_->buffer.defined()) {
    state_->buffer = made(input, probability);
  } else if (*state_->last != stream && !runtime().is_capturing(device, stream.id())) {
    // (A graph that is being recorded cannot wait for what is not in it.)
    c10::Event done(kFlagos);
    done.record(*state_->last);
    done.block(stream);
  }
  state_->last = stream;
}

RecurrentDropout::~RecurrentDropout() = default;

const at::Tensor& RecurrentDropout::buffer() const {
  static const at::Tensor kNone;
  return state_ == nullptr ? kNone : state_->buffer;
}

}  // namespace torch_fl
