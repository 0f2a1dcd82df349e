// Owns: a recurrent layer's weights in one piece of memory. The order is the library's secret: it is
// learnt by letting the library flatten aliases, once for each piece of memory.
#include "aten/recurrent_weights.h"

#include <ATen/ops/_cudnn_rnn_flatten_weight_ops.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/set_ops.h>
#include <c10/util/flat_hash_map.h>

#include <mutex>
#include <utility>
#include <vector>

#include "aten/plain.h"
#include "boxing/interchange.h"
#include "boxing/relabeling.h"

namespace torch_fl {
namespace {

using at::Tensor;
using at::TensorList;
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

// The library's own piece, on the target, with `aliases` moved into it.
Tensor flatten(const std::vector<Tensor>& aliases, const RecurrentShape& shape) {
  return at::_ops::_cudnn_rnn_flatten_weight::call(
      aliases, shape.weights_in_a_layer, shape.input_size, shape.mode, shape.hidden_size,
      shape.projection_size, shape.layers, shape.batch_first, shape.bidirectional);
}

std::vector<int64_t> offsets_of(TensorList weights) {
  std::vector<int64_t> offsets;
  offsets.reserve(weights.size());
  for (const Tensor& weight : weights) offsets.push_back(weight.storage_offset());
  return offsets;
}

// Whether the library would put `weights` where they are.
bool lie_in_order(TensorList weights, const RecurrentShape& shape) {
  Relabeling call;
  std::vector<Tensor> aliases;
  for (const Tensor& weight : weights) aliases.push_back(call.alias(weight));
  const Tensor piece = flatten(aliases, shape);
  if (piece.storage().nbytes() != storage_of(weights[0])->nbytes()) return false;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (aliases[i].storage_offset() != weights[i].storage_offset() ||
        aliases[i].strides() != weights[i].strides()) {
      return false;
    }
  }
  return true;
}

struct Known {
  WeakStorage storage;
  std::vector<int64_t> offsets;
  bool in_order;
};

// Pieces of memory that have been asked about.
struct Pieces {
  std::mutex mutex;
  ska::flat_hash_map<const c10::StorageImpl*, Known> known;
};

Pieces& pieces() {
  static auto* instance = new Pieces;
  return *instance;
}

}  // namespace

Tensor flatten_weights(TensorList weights, const RecurrentShape& shape) {
  std::vector<Tensor> aliases;
  Tensor piece;
  {
    Relabeling call;
    for (const Tensor& weight : weights) aliases.push_back(call.alias(weight));
    // Not `wrap`: by now it shares its memory with the aliases, which are no longer the weights.
    piece = from_target(flatten(aliases, shape), call.device());
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (aliases[i].storage().data() != piece.storage().data()) continue;  // left where it was
    Tensor weight = weights[i];
    at::_ops::set__source_Storage_storage_offset::call(
        weight, piece.storage(), aliases[i].sym_storage_offset(), aliases[i].sym_sizes(),
        aliases[i].sym_strides());
  }
  return piece;
}

Tensor flat_buffer(TensorList weights, const RecurrentShape& shape) {
  if (!is_plain(weights[0])) return {};
  auto* const storage = storage_of(weights[0]);
  for (const Tensor& weight : weights) {
    if (!is_plain(weight) || storage_of(weight) != storage ||
        weight.scalar_type() != weights[0].scalar_type()) {
      return {};
    }
  }
  auto offsets = offsets_of(weights);
  bool in_order = false;
  auto& all = pieces();
  std::unique_lock<std::mutex> lock(all.mutex);
  const auto found = all.known.find(storage);
  if (found != all.known.end() && !found->second.storage.expired() &&
      found->second.offsets == offsets) {
    in_order = found->second.in_order;
  } else {
    lock.unlock();
    in_order = lie_in_order(weights, shape);
    lock.lock();
    for (auto entry = all.known.begin(); entry != all.known.end();) {
      entry = entry->second.storage.expired() ? all.known.erase(entry) : std::next(entry);
    }
    const auto owner = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage);
    all.known.insert_or_assign(storage, Known{WeakStorage(owner), std::move(offsets), in_order});
  }
  lock.unlock();
  if (!in_order) return {};
  auto buffer = at::_ops::empty_memory_format::call(
      {0}, weights[0].scalar_type(), at::kStrided, weights[0].device(), std::nullopt, std::nullopt);
  const auto size = static_cast<int64_t>(storage->nbytes() / weights[0].element_size());
  at::_ops::set__source_Storage_storage_offset::call(buffer, weights[0].storage(), 0, {size}, {1});
  return buffer;
}

}  // namespace torch_fl
