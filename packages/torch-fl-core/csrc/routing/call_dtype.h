// Owns: the dtype of a call, which dtype conditions of routes speak about: that of the first tensor
// in the order of the schema, else of a dtype argument, else the default dtype.
#pragma once
#include <ATen/core/function_schema.h>
#include <c10/core/DefaultDtype.h>

#include "routing/call_arguments.h"

namespace torch_fl::routing {

inline std::optional<at::ScalarType> dtype_of(const at::Tensor& tensor) {
  return tensor.scalar_type();
}

class DtypeFinder {
 public:
  void see(std::optional<at::ScalarType> dtype) {
    if (!argument_) argument_ = dtype;
  }
  template <class T>
  void see(const T& argument) {
    tensor_.see(argument);
  }

  at::ScalarType found() const {
    if (tensor_.found()) return *tensor_.found();
    return argument_ ? *argument_ : c10::get_default_dtype_as_scalartype();
  }

 private:
  FirstTensor<dtype_of> tensor_;
  std::optional<at::ScalarType> argument_;
};

template <class... Args>
at::ScalarType call_dtype(const Args&... args) {
  DtypeFinder finder;
  (finder.see(args), ...);
  return finder.found();
}

// The same for a call on a stack: `arguments` of them, the last ones.
at::ScalarType call_dtype(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments);

}  // namespace torch_fl::routing
