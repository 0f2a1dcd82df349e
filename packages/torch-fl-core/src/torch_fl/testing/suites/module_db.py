"""Owns: the suite of PyTorch's module database, ``module_db``: ``torch.nn`` as a user trains it.

Every module is made on the CPU from the same random numbers on both sides and then moved, so
that ``Module.to`` is a part of each case.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch

from ..harness import tree
from ..harness.call import seed_generators
from ..harness.cases import Case, Cases, NotASample, Pass, Suite
from ..harness.movers import CPU, Arguments
from .gradients import WithGradients
from .samples import seeded

Build = Callable[[], torch.nn.Module]
Visit = Callable[["Made"], Any]


class Made:
    """A module on the device of a case, and the call to make with it."""

    def __init__(self, device: torch.device, build: Build, call: tuple[Any, Any]) -> None:
        self.device = device
        self.build = build
        self.module = build().to(device)
        self.call = call

    def forward(self, module: torch.nn.Module | None = None) -> Any:
        """What the module, or another one like it, returns for the case's inputs."""
        positional, keyword = self.call
        return (self.module if module is None else module)(*positional, **keyword)

    def another(self) -> torch.nn.Module:
        """A module of the same kind with other random parameters, on the device."""
        seed_generators(self.device, 99)
        return self.build().to(self.device)


class _Visited:
    """A case's function: makes the module, then does with it what the pass is about."""

    def __init__(self, info: Any, dtype: torch.dtype, training: bool, visit: Visit) -> None:
        self._info = info
        self._dtype = dtype
        self._training = training
        self._visit = visit
        self._module: torch.nn.Module | None = None

    def __call__(
        self, device: torch.device, constructor: tuple[Any, Any], call: tuple[Any, Any]
    ) -> Any:
        # Copies: a constructor may keep the module or tensor that it is given.
        positional, keyword = copy.deepcopy(constructor)

        def build(**more: Any) -> torch.nn.Module:
            module: torch.nn.Module = self._info.module_cls(*positional, **keyword, **more)
            return module.to(self._dtype).train(self._training)

        made = Made(device, build, call)
        self._module = made.module
        return self._visit(made)

    def parameters(self) -> list[torch.Tensor]:
        """Those of the module that was made last."""
        return [] if self._module is None else list(self._module.parameters())


def _inputs(info: Any, dtype: torch.dtype, training: bool) -> Iterator[tuple[int, Any]]:
    how = {"requires_grad": True, "training": training}
    return seeded(lambda: info.module_inputs_func(info, device="cpu", dtype=dtype, **how))


def _arguments(given: Any) -> Arguments:
    made, called = given.constructor_input, given.forward_input
    return Arguments(
        (CPU, (made.args, made.kwargs), (called.args, called.kwargs) if called else ((), {})), {}
    )


def _cases(
    visit: Visit, training: bool = True, gradients: bool = False, twice: bool = False
) -> Cases:
    def cases(info: Any, dtype: torch.dtype) -> Iterator[Case]:
        for index, given in _inputs(info, dtype, training):
            visited: Any = _Visited(info, dtype, training, visit)
            if gradients:
                visited = WithGradients(
                    visited, more=visited.parameters, twice=twice, optional=not twice
                )
            label = f"{dtype} input {index} {given.desc}".rstrip()
            yield Case(label, visited, _arguments(given))

    return cases


def _forward(made: Made) -> Any:
    output = made.forward()
    return {"output": output, "buffers": dict(made.module.named_buffers())}


def _state(module: torch.nn.Module) -> dict[str, Any]:
    return {name: copy.deepcopy(value) for name, value in module.state_dict().items()}


def _twice(made: Made) -> Any:
    if made.module.state_dict() and not list(made.module.parameters()):
        raise NotASample("nothing to train")
    return made.forward()


def _outcome(made: Made, module: torch.nn.Module) -> dict[str, Any]:
    """What another module returns, from random numbers of its own, and then its state."""
    seed_generators(made.device, 7)
    # In this order: a lazy module has a state after its first call only.
    return {"output": made.forward(module), "state": _state(module)}


def _moved(made: Made) -> Any:
    """There and back, and to other dtypes; hooks, tied and shared parameters stay what they are."""
    module = made.module
    states = {"arrived": _state(module)}
    states["float64"] = _state(module.to(torch.float64))
    states["bfloat16"] = _state(module.bfloat16())
    home = module.to("cpu")
    assert all(tensor.device == CPU for tensor in home.state_dict().values())
    states["again"] = _state(home.to(made.device, torch.float32))
    states["empty"] = {
        name: [str(value.dtype), list(value.shape), value.is_contiguous()]
        for name, value in module.to_empty(device=made.device).state_dict().items()
    }
    return states


