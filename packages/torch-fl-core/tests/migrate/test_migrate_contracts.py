"""Owns: what `torch_fl.migrate()` relies on in PyTorch: these fail when PyTorch changes there."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import overrides
from torch.amp import autocast_mode, grad_scaler
from torch.overrides import TorchFunctionMode

from torch_fl._compat import cuda_names, function_modes


class Seen(TorchFunctionMode):
    """Keeps the functions that ask it."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: list[Any] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.functions.append(func)
        return func(*args, **(kwargs or {}))


def test_stack_of_function_modes() -> None:
    """_compat/function_modes.py: what is pushed last is popped first, and the stack can be seen."""
    below, above = Seen(), Seen()
    function_modes.push(below)
    function_modes.push(above)
    assert function_modes.stack()[-2:] == [below, above]
    function_modes.remove(below)
    assert function_modes.stack()[-1:] == [above]
    assert overrides._get_current_function_mode_stack() == function_modes.stack()
    function_modes.remove(above)
    function_modes.remove(above)
    assert above not in function_modes.stack()


def test_functions_that_the_mode_sees() -> None:
    x = torch.zeros(1)
    with Seen() as seen:
        torch.device("cpu")
        x.is_cuda  # noqa: B018
        torch.nn.Linear(1, 1).to("cpu")
    assert torch.device in seen.functions
    assert torch.Tensor.is_cuda.__get__ in seen.functions
    assert torch._C._nn._parse_to in seen.functions
    assert torch.Tensor.cuda in (torch._C.TensorBase.cuda,)


@pytest.mark.parametrize("name", cuda_names.CONSTRUCTORS)
def test_constructors_that_the_mode_does_not_see(name: str) -> None:
    """When this fails, PyTorch asks the mode, and the name can go from _compat/cuda_names.py."""
    with Seen() as seen:
        getattr(torch, name)("cpu" if name == "Generator" else "flagos")
    assert getattr(torch, name) not in seen.functions
    assert isinstance(getattr(torch, name), type)


@pytest.mark.parametrize("name", cuda_names.AUTOCAST_STATE)
def test_autocast_state_that_the_mode_does_not_see(name: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {
        "set_autocast_dtype": ("cpu", torch.get_autocast_dtype("cpu")),
        "set_autocast_enabled": ("cpu", False),
    }
    with Seen() as seen:
        getattr(torch, name)(*arguments.get(name, ("cpu",)))
    assert not seen.functions


def test_signatures() -> None:
    """The device comes first, and GradScaler's has CUDA as its default."""
    autocast = inspect.signature(autocast_mode.autocast.__init__)
    assert list(autocast.parameters)[:2] == ["self", "device_type"]
    scaler = inspect.signature(grad_scaler.GradScaler.__init__)
    assert list(scaler.parameters)[:2] == ["self", "device"]
    assert scaler.parameters["device"].default == "cuda"
    for name in ("custom_fwd", "custom_bwd"):
        parameters = inspect.signature(getattr(torch.amp, name)).parameters
        assert "device_type" in parameters
        assert getattr(torch.amp, name) is getattr(autocast_mode, name)
    assert torch.autocast is autocast_mode.autocast


def test_places_of_storages() -> None:
    """migrate/checkpoints.py: no other entry has its priority, and CUDA's comes after it."""
    from torch_fl.migrate import checkpoints

    checkpoints.install()
    checkpoints.install()
    priorities = [entry[0] for entry in torch.serialization._package_registry]
    assert priorities.count(checkpoints._BEFORE_CUDA) == 1
    assert priorities == sorted(set(priorities))
    tags = {str(entry[1]): entry[0] for entry in torch.serialization._package_registry}
    (cuda,) = [priority for name, priority in tags.items() if "'cuda'" in name]
    assert cuda > checkpoints._BEFORE_CUDA
