"""Owns: what the compiler backend relies on in fake tensors. A test that fails here
names what a release of PyTorch has moved."""

from __future__ import annotations

import inspect

import torch
import torch._inductor.compile_fx
from torch._subclasses import fake_tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from torch_fl._compat.compiler.fake_tensors import FakeTensor, on_device
from torch_fl.compile.renaming import Renaming

FLAGOS = "flagos"


def test_a_fake_tensor_can_be_made_of_another() -> None:
    parameters = list(inspect.signature(fake_tensor.FakeTensor.__new__).parameters)
    assert parameters[0] == "cls"
    assert {"elem", "device"} <= set(parameters)
    assert list(inspect.signature(fake_tensor.in_kernel_invocation_manager).parameters) == [
        "fake_mode"
    ]


def test_renamed_fake_tensors_share_their_storage() -> None:
    mode = fake_tensor.FakeTensorMode()
    with mode:
        base = torch.empty(4, 6, device="flagos:0", dtype=torch.bfloat16)
        view = base[1:, ::2]
    to = Renaming(FLAGOS, "cpu", index=None)
    renamed, of_view = to.value(base), to.value(view)
    assert isinstance(renamed, FakeTensor)
    assert renamed.fake_mode is mode
    assert to.value(base) is renamed
    for one, other in ((renamed, base), (of_view, view)):
        assert one.device == torch.device("cpu")
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
        assert one.storage_offset() == other.storage_offset()
        assert one.untyped_storage()._cdata == base.untyped_storage()._cdata
    back = Renaming("cpu", FLAGOS, index=1).value(renamed)
    assert back.device == torch.device("flagos:1")


def test_renamed_fake_tensors_keep_symbolic_sizes() -> None:
    mode = fake_tensor.FakeTensorMode(shape_env=ShapeEnv())
    fake = mode.from_tensor(torch.empty(5, 7, device=FLAGOS), static_shapes=False)
    torch._dynamo.mark_dynamic(fake, 0)
    renamed = on_device(fake, torch.device("cpu"))
    assert [str(size) for size in renamed.shape] == [str(size) for size in fake.shape]
    with mode:
        assert (renamed + 1).device.type == "cpu"


def test_constants_are_renamed_while_a_fake_mode_is_on() -> None:
    constant = torch.ones(3, device=FLAGOS)
    graph = make_fx(lambda x: x + constant)(torch.ones(3, device=FLAGOS))
    (node,) = graph.graph.find_nodes(op="get_attr")
    with fake_tensor.FakeTensorMode():
        Renaming(FLAGOS, "cpu", index=None).graph(graph)
        there = getattr(graph, node.target)
        Renaming("cpu", FLAGOS, index=0).graph(graph)
    back = getattr(graph, node.target)
    assert (there.device, back.device) == (torch.device("cpu"), torch.device("flagos:0"))
    assert not isinstance(back, FakeTensor)
    assert there.data_ptr() == back.data_ptr() == constant.data_ptr()
    assert graph(torch.ones(3, device=FLAGOS)).tolist() == [2, 2, 2]
