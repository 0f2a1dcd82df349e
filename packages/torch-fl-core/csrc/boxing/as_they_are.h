// Owns: calls whose kernel takes flagos tensors as they are. Kernels over lists (`_foreach_*`) read
// addresses, shapes and dtypes, and compare devices only with each other; aliases would cost an
// optimizer's step, with its thousands of tensors, more than all else here. Targets say so of
// theirs (`Target::foreach_takes_any_device`).
#pragma once
#include <ATen/core/Tensor.h>

#include <string_view>
#include <type_traits>

namespace torch_fl::typed {

template <class T>
constexpr bool kMayHoldTensors =
    !std::is_arithmetic_v<std::decay_t<T>> && !std::is_same_v<std::decay_t<T>, at::Scalar> &&
    !std::is_same_v<std::decay_t<T>, at::ArrayRef<at::Scalar>>;
template <class T>
constexpr bool kIsList = std::is_same_v<T, at::TensorList>;

// True for an operator whose lists may lie on several devices, tensor by tensor.
template <class Op>
constexpr bool kOverLists = std::string_view(Op::name).starts_with("aten::_foreach_");

// An operator over tensor lists and numbers alone. Norms are none: they guard their own device.
template <class Op, class... Args>
constexpr bool kListsAlone =
    kOverLists<Op> && std::string_view(Op::name) != "aten::_foreach_norm" &&
    ((kIsList<Args> || !kMayHoldTensors<Args>) && ...);

// The one flagos device on which all tensors of the lists are, dense; none where boxing has more to
// do or to say: several devices, other layouts, lists of nothing.
class CommonDevice {
 public:
  template <class T>
  void add(const T& given) {
    if constexpr (kIsList<T>) {
      for (const at::Tensor& tensor : given) {
        const auto* impl = tensor.unsafeGetTensorImpl();
        if (C10_UNLIKELY(!impl->key_set().has(c10::DispatchKey::PrivateUse1))) {
          mixed_ = true;
          return;
        }
        const auto index = impl->device().index();
        if (first_ == nullptr) first_ = impl;
        mixed_ |= index != first_->device().index();
      }
    }
  }
  // A tensor on the device, or null.
  const c10::TensorImpl* tensor() const { return C10_LIKELY(!mixed_) ? first_ : nullptr; }

 private:
  const c10::TensorImpl* first_ = nullptr;
  bool mixed_ = false;
};

}  // namespace torch_fl::typed
