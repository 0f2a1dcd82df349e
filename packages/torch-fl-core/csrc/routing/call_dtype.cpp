// Owns: the dtype of a call on a stack.
#include "routing/call_dtype.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>

namespace torch_fl::routing {
namespace {

bool is_dtype(const c10::Type& type) {
  return type.kind() == c10::TypeKind::OptionalType ? is_dtype(*type.containedType(0))
                                                    : type.kind() == c10::TypeKind::ScalarTypeType;
}

}  // namespace

at::ScalarType call_dtype(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  DtypeFinder finder;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& value = arguments[i];
    // A dtype is a number on the stack; only the schema tells.
    if (value.isInt() && is_dtype(*schema.arguments()[i].real_type())) {
      finder.see(std::optional(value.toScalarType()));
    } else {
      finder.see(value);
    }
  }
  return finder.found();
}

}  // namespace torch_fl::routing
