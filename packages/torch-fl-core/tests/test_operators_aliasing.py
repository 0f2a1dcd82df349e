"""Owns: tests of what is the same tensor, what shares memory, and what counts as changed.

`is`, `_base`, version counters, storages and data pointers after in-place operators, `out=`,
views, and exchanges of storages. The comparison with the CPU includes all of them.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from parity import assert_same, uneven
from torch.nn import functional

import torch_fl  # noqa: F401  (makes the device)

if TYPE_CHECKING:
    from collections.abc import Callable

X = uneven((3, 4))
SQUARE = uneven((4, 4))


def _x() -> torch.Tensor:
    return X.to("flagos")


IN_PLACE: dict[str, Callable[[torch.Tensor], Any]] = {
    "add_": lambda x: x.add_(1),
    "mul_ tensor": lambda x: x.mul_(x),
    "+=": lambda x: x.__iadd__(2),
    "//=": lambda x: x.__ifloordiv__(2),
    "zero_": lambda x: x.zero_(),
    "fill_ tensor": lambda x: x.fill_(torch.tensor(3.0)),
    "copy_": lambda x: x.copy_(torch.arange(4.0)),
    "clamp_": lambda x: x.clamp_(min=0),
    "relu_": lambda x: functional.relu_(x),
    "normal_": lambda x: x.normal_(),
    "masked_fill_": lambda x: x.masked_fill_(x > 0, -1),
    "masked_scatter_": lambda x: x.masked_scatter_(x > 0, x.flatten()),
    "index_fill_": lambda x: x.index_fill_(0, torch.tensor([0], device=x.device), 5),
    "index_add_": lambda x: x.index_add_(0, torch.tensor([0], device=x.device), x[1:2].clone()),
    "index_put_": lambda x: x.index_put_((torch.tensor([0, 0]),), x[1:2].clone(), accumulate=True),
    "scatter_": lambda x: x.scatter_(0, torch.zeros(1, 4, dtype=torch.int64, device=x.device), 7.0),
    "triu_": lambda x: x.triu_(),
    "sigmoid_": lambda x: torch.sigmoid_(x),
    "addmm_": lambda x: x.addmm_(x.clone(), x.clone()),
    "cumsum_": lambda x: x.cumsum_(1),
    "renorm_": lambda x: x.renorm_(2, 0, 1.0),
    "lerp_": lambda x: x.lerp_(x + 1, 0.5),
    "squeeze_": lambda x: x.squeeze_(),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapdims_": lambda x: x.swapdims_(0, 1),
    "as_strided_": lambda x: x.as_strided_((2, 2), (1, 2), 1),
    "resize_": lambda x: x.resize_(2, 6),
    "resize_as_": lambda x: x.resize_as_(x.t()),
    "detach_": lambda x: x.detach_(),
    "requires_grad_": lambda x: x.requires_grad_(False),
    "dropout": lambda x: functional.dropout(x, 0.5, inplace=True),
    "on a view": lambda x: (x[1].add_(1), x.t().mul_(2), x[:, ::2].zero_()),
    "on an expanded source": lambda x: x.add_(x[:1].clone().expand(4, 4)),
    "setitem": lambda x: (x.__setitem__((0, slice(1, 3)), 9.0), x)[1],
    "setitem mask": lambda x: (x.__setitem__(x > 0, 0.5), x)[1],
    "swap": lambda x: x.set_(x.clone()),
    "foreach": lambda x: torch._foreach_add_([x, x[0]], 1.0),
    "foreach lists": lambda x: torch._foreach_addcmul_([x], [x.clone()], [x.clone()], 0.5),
    "foreach zero": lambda x: torch._foreach_zero_([x[1], x[2]]),
    "foreach copy": lambda x: torch._foreach_copy_([x], [x * 2]),
    "fused sgd": lambda x: torch._fused_sgd_(
        [x],
        [x.clone()],
        [x.clone()],
        weight_decay=0.1,
        momentum=0.9,
        lr=0.1,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    ),
    "amp unscale": lambda x: torch._amp_foreach_non_finite_check_and_unscale_(
        [x], torch.zeros(1, device=x.device), torch.full((1,), 0.5, device=x.device)
    ),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_operators(name: str) -> None:
    assert_same(IN_PLACE[name], SQUARE)
    assert_same(IN_PLACE[name], torch.cat([SQUARE, SQUARE])[1:5])
    if name != "detach_":
        assert_same(lambda x: IN_PLACE[name](x.t()), SQUARE)


def test_an_in_place_operator_returns_the_tensor_itself() -> None:
    x = _x()
    pointer, version = x.data_ptr(), x._version
    assert x.add_(1) is x
    assert torch.relu_(x) is x
    assert x.t_() is x
    assert x.data_ptr() == pointer
    assert x._version > version


OUT: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "add": lambda x, out: torch.add(x, x, out=out),
    "mm": lambda x, out: torch.mm(x.t(), x, out=out),
    "addmm": lambda x, out: torch.addmm(x[0], x.t(), x, out=out),
    "sum": lambda x, out: torch.sum(x, 0, out=out),
    "cat": lambda x, out: torch.cat([x, x], out=out),
    "stack": lambda x, out: torch.stack([x, x], out=out),
    "index_select": lambda x, out: torch.index_select(
        x, 0, torch.tensor([1, 1], device=x.device), out=out
    ),
    "matmul": lambda x, out: torch.matmul(x.t(), x, out=out),
    "clamp": lambda x, out: torch.clamp(x, min=0, out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 0, out=out),
    "where": lambda x, out: torch.where(x > 0, x, -x, out=out),
    "einsum path": lambda x, out: torch.bmm(x[None].mT, x[None], out=out),
    "linspace": lambda x, out: torch.linspace(0, 1, 5, out=out),
    "arange": lambda x, out: torch.arange(7, out=out),
    "inv": lambda x, out: torch.linalg.inv(x[:, :3] + 2 * torch.eye(3, device=x.device), out=out),
}


@pytest.mark.parametrize("name", OUT)
@pytest.mark.filterwarnings("ignore:.*resized:UserWarning", "ignore:.*rounding error:UserWarning")
def test_out_arguments(name: str) -> None:
    """Of the right shape, empty, of a wrong shape, strided, and a slice of something else."""

    def right(x: torch.Tensor) -> Any:
        shape = OUT[name](x, torch.empty(0, device=x.device)).shape
        out = torch.full(shape, 5.0, device=x.device)
        result = OUT[name](x, out)
        assert result is out
        return result, out._version

    assert_same(right, X)
    assert_same(OUT[name], X, torch.empty(0))
    assert_same(OUT[name], X, torch.ones(2, 7))

    def strided(x: torch.Tensor) -> Any:
        shape = OUT[name](x, torch.empty(0, device=x.device)).shape
        whole = torch.zeros(2 * shape[0], *shape[1:], device=x.device)
        return OUT[name](x, whole[::2]), whole

    assert_same(strided, X)


@pytest.mark.filterwarnings("ignore:.*resized:UserWarning")
def test_out_of_several_results() -> None:
    def run(x: torch.Tensor, values: torch.Tensor, indices: torch.Tensor) -> Any:
        result = torch.sort(x, out=(values, indices))
        assert result[0] is values
        assert result[1] is indices
        torch.max(x, 0, out=(values, indices))
        return result

    assert_same(run, X, torch.empty(0), torch.empty(0, dtype=torch.int64))
    assert_same(run, X, torch.empty(3, 4), torch.empty(3, 4, dtype=torch.int64))
    assert_same(lambda x: torch.aminmax(x, out=(x.new_empty(()), x.new_empty(()))), X)


def test_out_of_a_wrong_type_or_device_is_refused() -> None:
    x = _x()
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(x, x, out=torch.empty(3, 4, dtype=torch.int64, device="flagos"))
    for out in (torch.empty(3, 4), torch.empty(0)):
        with pytest.raises(RuntimeError, match="device"):
            torch.add(x, x, out=out)
        with pytest.raises(RuntimeError, match="device"):
            torch.mm(x.t(), x, out=out)
    with pytest.raises(RuntimeError, match="device"):
        torch.add(X, X, out=x)


def test_an_out_argument_keeps_its_storage_when_it_fits_and_its_views_follow_when_not() -> None:
    def run(x: torch.Tensor) -> Any:
        out = torch.zeros(20, device=x.device)
        view = out[:2]
        torch.add(x, x, out=out.resize_(12).view(3, 4))
        return view, out, out.untyped_storage().nbytes()

    assert_same(run, X)


def test_an_error_in_an_operator_with_out_leaves_a_usable_tensor() -> None:
    out = torch.full((2, 2), 7.0, device="flagos")
    for _ in range(3):
        with pytest.warns(UserWarning, match="resized"), pytest.raises(torch.linalg.LinAlgError):
            torch.linalg.inv(torch.zeros(64, 64, device="flagos"), out=out)
        others = [torch.full((64, 64), float(i), device="flagos") for i in range(8)]
        assert out.untyped_storage().nbytes() >= out.numel() * 4
        out.fill_(3.0)
        assert out.data_ptr() not in {other.data_ptr() for other in others}
        assert out.cpu().unique().tolist() == [3.0]
        assert [float(other.mean()) for other in others] == list(range(8))
        out = torch.full((2, 2), 7.0, device="flagos")


VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "slice": lambda x: x[1:, ::2],
    "select": lambda x: x[1],
    "view": lambda x: x.view(4, 3),
    "view dtype": lambda x: x.view(torch.int32),
    "view narrow dtype": lambda x: x.view(torch.uint8),
    "reshape": lambda x: x.reshape(2, 6),
    "transpose": lambda x: x.t(),
    "permute": lambda x: x[None].permute(2, 0, 1),
    "expand": lambda x: x[:1].expand(5, 4),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:1].squeeze(0),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "diagonal": lambda x: x.diagonal(),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "as_strided": lambda x: x.as_strided((2, 3), (1, 2), 1),
    "split": lambda x: x.split(2),
    "chunk": lambda x: x.chunk(2, 1),
    "unbind": lambda x: x.unbind(),
    "tensor_split": lambda x: x.tensor_split((1,)),
    "unsafe_split": lambda x: x.unsafe_split(2),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "view_as": lambda x: x.view_as(x),
    "alias": torch.ops.aten.alias,
    "contiguous": lambda x: (x.contiguous(), x.t().contiguous()),
    "to itself": lambda x: (x.to(x.device), x.float(), x.to(x.dtype)),
    "nested": lambda x: x[1:].t()[1:].view(-1) if x[1:].t()[1:].is_contiguous() else x[1:].t()[1:],
    "movedim": lambda x: x[None].movedim(0, -1),
    "flatten": lambda x: x.flatten(),
    "ravel of transposed": lambda x: x.t().ravel(),
    "real": lambda x: x.real,
    "broadcast": lambda x: torch.broadcast_tensors(x, x[0]),
    "atleast_3d": lambda x: torch.atleast_3d(x),
    "lift": torch.ops.aten.lift_fresh,
    "numpy style": lambda x: (x[None, ..., 0], x[...], x[:, None, 1:3]),
    "clone": lambda x: x.clone(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str) -> None:
    assert_same(VIEWS[name], X)

    def write(x: torch.Tensor) -> Any:
        views = VIEWS[name](x)
        views = views if isinstance(views, (tuple, list)) else [views]
        before = [view._version for view in views]
        for view in views:
            if name not in ("expand", "unfold", "broadcast"):
                view.zero_()
        return [view._version - old for view, old in zip(views, before, strict=True)], x, views

    assert_same(write, X)


def test_views_share_storage_base_and_version() -> None:
    x = _x()
    view = x[1:].t()
    assert view._base is x
    assert view[0]._base is x
    assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert view.data_ptr() == x.data_ptr() + 16
    version = x._version
    view.add_(1)
    assert x._version == view._version == version + 1
    assert x[1].tolist() == view[:, 0].tolist()
    detached = x.detach()
    detached.add_(1)
    assert x._version == version + 2
    assert x.data._version == 0


def test_overlapping_writes_are_refused_as_on_the_cpu() -> None:
    for device in ("cpu", "flagos"):
        x = torch.zeros(1, 4, device=device).expand(3, 4)
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            x.add_(1)
        y = torch.zeros(8, device=device)
        with pytest.raises(RuntimeError, match="single memory location"):
            torch.add(y[:5], 1, out=y[2:7])


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_storages() -> None:
    def run(x: torch.Tensor) -> Any:
        y = torch.empty(0, device=x.device).set_(x.untyped_storage(), 4, (2, 3), (4, 1))
        y.zero_()
        storage = x.untyped_storage()
        first = x.clone()
        storage.resize_(200)
        assert x.untyped_storage().nbytes() == 200
        assert y.untyped_storage()._cdata == storage._cdata
        x.add_(1)
        z = torch.empty(0, device=x.device).set_(storage, 0, (50,), (1,))
        z[12:] = 3
        return first, x, y, z, y.storage_offset()

    assert_same(run, X)


def test_a_storage_can_be_given_up_and_filled_again() -> None:
    """As sharded training does with parameters."""
    x = _x()
    view, version = x[1], x._version
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0
    assert x.shape == (3, 4)
    x.untyped_storage().resize_(48)
    x.copy_(X)
    assert view.tolist() == X[1].tolist()
    assert x._version == version + 1
    x.untyped_storage().fill_(0)
    assert x.count_nonzero().item() == 0


def test_resizing_in_a_kernel_is_seen_by_every_tensor_of_the_storage() -> None:
    def run(x: torch.Tensor) -> Any:
        view = x[0]
        x.resize_(50, 4)
        x[3:] = 1
        x[0] = 7
        torch.add(torch.ones(300, device=x.device), 1, out=x.resize_(0))
        return view, x

    assert_same(run, X)


def test_data_can_be_exchanged() -> None:
    parameter = torch.nn.Parameter(_x())
    other = torch.zeros(5, device="flagos")
    parameter.data = other
    assert parameter.shape == (5,)
    assert parameter.data_ptr() == other.data_ptr()
    a, b = _x(), torch.ones(2, device="flagos")
    torch.utils.swap_tensors(a, b)
    assert a.shape == (2,)
    assert b.shape == (3, 4)
    with pytest.raises(RuntimeError):
        a.set_(torch.ones(3).untyped_storage())


def test_a_result_of_a_kernel_that_returns_its_input_is_that_input() -> None:
    x = _x()
    assert x.contiguous() is x
    assert x.to("flagos") is x
    assert x.float() is x
    assert torch.ops.aten.expand_as(x, x).data_ptr() == x.data_ptr()


def test_memory_addresses_of_live_tensors_never_overlap() -> None:
    kept = [torch.full((1 + i % 50,), float(i), device="flagos") for i in range(300)]
    del kept[::3]
    kept += [torch.full((1 + i % 70,), float(i), device="flagos") for i in range(300)]
    ranges = sorted((x.data_ptr(), x.data_ptr() + x.untyped_storage().nbytes()) for x in kept)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ranges))
    assert all(address % 64 == 0 for address, _ in ranges)
    assert all(x.unique().numel() == 1 for x in kept)


def test_changes_under_autograd_are_noticed() -> None:
    for device in ("cpu", "flagos"):
        x = torch.ones(3, device=device, requires_grad=True)
        y = x * 2
        loss = (y * y).sum()
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        w = torch.ones(3, device=device, requires_grad=True)
        loss = (w * w).sum()
        torch._foreach_add_([w.data], 1.0)
        loss.backward()  # .data has a counter of its own
        saved = w.exp()
        torch._foreach_add_([saved.detach()], 1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            saved.sum().backward()


_OVERLAP = "some elements of the input tensor and the written-to tensor refer to a single memory"


def _over(memory: torch.Tensor, device: str) -> torch.Tensor:
    """A tensor of `device` over memory that somebody else made, the CPU's `memory`."""
    storage = torch._C._construct_storage_from_data_pointer(
        memory.data_ptr(), torch.device(device), memory.nbytes
    )
    return torch.empty(0, device=device).set_(storage)


