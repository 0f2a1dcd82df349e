// Owns: which rule about devices an operator has: `device_check` of PyTorch's own operator list,
// refined for operators that leave the check to their kernel.
#include "boxing/device_rules.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace torch_fl {
namespace {

// Made at build time: operators of the installed torch whose `device_check` is NoCheck, and all
// that it knows, sorted, without "aten::".
constexpr std::string_view kUnchecked[] = {
#include "unchecked_operators.inc"
};
constexpr std::string_view kKnown[] = {
#include "known_operators.inc"
};

bool contains(const std::string_view* begin, const std::string_view* end, std::string_view name) {
  return std::binary_search(begin, end, name);
}

constexpr std::array<std::string_view, 2> kIndexed = {"index", "_unsafe_index"};
constexpr std::array<std::string_view, 4> kIndexedWrite = {"index_put", "index_put_",
                                                           "_index_put_impl_", "_unsafe_index_put"};
constexpr std::array<std::string_view, 2> kNumberFromAnywhere = {"masked_fill", "masked_fill_"};
// Copies, storage exchange and questions about layout; foreach works in groups of one device.
constexpr std::array<std::string_view, 14> kFree = {"fill_",
                                                    "copy_",
                                                    "_copy_from",
                                                    "_copy_from_and_resize",
                                                    "set_",
                                                    "resize_",
                                                    "is_set_to",
                                                    "_use_cudnn_ctc_loss",
                                                    "_cudnn_ctc_loss",
                                                    "_nested_from_padded",
                                                    "_to_copy",
                                                    "clone",
                                                    "record_stream",
                                                    "_has_compatible_shallow_copy_type"};

}  // namespace

DeviceRule device_rule(const char* name, const char* overload) {
  constexpr std::string_view kNamespace = "aten::";
  std::string_view base(name);
  if (!base.starts_with(kNamespace)) return DeviceRule::kNone;
  base.remove_prefix(kNamespace.size());
  const auto listed = [&](const auto& list) {
    return std::find(list.begin(), list.end(), base) != list.end();
  };
  if (listed(kIndexed)) return DeviceRule::kIndexed;
  if (listed(kIndexedWrite)) return DeviceRule::kIndexedWrite;
  if (listed(kNumberFromAnywhere)) return DeviceRule::kNumberFromAnywhere;
  if (listed(kFree) || base.starts_with("_foreach_")) return DeviceRule::kNone;
  std::string full(base);
  if (*overload != '\0') full.append(".").append(overload);
  if (!contains(std::begin(kKnown), std::end(kKnown), full)) return DeviceRule::kNone;
  return contains(std::begin(kUnchecked), std::end(kUnchecked), full) ? DeviceRule::kIterator
                                                                      : DeviceRule::kSame;
}

}  // namespace torch_fl
