"""Owns: tests that fake tensors of flagos say of results what those of its target say, by PyTorch's
own operator database, and what is relied on for it."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from against_cpu import FLAGOS
from torch import Tensor
from torch._decomp import decompositions
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

from torch_fl._compat.compiler.fake_results import ASKING

SAMPLES = 4
OTHERWISE = {
    "tensor_split": "sections in a tensor: both refuse, one since the tensor is fake",
    "quantile": "the values of the CPU's tensors are looked at by some releases",
    "nanquantile": "so are these",
    "narrow": "so is a number in a tensor",
    "sparse.mm": "the database draws with a generator of the CPU",
    "sparse.sampled_addmm": "the database draws with a generator of the CPU",
}


def _said(device: str, operator: OpInfo, sample: SampleInput, form: torch.memory_format) -> str:
    """Shapes, strides and dtypes of fake results, or the error."""
    mode = FakeTensorMode()

    def fake(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return torch.device(device) if isinstance(value, torch.device) else value
        tensor = value.detach()
        if tensor.dim() == 4:
            tensor = tensor.contiguous(memory_format=form)
        return mode.from_tensor(tensor.to(device))

    values = (sample.input, sample.args, sample.kwargs)
    first, args, kwargs = pytree.tree_map(fake, values)
    kwargs = {name: device if name == "device" else value for name, value in kwargs.items()}
    try:
        with mode:
            found = operator(first, *args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace(f"{FLAGOS}:0", "cpu").replace(
            FLAGOS, "cpu"
        )
    return str([
        (x.shape, x.layout == torch.strided and x.stride(), x.dtype)
        if isinstance(x, Tensor)
        else x
        for x in pytree.tree_leaves(found)
    ])  # fmt: skip


@pytest.mark.parametrize("initial", "abcdefghijklmnopqrstuvwxyz_")
def test_results_of_the_database(initial: str) -> None:
    unlike = {}
    for operator in op_db:
        if operator.name[0] != initial or operator.name in OTHERWISE:
            continue
        if torch.float32 not in operator.dtypes:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = list(operator.sample_inputs("cpu", torch.float32))[:SAMPLES]
            for sample in samples:
                for form in (torch.contiguous_format, torch.channels_last):
                    want = _said("cpu", operator, sample, form)
                    got = _said(FLAGOS, operator, sample, form)
                    if got != want:
                        unlike[operator.name] = (want, got)
    assert not unlike


def test_a_traced_graph_runs_on_results_that_are_as_it_was_told() -> None:
    """Views in the traced backward cannot be made where real strides are other ones."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4),
    )  # fmt: skip
    x = torch.randn(2, 3, 8, 8)
    grads = []
    for device in ("cpu", FLAGOS):
        torch._dynamo.reset()
        there = copy.deepcopy(net).to(device, memory_format=torch.channels_last)
        given = x.to(device).to(memory_format=torch.channels_last)
        compiled = torch.compile(there, backend="aot_eager_decomp_partition")
        compiled(given).square().sum().backward()
        grads.append([parameter.grad.cpu() for parameter in there.parameters()])
    for got, want in zip(grads[1], grads[0], strict=True):
        torch.testing.assert_close(got, want)


def test_what_is_changed_is_what_is_asked() -> None:
    assert torch._meta_registrations.device_hint(torch.ones(1, device=FLAGOS)) == "cpu"
    implementations = fake_impls.op_implementations_dict
    assert implementations[torch.ops.aten.convolution.default].__wrapped__ is fake_impls.conv
    assert fake_impls.conv not in implementations.values()
    for name in ASKING:
        assert hasattr(getattr(decompositions, name), "__wrapped__"), name
    for function in ("native_batch_norm", "_native_batch_norm_legit"):
        code = torch._decomp.decomposition_table[getattr(torch.ops.aten, function).default]
        names: set[str] = set()
        while code is not None:
            names |= set(getattr(getattr(code, "__code__", None), "co_names", ()))
            code = getattr(code, "__wrapped__", None)
        assert "native_batch_norm_helper" in names


def test_an_operator_below_convolution_is_told_alike() -> None:
    """It shares the implementation; exported TorchScript calls it."""
    x = torch.randn(2, 4, 8, 8).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(8, 4, 3, 3)

    def convolved(x: Tensor, weight: Tensor) -> Tensor:
        flags = [False, False, True, True]
        found: Tensor = torch.ops.aten._convolution.default(
            x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, *flags
        )
        return found

    strides = convolved(x, weight).stride()
    mode = FakeTensorMode()
    fakes = [mode.from_tensor(tensor.to(FLAGOS)) for tensor in (x, weight)]
    with mode:
        assert convolved(*fakes).stride() == strides


@pytest.mark.parametrize("wrong", range(4))
def test_tensors_of_another_device_are_not_taken_for_flagos(wrong: int) -> None:
    tensors = [torch.randn(4, 3, 5), torch.ones(3), torch.zeros(3), torch.ones(3)]
    placed = [t if i == wrong else t.to(FLAGOS) for i, t in enumerate(tensors)]

    def norm(x: Tensor, w: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return torch.nn.functional.batch_norm(x, mean, variance, w, w, True)

    for run in (norm, torch.compile(norm, backend="aot_eager"), torch.compile(norm)):
        torch._dynamo.reset()
        with pytest.raises(Exception, match="device"):
            run(*placed)
    assert torch.equal(tensors[2], torch.zeros(3))