def test_overlaps_in_memory_that_others_made_are_refused_as_on_the_cpu() -> None:
    for device in ("cpu", "flagos:0"):
        memory = torch.arange(8.0)
        x = _over(memory, device)
        assert x.numel() == 8
        with pytest.raises(RuntimeError, match=_OVERLAP):
            torch.add(x[:-1], 1, out=x[1:])
        with pytest.raises(RuntimeError, match=_OVERLAP):
            x[1:].mul_(x[:-1])
        assert memory.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
        x[2:4].add_(x[4:6])
        assert memory.tolist() == [0, 1, 6, 8, 4, 5, 6, 7]


@pytest.mark.filterwarnings("ignore:[^$]*Overriding a previously registered:UserWarning")
def test_an_argument_that_a_users_kernel_keeps_is_a_tensor_like_others() -> None:
    """The kernel that it replaces is PyTorch's own, whose arguments are no more than looked at."""
    kept: list[torch.Tensor] = []

    def relu(x: torch.Tensor) -> torch.Tensor:
        kept.append(x)
        return x.clone()

    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("relu", relu, "CPU", allow_override=True)
        source = torch.ones(3, device="flagos")
        torch.relu(source)
    finally:
        library._destroy()
    (x,) = kept
    assert x.device.type == "cpu"
    before = source._version
    x.add_(1)
    assert source.tolist() == [2, 2, 2]
    assert source._version == before + 1
    x.requires_grad_()
    (x * torch.ones(3, requires_grad=True)).sum().backward()
    assert x.grad is not None
