"""Owns: tests of an allocation that fails outside a training step: in copies, lists, results given
by the caller, hooks and threads, other routes, loading, pinning."""

from __future__ import annotations

import copy
import io
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from memory_level import settled
from out_of_memory import assert_right, fails_at, sweep, wait_for_level
from torch.utils.checkpoint import checkpoint

import torch_fl
from torch_fl.testing import faults

D = "flagos"


def _x(*shape: int) -> torch.Tensor:
    return torch.ones(*(shape or (6, 6)), device=D)


def _resized() -> torch.Tensor:
    out = torch.empty(0, device=D)
    return torch.mm(_x(), _x(), out=out)


def _foreach() -> None:
    tensors = [_x(), _x(3), _x(2, 2)]
    torch._foreach_addcmul_(torch._foreach_mul(tensors, 2.0), tensors, tensors)
    torch._foreach_lerp_(tensors, [*torch._foreach_exp(tensors)], torch._foreach_norm(tensors))


def _in_threads() -> None:
    """Backward passes in two threads; the first error of either is raised."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            w = _x(8, 8).requires_grad_()
            (w @ w).relu().sum().backward()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors.pop()


def _checkpointed() -> None:
    w = _x().requires_grad_()
    y = checkpoint(lambda x: (x @ w).exp(), w, use_reentrant=False)
    y.sum().backward()


SAVED = io.BytesIO()
torch.save({"a": torch.arange(40.0), "b": [torch.ones(3, 3), torch.ones(9)[3:]]}, SAVED)


def _loaded(**options: Any) -> Any:
    SAVED.seek(0)
    return torch.load(SAVED, **options)


SCENES: dict[str, Callable[[], Any]] = {
    "from the host": lambda: [torch.ones(9).to(D), torch.ones(9, 2).t().to(D, torch.float64)],
    "to the host": lambda: [_x().t().cpu(), _x().to("cpu", torch.int32), _x().tolist()],
    "dtypes and layouts": lambda: _x(2, 3, 4, 4).to(memory_format=torch.channels_last).half(),
    "cat and stack": lambda: torch.stack([torch.cat([_x(), _x(2, 6)]), _x(8, 6)]),
    "indexing": lambda: [_x()[_x() > 0], _x()[:, torch.tensor([0, 2])], _x().nonzero()],
    "index_put": lambda: _x().__setitem__((torch.tensor([1, 2]), torch.tensor([0, 1])), 5),
    "foreach": _foreach,
    "out=": _resized,
    "two results": lambda: torch.sort(
        _x(), out=(torch.empty(0, device=D), torch.empty(0, device=D, dtype=torch.long))
    ),
    "resizing": lambda: _x().resize_(100, 3),
    "deepcopy": lambda: copy.deepcopy(torch.nn.Linear(3, 3, device=D)),
    "Module.to": lambda: torch.nn.GRU(3, 3).to(D).to("cpu"),
    "threads": _in_threads,
    "double backward": lambda: torch.autograd.grad(
        (y := _x().requires_grad_()).pow(3).sum(), [y], create_graph=True
    )[0].sum().backward(),
    "checkpointing": _checkpointed,
    "vmap": lambda: torch.func.vmap(torch.func.grad(lambda v: v.pow(2).sum()))(_x()),
    "linalg": lambda: torch.linalg.svd(_x() + torch.eye(6, device=D)),
    "sparse": lambda: (_x().to_sparse().coalesce() @ _x()).to_sparse_csr(),
    "random": lambda: [torch.randperm(9, device=D), torch.rand(3, device=D), _x().bernoulli_()],
    "printing": lambda: repr(_x()),
    "loading": lambda: _loaded(map_location=D),
    "state_dict": lambda: torch.nn.Linear(3, 3, device=D).load_state_dict(
        {k: v + 0 for k, v in torch.nn.Linear(3, 3, device=D).state_dict().items()}, assign=True
    ),
    "factories": lambda: [
        torch.zeros(9, device=D), torch.arange(5, device=D), torch.eye(4, device=D),
        torch.tensor([1, 2], device=D), torch.full((2,), 1, device=D), _x().new_ones(3),
        torch.empty_strided((2, 2), (1, 2), device=D), torch.linspace(0, 1, 5, device=D),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SCENES)
def test_each_allocation_fails(name: str) -> None:
    assert sweep(SCENES[name]) >= 1


@pytest.mark.parametrize("name", ["out=", "cat and stack", "indexing", "foreach", "linalg"])
def test_on_the_cpu_route(name: str) -> None:
    with torch_fl.routing.use({"*": "cpu"}):
        assert sweep(SCENES[name]) >= 1
    assert torch.ones(2, device=D).sum().item() == 2


def test_in_a_kernel_written_in_python() -> None:
    kept = _x()

    def mul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        scratch = torch.empty(100, device=D)
        return scratch[:36].view(6, 6).fill_(1) + a + b

    torch_fl.routing.register("runs_out", {"mul.Tensor": mul})
    with torch_fl.routing.use({"mul.Tensor": "runs_out"}):
        assert (kept * kept).tolist() == [[3.0] * 6] * 6
        assert sweep(lambda: kept * kept) >= 2


def test_an_out_tensor_keeps_what_it_had() -> None:
    a, out = _x(), torch.full((2,), 7.0, device=D)
    number = 0
    while fails_at(number := number + 1, lambda: torch.cat([a, a], out=out.resize_(0))):
        assert out.untyped_storage().nbytes() == 8
    assert out.tolist() == torch.cat([a, a]).tolist()


def test_a_failed_load_leaves_the_model_as_it_was() -> None:
    model = torch.nn.Linear(3, 4, device=D)
    before = {name: value.cpu() for name, value in model.state_dict().items()}
    saved = io.BytesIO()
    torch.save(torch.nn.Linear(3, 4).state_dict(), saved)
    level = settled()

    def load() -> None:
        saved.seek(0)
        model.load_state_dict(torch.load(saved, map_location=D, weights_only=True))

    number = 0
    while fails_at(number := number + 1, load):
        wait_for_level(level, f"allocation {number}")
        assert all(value.cpu().equal(before[name]) for name, value in model.state_dict().items())
    assert number > 2
    assert not model.weight.cpu().equal(before["weight"])


def test_memory_that_cannot_be_pinned() -> None:
    level = settled()
    for huge in (2**50, 2**60):
        with pytest.raises(RuntimeError, match="out of memory"):
            torch.empty(huge, dtype=torch.uint8, pin_memory=True)
    pinned = torch.ones(5).pin_memory()
    assert pinned.is_pinned()
    assert pinned.to(D, non_blocking=True).sum().item() == 5
    wait_for_level(level, "after pinning")


def test_pinning_needs_no_device_memory() -> None:
    with faults.failing_allocation(1, times=None) as allocations:
        assert torch.ones(5).pin_memory().is_pinned()
    assert allocations.seen == 0


def test_huge_factories_name_the_size() -> None:
    level = settled()
    for make in (torch.empty, torch.zeros, torch.rand, torch.ones):
        with pytest.raises(
            torch.OutOfMemoryError, match=r"allocate 1099511627776\.00 MiB"
        ) as raised:
            make(2**58, device=D)
        assert_right(raised.value)
        del raised
    wait_for_level(level, "after huge factories")


def test_the_cache_may_be_given_back_at_every_allocation() -> None:
    def work() -> list[list[float]]:
        w = (torch.arange(36.0, device=D).reshape(6, 6) / 36).requires_grad_()
        torch.linalg.inv(w @ w + torch.eye(6, device=D)).sort(dim=0)[0].sum().backward()
        assert w.grad is not None
        result: list[list[float]] = w.grad.tolist()
        return result

    with faults.counted_allocations() as allocations:
        expected = work()
    for number in range(1, allocations.seen + 1):
        with faults.failing_allocation(number, retry_succeeds=True) as one:
            assert work() == expected
        assert one.failed == 1
