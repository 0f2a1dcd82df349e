// Owns: the boundary of a compiled region: code that a compiler made for the target's tensors runs
// on the caller's flagos tensors, and its results become flagos tensors.
//
// Unlike a boxed call (relabeling.h) a region holds none of its arguments: compiled code gives them
// up as it goes on, which is where a backward pass gets its memory from.
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

  // The target's tensor for a strided flagos tensor. `written`: the region may give its storage
  // other memory or another size.
  at::Tensor enter(const at::Tensor& tensor, bool written);

  // What the caller gets for a result of the target, on flagos device `device`. `held`: somebody
  // else holds the tensor too, so it is not relabelled where it is.
  at::Tensor leave(at::Tensor&& result, c10::DeviceIndex device, bool held);

  // Memory and sizes of the storages that the region wrote to, to the caller's.
  void write_back();

 private:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
  struct Input {
    WeakStorage twin;  // weak: its address stays the twin's own, its memory may go
    WeakStorage storage;
    bool written;
  };
  // The flagos storage over `twin`, if the caller or an earlier result has one.
  c10::Storage known(c10::StorageImpl* twin);

  KernelScope kernel_;
  c10::SmallVector<Input, 8> inputs_;
  ska::flat_hash_map<const c10::StorageImpl*, size_t> input_of_;  // filled when it is needed
  std::vector<c10::Storage> made_;
  std::vector<std::pair<c10::TensorImpl*, at::Tensor>> held_;
  std::vector<std::pair<const void*, uint64_t>> opened_;  // FLAGOS_HOST_GUARD only
};

}  // namespace torch_fl
