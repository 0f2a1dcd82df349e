// Owns: the results of a kernel, of any C++ type, made what the caller must see.
#pragma once
#include <ATen/core/Tensor.h>

#include <tuple>
#include <type_traits>
#include <vector>

#include "boxing/relabeling.h"

namespace torch_fl::typed {

template <class T>
void wrap(Relabeling&, T&) {
  static_assert(
      std::is_arithmetic_v<T> || std::is_same_v<T, at::Scalar> || std::is_same_v<T, c10::SymInt>,
      "a result that may hold tensors needs its own overload");
}
inline void wrap(Relabeling& call, at::Tensor& result) { call.relabel(result); }
inline void wrap(Relabeling& call, std::vector<at::Tensor>& results) {
  for (auto& result : results) wrap(call, result);
}
template <class... R>
void wrap(Relabeling& call, std::tuple<R...>& results) {
  std::apply([&](auto&... result) { (wrap(call, result), ...); }, results);
}

}  // namespace torch_fl::typed
