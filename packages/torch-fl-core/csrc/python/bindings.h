// Owns: what the files of the Python module share.
#pragma once
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include <utility>

namespace torch_fl {

// Every function, with PyTorch's translation of C++ exceptions.
template <class F>
void def(pybind11::module_& module, const char* name, F&& function) {
  module.def(name, torch::wrap_pybind_function(std::forward<F>(function)));
}

void bind_compiled(pybind11::module_& module);
void bind_interop(pybind11::module_& module);
void bind_memory(pybind11::module_& module);
void bind_routing(pybind11::module_& module);
void bind_testing(pybind11::module_& module);

}  // namespace torch_fl
