"""Owns: what the compiler backend relies on in Dynamo. A test that fails here
names what a release of PyTorch has moved."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch._inductor.compile_fx
from torch._dynamo import device_interface, trace_rules
from torch._dynamo.backends import registry
from torch._dynamo.variables import tensor as tensors
from torch._dynamo.variables import torch as torch_variables
from torch._dynamo.variables import user_defined

from torch_fl._compat.compiler import dynamo_calls

FLAGOS = "flagos"


# -- _compat/compiler/dynamo.py


def test_flagos_is_registered_with_dynamo() -> None:
    assert "flagos" in registry._BACKENDS
    assert "flagos" in registry.list_backends()
    interface = device_interface.get_interface_for_device(FLAGOS)
    assert interface.device_count() == torch.flagos.device_count()
    assert list(inspect.signature(device_interface.register_interface_for_device).parameters) == [
        "device",
        "device_interface",
    ]
    names = list(inspect.signature(registry.register_backend).parameters)
    assert names[:2] == ["compiler_fn", "name"]


def test_the_device_interface_has_all_that_cudas_has() -> None:
    own = device_interface.get_interface_for_device(FLAGOS)
    base, cuda = device_interface.DeviceInterface, device_interface.CudaInterface
    # What has no meaning for a device that is no GPU with Triton, and what the base answers well.
    left = {"raise_if_triton_unavailable", "is_triton_capable", "is_dtype_supported"}
    for name in vars(cuda):
        if name.startswith("__") or name in left:
            continue
        assert getattr(own, name) is not getattr(base, name, None) or name not in vars(own), name
        assert getattr(own, name).__qualname__ != f"DeviceInterface.{name}", name


# -- _compat/compiler/dynamo_calls.py


def test_dynamos_lists_have_flagos_functions() -> None:
    rules = trace_rules.get_torch_obj_rule_map()
    flagos: Any = torch.flagos
    for name in (*dynamo_calls.CONSTANT, *dynamo_calls.GUARDED, *dynamo_calls.IN_GRAPH):
        assert rules[getattr(flagos, name)] is torch_variables.TorchInGraphFunctionVariable, name
    folded = torch_variables.constant_fold_functions
    for name in (*dynamo_calls.CONSTANT, *dynamo_calls.GUARDED):
        assert getattr(flagos, name) in folded, name
    for name in dynamo_calls.GUARDED:
        assert getattr(flagos, name) in torch_variables.constant_fold_functions_need_guards, name
    handlers = torch_variables.TorchInGraphFunctionVariable._get_handlers()
    assert flagos.stream in handlers
    for name in dynamo_calls.AS_ACCELERATOR:
        theirs = handlers.get(getattr(torch.accelerator, name))  # (2.11 has none for synchronize)
        assert handlers.get(getattr(flagos, name)) is theirs, name
    classes = user_defined.UserDefinedClassVariable._in_graph_classes()
    assert {flagos.Stream, flagos.Event} <= classes


def test_the_current_device_is_guarded() -> None:
    torch._dynamo.reset()
    counted = torch._dynamo.testing.CompileCounter()
    f = torch.compile(lambda x: x + torch.flagos.current_device(), backend=counted, fullgraph=True)
    x = torch.ones(1, device=FLAGOS)
    assert f(x).item() == 1
    assert f(x).item() == 1
    assert counted.frame_count == 1


def test_what_a_computed_tensor_says_of_its_device_is_a_constant() -> None:
    assert callable(tensors.TensorVariable.method_attr_is_cuda)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return y * 2 if y.is_flagos else y  # type: ignore[attr-defined]

    run = torch.compile(function, backend="eager", fullgraph=True)
    assert run(torch.ones(1, device=FLAGOS)).item() == 4
    assert run(torch.ones(1)).item() == 2
