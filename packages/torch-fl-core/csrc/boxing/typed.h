// Owns: boxing at compile time. `TypedBoxing<Op>::run` has the operator's own C++ type and does
// what boxed.cpp does on a stack, without the stack: for the operators where host time matters.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>

#include <array>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "boxing/as_they_are.h"
#include "boxing/boxed.h"
#include "boxing/composites.h"
#include "boxing/relabeling.h"
#include "boxing/results.h"
#include "device/generator.h"
#include "device/kernel_scope.h"
#include "routing/fallback.h"
#include "routing/operator.h"

namespace torch_fl::typed {

// One argument: built in place from what the caller gave (never moved: list views point into
// it), and read by the kernel through get(). What carries no tensor passes through.
template <class T>
struct Argument {
  Argument(Relabeling&, T given) : value(std::forward<T>(given)) {}
  T get(Relabeling&) { return std::forward<T>(value); }
  static constexpr bool kWritten = false;
  T value;
};

template <>
struct Argument<const at::Tensor&> {
  Argument(Relabeling& call, const at::Tensor& given)
      : alias((call.devices().next_argument(), call.alias(given))) {}
  const at::Tensor& get(Relabeling&) { return alias; }
  static constexpr bool kWritten = false;
  at::Tensor alias;
};

template <>
struct Argument<at::Tensor&> {
  Argument(Relabeling& call, at::Tensor& given)
      : original(given),
        alias((call.devices().next_argument(), call.alias(given, Relabeling::Access::kWrite))) {}
  at::Tensor& get(Relabeling&) { return alias; }
  static constexpr bool kWritten = true;
  at::Tensor& original;
  at::Tensor alias;
};

template <>
struct Argument<const std::optional<at::Tensor>&> {
  Argument(Relabeling& call, const std::optional<at::Tensor>& given) {
    call.devices().next_argument();
    if (given) alias.emplace(call.alias(*given));
  }
  const std::optional<at::Tensor>& get(Relabeling&) { return alias; }
  static constexpr bool kWritten = false;
  std::optional<at::Tensor> alias;
};

using AliasList = c10::SmallVector<at::Tensor, 8>;

template <class List>
void alias_all(Relabeling& call, const List& given, AliasList& aliases) {
  const auto access = call.begin_list();
  aliases.reserve(given.size());
  for (const at::Tensor& tensor : given) aliases.push_back(call.alias(tensor, access));
  call.end_list();
}

template <>
struct Argument<at::TensorList> {
  Argument(Relabeling& call, at::TensorList given) { alias_all(call, given, aliases); }
  at::TensorList get(Relabeling&) { return aliases; }
  static constexpr bool kWritten = false;
  AliasList aliases;
};

template <>
struct Argument<const at::ITensorListRef&> {
  Argument(Relabeling& call, const at::ITensorListRef& given) {
    alias_all(call, given, aliases);
    list = at::ITensorListRef(at::TensorList(aliases));
  }
  Argument(const Argument&) = delete;
  const at::ITensorListRef& get(Relabeling&) { return list; }
  static constexpr bool kWritten = false;
  AliasList aliases;
  at::ITensorListRef list;
};

using OptionalList = c10::List<std::optional<at::Tensor>>;

// An empty list from a call that has ended, if this thread has one: a new one costs indexing more
// than all else here.
inline std::optional<OptionalList>& spare_list() {
  static thread_local std::optional<OptionalList> spare;
  return spare;
}
inline OptionalList taken_list() {
  auto& spare = spare_list();
  if (!spare) return OptionalList();
  OptionalList list = *std::move(spare);
  spare.reset();
  return list;
}

template <>
struct Argument<const OptionalList&> {
  Argument(Relabeling& call, const OptionalList& given) : aliases(taken_list()) {
    call.begin_list();
    aliases.reserve(given.size());
    for (const auto tensor : at::IOptTensorListRef(given)) {
      aliases.push_back(tensor.has_value() ? std::optional(call.alias(*tensor)) : std::nullopt);
    }
    call.end_list();
  }
  ~Argument() {
    if (aliases.use_count() != 1) return;  // the kernel keeps it
    aliases.clear();
    spare_list() = std::move(aliases);
  }
  Argument(const Argument&) = delete;
  Argument& operator=(const Argument&) = delete;
  const OptionalList& get(Relabeling&) { return aliases; }
  static constexpr bool kWritten = false;
  OptionalList aliases;
};

// Resolved when the kernel runs: an `out` argument, which says the device, may come later.
template <>
struct Argument<std::optional<at::Generator>> {
  Argument(Relabeling&, std::optional<at::Generator> given) : generator(std::move(given)) {
    check_generator(generator);
  }
  std::optional<at::Generator> get(Relabeling& call) {
    return target_generator(generator, call.device());
  }
  static constexpr bool kWritten = false;
  std::optional<at::Generator> generator;
};

template <>
struct Argument<std::optional<at::Device>> {
  Argument(Relabeling& call, std::optional<at::Device> given) : device(given) {
    if (given) call.devices().set_argument(*given);
  }
  std::optional<at::Device> get(Relabeling& call) {
    return device && device->type() == kFlagos ? std::optional(call.target_device()) : device;
  }
  static constexpr bool kWritten = false;
  std::optional<at::Device> device;
};

template <size_t kIndex, class T>
struct Slot {
  Slot(Relabeling& call, T given) : argument(call, std::forward<T>(given)) {}
  Argument<T> argument;
};

template <class Indices, class... Args>
struct Pack;
template <size_t... kIndex, class... Args>
struct Pack<std::index_sequence<kIndex...>, Args...> : Slot<kIndex, Args>... {
  Pack(Relabeling& call, Args... given) : Slot<kIndex, Args>(call, std::forward<Args>(given))... {}
  template <class F>
  decltype(auto) apply(F&& use) {
    return use(static_cast<Slot<kIndex, Args>&>(*this).argument...);
  }
};

// Which tensor lists an operator writes, a bit for each in the order of its schema: the C++ type
// does not say.
constexpr uint32_t written_lists(std::string_view schema) {
  constexpr std::string_view kPlain = "Tensor[]";
  constexpr std::string_view kAnnotated = ")[]";
  uint32_t written = 0;
  for (uint32_t bit = 1;; bit <<= 1U) {
    const size_t plain = schema.find(kPlain);
    const size_t annotated = schema.find(kAnnotated);
    if (plain == annotated) return written;  // there is neither
    if (annotated < plain && schema[annotated - 1] == '!') written |= bit;
    schema.remove_prefix(annotated < plain ? annotated + kAnnotated.size() : plain + kPlain.size());
  }
}

template <class T>
struct ReturnsReferences : std::is_reference<T> {};
template <class... T>
struct ReturnsReferences<std::tuple<T...>>
    : std::bool_constant<(sizeof...(T) > 0) && (std::is_reference_v<T> && ...)> {};

// The caller's own written tensors, in order: what in-place and out operators return.
template <class Result, class PackType>
Result written(PackType& pack) {
  std::array<at::Tensor*, 8> tensors{};
  size_t count = 0;
  pack.apply([&](auto&... argument) {
    (
        [&] {
          if constexpr (std::decay_t<decltype(argument)>::kWritten) {
            tensors[count++] = &argument.original;
          }
        }(),
        ...);
  });
  if constexpr (std::is_reference_v<Result>) {
    return *tensors[0];
  } else {
    return [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
      return Result(*tensors[kIndex]...);
    }(std::make_index_sequence<std::tuple_size_v<Result>>{});
  }
}

}  // namespace torch_fl::typed

