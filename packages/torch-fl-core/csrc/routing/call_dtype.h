// Owns: the dtype of a call, which dtype conditions of routes speak about: that of the first tensor
// in the order of the schema, else of a dtype argument, else the default dtype.
#pragma once
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/ArrayRef.h>

#include <optional>

namespace torch_fl::routing {

class DtypeFinder {
 public:
  void see(const at::Tensor& tensor) {
    if (!tensor_ && tensor.defined()) tensor_ = tensor.scalar_type();
  }
  void see(const std::optional<at::Tensor>& tensor) {
    if (tensor) see(*tensor);
  }
  void see(at::TensorList list) {
    for (const auto& tensor : list) see(tensor);
  }
  void see(const at::ITensorListRef& list) {
    for (const auto& tensor : list) see(tensor);
  }
  void see(std::optional<at::ScalarType> dtype) {
    if (!argument_) argument_ = dtype;
  }
  void see(const c10::IValue& value) {
    if (value.isTensor()) {
      see(value.toTensor());
    } else if (value.isTensorList()) {
      const auto list = value.toTensorList();
      for (size_t i = 0; i < list.size() && !tensor_; ++i) see(at::Tensor(list.get(i)));
    }
  }
  template <class T>
  void see(const T&) {}  // nothing that has a dtype

  at::ScalarType found() const {
    if (tensor_) return *tensor_;
    return argument_ ? *argument_ : c10::get_default_dtype_as_scalartype();
  }

 private:
  std::optional<at::ScalarType> tensor_;
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
