// Owns: the boundary of a compiled region: code that a compiler made for the target's tensors runs
// on the caller's flagos tensors, and its results become flagos tensors.
//
// Unlike a boxed call (relabeling.h) a region holds none of its arguments but those that it may write
// to: compiled code gives them up as it goes on, which is where a backward pass gets its memory from.
// An argument that it gives back is the caller's own tensor again: autograd takes a gradient for its
// own that nobody else holds, and ragged sizes go by the identity of the tensor that has them.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <utility>
#include <vector>

#include "device/kernel_scope.h"
#include "export.h"

namespace torch_fl {

class FLAGOS_API Region {
 public:
  // What the region allocates on the host belongs to flagos device `device`.
  explicit Region(c10::DeviceIndex device);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // The target's tensor for a strided flagos tensor. `written`: the region may give it another
  // storage or shape, or its storage other memory or another size.
  at::Tensor enter(const at::Tensor& tensor, bool written);

  // What the caller gets for a result of the target, on flagos device `device`. `held`: somebody
  // else holds the tensor too, so it is not relabelled where it is.
  at::Tensor leave(at::Tensor&& result, c10::DeviceIndex device, bool held);

  // Storages, shapes and memory that the region changed, to the caller's tensors. Before results
  // leave.
  void write_back();

 private:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl>;
  struct Input {
    // Weak: the addresses stay their own, the memory may go.
    WeakTensor alias;
    WeakTensor original;
    WeakStorage twin;
    WeakStorage storage;
    at::Tensor written;  // the alias, where the region may write to it
  };
  void write_back(const Input& input);
  // The first input with this alias or twin; null where there is none.
  const Input* input_of(const c10::intrusive_ptr_target* part);
  // The caller's tensor that `alias` was made of, if it is one and the caller still has it.
  at::Tensor original_of(const c10::TensorImpl* alias);
  // The flagos storage over `twin`, if the caller or an earlier result has one.
  c10::Storage known(c10::StorageImpl* twin);

  KernelScope kernel_;
  c10::SmallVector<Input, 8> inputs_;
  // Inputs by their aliases and by their twins, filled when it is needed.
  ska::flat_hash_map<const c10::intrusive_ptr_target*, size_t> input_of_;
  std::vector<c10::Storage> made_;
  std::vector<std::pair<c10::TensorImpl*, at::Tensor>> held_;
  std::vector<std::pair<const void*, uint64_t>> opened_;  // FLAGOS_HOST_GUARD only
};

}  // namespace torch_fl