namespace torch_fl {

template <class Op, class Schema = typename Op::schema>
struct TypedBoxing;

template <class Op, class Result, class... Args>
struct TypedBoxing<Op, Result(Args...)> {
  static Result run(Args... given) {
    if constexpr (typed::kListsAlone<Op, Args...>) {
      if (target().foreach_takes_any_device) {
        typed::CommonDevice common;
        (common.add(given), ...);
        if (const auto* tensor = common.tensor()) return as_they_are(*tensor, given...);
      }
    }
    Relabeling call(Relabeling::Aliases::kLight);
    constexpr auto kWrittenLists = typed::written_lists(Op::schema_str);
    if constexpr (kWrittenLists != 0) call.set_written_lists(kWrittenLists);
    typed::Pack<std::index_sequence_for<Args...>, Args...> pack(call, std::forward<Args>(given)...);
    if constexpr (typed::kOverLists<Op>) {
      // (Lists, numbers and references: there was nothing to move from.)
      if (C10_UNLIKELY(call.devices().mixed())) return decomposed(call, given...);
    }
    call.devices().check(rule_);
    const Relabeling::Settlement settlement(call);
    const KernelScope scope(call.memory_device());
    const auto kernel = [&](auto&... argument) -> Result {
      return Op::redispatch(target().dense_keys, argument.get(call)...);
    };
    constexpr bool kWrites = (typed::Argument<Args>::kWritten || ...) || kWrittenLists != 0;
    return call.run([&]() -> Result {
      if constexpr (std::is_void_v<Result>) {
        pack.apply(kernel);
        if constexpr (kWrites) call.write_back();
      } else if constexpr (typed::ReturnsReferences<Result>::value) {
        pack.apply(kernel);
        call.write_back();
        return typed::written<Result>(pack);
      } else {
        Result result = pack.apply(kernel);
        if constexpr (kWrites) call.write_back();
        typed::wrap(call, result);
        return result;
      }
    });
  }