def _restored(made: Made) -> Any:
    """The state through a file into another module."""
    file = io.BytesIO()
    torch.save(made.module.state_dict(), file)
    file.seek(0)
    other = made.another()
    seen = other.load_state_dict(torch.load(file, map_location=made.device, weights_only=True))
    file.seek(0)
    at_home = torch.load(file, map_location="cpu", weights_only=True)
    assert all(tensor.device == CPU for tensor in at_home.values())
    return {"keys": str(seen), **_outcome(made, other)}


def _pickled(made: Made) -> Any:
    """The module itself through a file, and as a deep copy."""
    file = io.BytesIO()
    torch.save(made.module, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    if isinstance(loaded, torch.nn.modules.lazy.LazyModuleMixin):
        loaded.to(made.device)  # type: ignore[attr-defined]  # PyTorch's lazy parameters pickle no device
    return [_outcome(made, module) for module in (loaded, copy.deepcopy(made.module))]


def _factory(made: Made) -> Any:
    """Made on the device by ``device=``, then given the state of the one that was moved."""
    build: Any = made.build
    module = build(device=made.device)
    assert all(tensor.device == made.device for tensor in module.state_dict().values())
    module.load_state_dict(made.module.state_dict())
    return _outcome(made, module)


def _channels_last(made: Made) -> Any:
    positional, keyword = made.call
    if not any(tensor.dim() == 4 for tensor in tree.tensors((positional, keyword))):
        raise NotASample("no image")

    def images(path: str, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dim() == 4:
            return leaf.to(memory_format=torch.channels_last)
        return leaf

    made.call = (tree.transform(positional, images), tree.transform(keyword, images))
    made.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return _forward(made)


def _gaps(made: Made) -> Any:
    def spread(path: str, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided or not leaf.dim():
            return leaf
        return torch.repeat_interleave(leaf, 2, dim=-1)[..., ::2]

    positional, keyword = made.call
    made.call = (tree.transform(positional, spread), tree.transform(keyword, spread))
    return _forward(made)


def _errors(info: Any, dtype: torch.dtype) -> Iterator[Case]:
    if info.module_error_inputs_func is None:
        return
    how = {"requires_grad": False, "training": True}

    def made() -> Any:
        return info.module_error_inputs_func(info, device="cpu", dtype=dtype, **how)

    for index, given in seeded(made):
        visited = _Visited(info, dtype, True, lambda made: made.forward())
        arguments = _arguments(given.module_error_input)
        yield Case(f"error input {index}", visited, arguments, "error", given.error_regex)


def _load() -> Mapping[str, Any]:
    from torch.testing._internal.common_modules import module_db

    return {info.formatted_name: info for info in module_db}


_FLOAT32: Final = (torch.float32,)
_FLOAT64: Final = (torch.float64,)

SUITE: Final = Suite(
    name="module_db",
    about="torch.nn's modules: training, evaluation, moving, saving",
    passes=(
        Pass(
            "train",
            _FLOAT32,
            _cases(_forward, gradients=True),
            "forward and gradients in training",
            ci=12,
            glance=3,
            selfcheck=3,
        ),
        Pass(
            "eval",
            _FLOAT32,
            _cases(_forward, training=False, gradients=True),
            "forward and gradients in evaluation",
            ci=8,
            glance=2,
        ),
        Pass("train64", _FLOAT64, _cases(_forward, gradients=True), "in float64", ci=4),
        Pass("noncontiguous", _FLOAT32, _cases(_gaps, gradients=True), "inputs with gaps", ci=4),
        Pass("channels_last", _FLOAT32, _cases(_channels_last, gradients=True), "images", ci=4),
        Pass("to", _FLOAT32, _cases(_moved), "Module.to and its relatives", ci=3, glance=1),
        Pass("state_dict", _FLOAT32, _cases(_restored), "state through a file", ci=3, glance=1),
        Pass("pickle", _FLOAT32, _cases(_pickled), "pickle and deepcopy", ci=3),
        Pass("factory", _FLOAT32, _cases(_factory), "made on the device", ci=3),
        Pass("errors", _FLOAT32, _errors, "what modules refuse"),
        Pass(
            "gradgrad",
            _FLOAT64,
            _cases(_twice, gradients=True, twice=True),
            "gradients' gradients",
            ci=0,
        ),
    ),
    load=_load,
    wrong=("add.Tensor", "add_.Tensor", "mul.Tensor", "addmm", "clamp_min", "sum.dim_IntList"),
    wrong_entries=25,
)
