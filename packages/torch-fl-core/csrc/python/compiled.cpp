// Owns: what a compiler's output is called through: flagos tensors in, flagos tensors out.
#include <torch/csrc/autograd/python_variable.h>

#include <limits>
#include <vector>

#include "boxing/region.h"
#include "device/target.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace torch_fl {
namespace {

// Calls compiled code as compilers of PyTorch have it: one list of arguments, which the callee
// empties.
class CompiledRegion {
 public:
  // `devices`: for each result the index of its flagos device, -1 where it is none of flagos'.
  // `written`: positions of arguments whose storage the code may replace.
  CompiledRegion(py::object call, std::vector<c10::DeviceIndex> devices,
                 const std::vector<size_t>& written)
      : call_(std::move(call)), devices_(std::move(devices)) {
    for (const auto position : written) {
      if (position >= written_.size()) written_.resize(position + 1);
      written_[position] = true;
    }
  }

  py::object operator()(const py::list& arguments) {
    Region region(device_of(arguments));
    auto inner =
        py::reinterpret_steal<py::object>(PyList_New(static_cast<Py_ssize_t>(arguments.size())));
    for (size_t i = 0; i < arguments.size(); ++i) {
      auto* item = PyList_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(i));
      PyObject* passed = nullptr;
      if (THPVariable_Check(item) && THPVariable_Unpack(item).device().type() == kFlagos) {
        const auto& tensor = THPVariable_Unpack(item);
        passed = THPVariable_Wrap(region.enter(tensor, i < written_.size() && written_[i]));
        if (passed == nullptr) throw py::error_already_set();
      } else {
        passed = Py_NewRef(item);
      }
      PyList_SET_ITEM(inner.ptr(), static_cast<Py_ssize_t>(i), passed);
    }
    arguments.attr("clear")();
    auto results = py::reinterpret_steal<py::object>(PyObject_CallOneArg(call_.ptr(), inner.ptr()));
    inner = py::object();
    if (!results) {
      // It may have replaced a storage before it failed: the caller's must not point to freed memory.
      const py::error_already_set error;
      region.write_back();
      throw error;
    }
    region.write_back();
    return leave(region, results);
  }

 private:
  // The flagos device that the region works for: -1 where nothing of it is flagos'.
  c10::DeviceIndex device_of(const py::list& arguments) const {
    for (const auto device : devices_) {
      if (device >= 0) return device;
    }
    for (const auto& argument : arguments) {
      if (!THPVariable_Check(argument.ptr())) continue;
      const auto device = THPVariable_Unpack(argument.ptr()).device();
      if (device.type() == kFlagos) return device.index();
    }
    return -1;
  }

  py::object leave(Region& region, const py::object& results) {
    const bool is_tuple = PyTuple_Check(results.ptr()) != 0;
    TORCH_CHECK_TYPE(is_tuple || PyList_Check(results.ptr()),
                     "Compiled code must return a list or a tuple.");
    const bool shared = Py_REFCNT(results.ptr()) > 1;
    const auto size = PySequence_Fast_GET_SIZE(results.ptr());
    TORCH_CHECK(static_cast<size_t>(size) == devices_.size(), "Compiled code returned ", size,
                " results where ", devices_.size(), " were announced.");
    auto out = py::reinterpret_steal<py::object>(PyList_New(size));
    for (Py_ssize_t i = 0; i < size; ++i) {
      auto* item = PySequence_Fast_GET_ITEM(results.ptr(), i);
      const auto device = devices_[static_cast<size_t>(i)];
      PyObject* result = nullptr;
      if (device >= 0 && THPVariable_Check(item)) {
        const bool held = shared || Py_REFCNT(item) > 1;
        result = THPVariable_Wrap(region.leave(at::Tensor(THPVariable_Unpack(item)), device, held));
        if (result == nullptr) throw py::error_already_set();
      } else {
        result = Py_NewRef(item);
      }
      PyList_SET_ITEM(out.ptr(), i, result);
    }
    return out;
  }

  py::object call_;
  std::vector<c10::DeviceIndex> devices_;
  std::vector<bool> written_;
};

}  // namespace

void bind_compiled(py::module_& module) {
  // (A copy is the region itself, as a function's is the function.)
  py::class_<CompiledRegion>(module, "CompiledRegion", py::dynamic_attr())
      .def("__copy__", [](py::object self) { return self; })
      .def("__deepcopy__", [](py::object self, const py::dict&) { return self; })
      .def(py::init([](py::object call, const std::vector<int>& devices,
                       const std::vector<size_t>& written) {
             std::vector<c10::DeviceIndex> indices;
             for (const auto device : devices) {
               TORCH_CHECK(device <= std::numeric_limits<c10::DeviceIndex>::max(),
                           "Invalid flagos device index ", device, ".");
               indices.push_back(static_cast<c10::DeviceIndex>(device));
             }
             return CompiledRegion(std::move(call), std::move(indices), written);
           }),
           py::arg("call"), py::arg("devices"), py::arg("written") = std::vector<size_t>())
      .def("__call__", torch::wrap_pybind_function(&CompiledRegion::operator()));
}

}  // namespace torch_fl
