// Owns: the bindings by which a tensor's memory is handed to others and taken from them.
#include <torch/csrc/autograd/python_variable.h>

#include "boxing/interchange.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace torch_fl {
namespace {

const at::Tensor& tensor_of(const py::object& object) {
  TORCH_CHECK_TYPE(THPVariable_Check(object.ptr()), "Expected a torch.Tensor.");
  return THPVariable_Unpack(object.ptr());
}

py::object wrapped(const at::Tensor& tensor) {
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
}

}  // namespace

void bind_interop(py::module_& module) {
  def(module, "to_target",
      [](const py::object& tensor) { return wrapped(to_target(tensor_of(tensor))); });
  def(module, "from_target", [](const py::object& tensor, int device) {
    TORCH_CHECK(device >= 0 && device <= std::numeric_limits<c10::DeviceIndex>::max(),
                "Invalid flagos device index ", device, ".");
    return wrapped(from_target(tensor_of(tensor), static_cast<c10::DeviceIndex>(device)));
  });
  def(module, "replace_memory", [](const py::object& tensor, const py::object& memory) {
    replace_memory(tensor_of(tensor), tensor_of(memory));
  });
}

}  // namespace torch_fl