 private:
  static inline constinit OperatorRule rule_{Op::name, Op::overload_name};

  static Result as_they_are(const c10::TensorImpl& tensor, Args... given) {
    constexpr auto kWrittenLists = typed::written_lists(Op::schema_str);
    Relabeling call;
    call.devices().note(tensor);
    if constexpr (kWrittenLists != 0) {
      call.set_written_lists(kWrittenLists);
      const auto count = [&](const auto& argument) {
        if constexpr (typed::kIsList<std::decay_t<decltype(argument)>>) {
          if (call.begin_list() != Relabeling::Access::kRead) {
            for (const at::Tensor& each : argument) call.count(each.unsafeGetTensorImpl());
          }
          call.end_list();
        }
      };
      (count(given), ...);
    }
    const KernelScope scope(call.device());
    return call.run([&]() -> Result {
      if constexpr (std::is_void_v<Result>) {
        Op::redispatch(target().dense_keys, std::forward<Args>(given)...);
        call.count_versions();
      } else {
        static_assert(kWrittenLists == 0, "its results may be its arguments");
        Result result = Op::redispatch(target().dense_keys, std::forward<Args>(given)...);
        typed::wrap(call, result);  // (most kernels make them like their arguments)
        return result;
      }
    });
  }

  // PyTorch's decomposition works tensor by tensor, so each result stays on its own device.
  static Result decomposed(Relabeling& call, Args... given) {
    constexpr c10::DispatchKeySet kKeys(routing::kComposition);
    if constexpr (std::is_void_v<Result>) {
      Op::redispatch(kKeys, std::forward<Args>(given)...);
      call.count_versions();
    } else {
      return Op::redispatch(kKeys, std::forward<Args>(given)...);
    }
  }
};

// Makes boxing the route of `Op`, if boxing can run it and nothing of our own does.
template <class Op>
void install_typed_boxing() {
  const auto handle = routing::find(Op::name, Op::overload_name);
  const auto& name = handle.operator_name();
  if (routing::is_installed(name, c10::DispatchKey::PrivateUse1)) return;
  if (!handle.hasKernelForDispatchKey(target().dense) && !boxed_whole(name)) return;
  routing::Typed<Op>::install(routing::Route::kBoxing, &TypedBoxing<Op>::run,
                              reads_requires_grad(name) ? &boxed_kernel_with_grad : &boxed_kernel);
}

}  // namespace torch_fl
