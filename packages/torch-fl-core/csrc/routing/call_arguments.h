// Owns: a walk over the tensors of a call in the order of the schema, typed or on a stack, up to the
// first one that says what is looked for.
#pragma once
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include <optional>

namespace torch_fl::routing {

inline c10::ArrayRef<c10::IValue> arguments_of(const c10::OperatorHandle& handle,
                                               const torch::jit::Stack& stack) {
  return c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - handle.schema().arguments().size());
}

// kSay: what a defined tensor says, if anything.
template <auto kSay>
class FirstTensor {
 public:
  using Found = decltype(kSay(std::declval<const at::Tensor&>()));

  void see(const at::Tensor& tensor) {
    if (!found_ && tensor.defined()) found_ = kSay(tensor);
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
  void see(const c10::List<std::optional<at::Tensor>>& list) {
    for (size_t i = 0; i < list.size() && !found_; ++i) see(std::optional(list.get(i)));
  }
  void see(const c10::IValue& value) {
    if (value.isTensor()) {
      see(value.toTensor());
    } else if (value.isTensorList()) {
      const auto list = value.toTensorList();
      for (size_t i = 0; i < list.size() && !found_; ++i) see(at::Tensor(list.get(i)));
    } else if (value.isOptionalTensorList()) {
      see(value.toOptionalTensorList());
    }
  }
  template <class T>
  void see(const T&) {}  // no tensor

  const Found& found() const { return found_; }

 private:
  Found found_;
};

}  // namespace torch_fl::routing
