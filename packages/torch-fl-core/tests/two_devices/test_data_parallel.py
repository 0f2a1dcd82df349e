"""Owns: tests of `torch.nn.DataParallel` and of the copies between devices below it.

With two host devices; started by ../test_device_rules.py. A model of doubles on the CPU is what
their results are compared with.
"""

from __future__ import annotations

import copy
import types
from typing import Any

import pytest
import torch
from parity import uneven
from torch import nn
from torch.nn.parallel import comm, data_parallel, gather, replicate, scatter

import torch_fl  # noqa: F401  (makes the devices)
from torch_fl._compat.data_parallel import unless_on_cuda

ZERO, ONE = torch.device("flagos:0"), torch.device("flagos:1")


class Net(nn.Module):
    """With a tied weight, a buffer, and a note of where its calls ran."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4).double()
        self.norm = nn.LayerNorm(4).double()
        self.second = nn.Linear(4, 4).double()
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.tensor(2.0, dtype=torch.double))
        self.ran: list[tuple[str, int]] = []

    def forward(self, x: torch.Tensor, *, name: str = "") -> dict[str, torch.Tensor]:
        assert x.device == self.first.weight.device == self.scale.device
        assert torch.flagos.current_device() == (x.device.index or 0)
        self.ran.append((str(x.device), len(x)))
        return {"y": self.second(self.norm(self.first(x)).tanh()) * self.scale}


def _inputs() -> torch.Tensor:
    return uneven((5, 4)).double()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("ids", "home"),
    [(None, ZERO), ([0], ZERO), ([1, 0], ONE), ([ZERO, ONE], ZERO)],
    ids=["all", "one", "numbers", "devices"],
)
@pytest.mark.parametrize("x", ["cpu", "flagos:0"])
def test_trains_as_on_the_cpu(ids: list[Any] | None, home: torch.device, x: str) -> None:
    torch.manual_seed(0)
    plain = Net()
    net = copy.deepcopy(plain).to(home)
    model = nn.DataParallel(net, device_ids=ids)
    for _ in range(3):
        results = []
        for module, inputs in ((plain, _inputs()), (model, _inputs().to(x))):
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            optimizer.zero_grad()
            y = module(inputs, name="a")["y"]
            y.square().sum().backward()
            optimizer.step()
            results.append(y)
        assert results[1].device == home
        torch.testing.assert_close(results[1].cpu(), results[0])
        for mine, its in zip(net.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(mine.grad.cpu(), its.grad)
            torch.testing.assert_close(mine.data.cpu(), its.data)
    devices = {device for device, _ in net.ran}
    assert devices == ({"flagos:0"} if ids == [0] else {"flagos:0", "flagos:1"})
    assert sum(rows for _, rows in net.ran) == 15


def test_one_call() -> None:
    net = Net().to(ZERO)
    y = data_parallel(net, _inputs(), [0, 1], output_device=1)["y"]
    assert y.device == ONE
    torch.testing.assert_close(y.cpu(), net(_inputs().to(ZERO))["y"].cpu())
    y = data_parallel(net, _inputs(), [0, 1], output_device=-1)["y"]
    assert y.device.type == "cpu"


def test_an_error_of_a_replica_is_that_replicas() -> None:
    model = nn.DataParallel(Net().to(ZERO))
    with pytest.raises(
        RuntimeError, match=r"(?s)replica 0 on device 0.*shapes cannot be multiplied"
    ):
        model(torch.ones(4, 3, dtype=torch.double))
    with pytest.raises(
        RuntimeError, match="must have its parameters and buffers on device flagos:0"
    ):
        nn.DataParallel(Net().to(ONE), device_ids=[0, 1])(_inputs())


def test_scatter_and_gather() -> None:
    x = uneven((5, 3))
    for source in (x, x.to(ZERO), x.to(ONE)):
        parts = comm.scatter(source, [0, 1])
        assert [part.device for part in parts] == [ZERO, ONE]
        assert torch.equal(torch.cat([part.cpu() for part in parts]), x)
        assert len(parts[0]) == 3
        parts = comm.scatter(source, [1, 0], chunk_sizes=[1, 2], dim=-1)
        assert [tuple(part.shape) for part in parts] == [(5, 1), (5, 2)]
        streams = [torch.Stream(ONE), None]
        parts = comm.scatter(source, [1, 0], [1, 2], -1, streams)
        streams[0].synchronize()
        assert torch.equal(comm.gather(parts, -1, destination="cpu"), x)
        with torch.flagos.device(1):
            assert comm.gather(parts, -1).device == ONE
        assert comm.gather(parts, -1, 0).device == ZERO
        outs = torch.empty(2, 3, device=ZERO), torch.empty(3, 3, device=ONE)
        for given, out in zip(comm.scatter(source, out=outs), outs, strict=True):
            assert given.data_ptr() == out.data_ptr()
        assert torch.equal(comm.gather(outs, out=torch.empty(5, 3, device=ONE)).cpu(), x)
    assert len(comm.scatter(x[:1], [0, 1])) == 1


def test_broadcast_and_sums() -> None:
    x = uneven((5, 3)).to(ZERO)
    first, second = comm.broadcast(x, [0, 1])
    assert first.data_ptr() == x.data_ptr()
    assert (second.device, torch.equal(second.cpu(), x.cpu())) == (ONE, True)
    outs = [torch.empty(5, 3, device=ONE), torch.empty(5, 3, device=ZERO)]
    comm.broadcast(x, out=outs)
    assert all(torch.equal(out.cpu(), x.cpu()) for out in outs)
    (a, b), (c, d) = comm.broadcast_coalesced([x, x.double()], [0, 1])
    assert [t.device for t in (a, b, c, d)] == [ZERO, ZERO, ONE, ONE]
    assert (d.dtype, torch.equal(d.cpu(), x.double().cpu())) == (torch.double, True)
    c.zero_()
    assert x.any()
    total = comm.reduce_add([x, second], 1)
    assert (total.device, torch.equal(total.cpu(), 2 * x.cpu())) == (ONE, True)
    sparse = [x.to_sparse(), second.to_sparse()]
    sums = comm.reduce_add_coalesced([[x, sparse[0]], [second, sparse[1]]], 0)
    assert all(torch.equal(each.to_dense().cpu(), 2 * x.cpu()) for each in sums)


def test_autograd_goes_through_them() -> None:
    x = uneven((4, 2)).to(ZERO).requires_grad_()
    parts = scatter(x, [0, 1])
    (gather([parts[0] * 2, parts[1] * 3], 1) ** 2).sum().backward()
    factors = torch.tensor([4.0, 4.0, 9.0, 9.0])[:, None]
    assert torch.equal(x.grad.cpu(), 2 * x.detach().cpu() * factors)
    net = nn.Linear(2, 2).to(ZERO)
    copies = replicate(net, [0, 1])
    assert [each.weight.device for each in copies] == [ZERO, ONE]
    copies[1](x.detach().to(ONE)).sum().backward()
    assert torch.equal(net.bias.grad.cpu(), torch.full((2,), 4.0))


def test_mistakes_are_named() -> None:
    x = torch.ones(4, 2)
    mistakes = [
        (lambda: comm.scatter(x, [0, 1], [1, 2]), r"one size for each of 2 devices, 4 in all"),
        (
            lambda: comm.scatter(x, out=[torch.ones(1, 2, device=ZERO)]),
            r"must sum to 4, but are \[1\]",
        ),
        (lambda: comm.scatter(x, out=[torch.ones(4, 2)]), "must be a flagos tensor"),
        (lambda: comm.scatter(x, [0, 7]), "flagos:7|device index 7"),
        (lambda: comm.gather([]), "at least one tensor"),
        (lambda: comm.gather([x, torch.ones(2, 3)], 0), "only dimension 0 may differ"),
        (lambda: comm.gather([x, x], out=torch.ones(3, 2, device=ZERO)), r"out has 3 .* \[4, 4\]"),
        (lambda: comm.broadcast_coalesced([x], [0, 1]), "must be on flagos:0"),
        (lambda: comm.broadcast(x, out=[torch.ones(3, device=ONE)]), r"out\[0\] must be a flagos"),
    ]
    for call, text in mistakes:
        with pytest.raises(RuntimeError, match=text):
            call()


def test_tensors_of_a_native_device_stay_its_own() -> None:
    """A build that has these functions gets its own tensors as before."""
    choose = unless_on_cuda(lambda *_: "native", lambda *_: "ours")
    native = types.SimpleNamespace(device=torch.device("cuda"))
    assert choose([native], 0) == "native"
    assert choose([torch.ones(1, device=ONE)], 0) == choose(torch.ones(1), 0) == "ours"


def test_replicas_have_autocast() -> None:
    seen = []

    class Seeing(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            seen.append((y.dtype, torch.is_autocast_enabled("flagos")))
            return y

    model = nn.DataParallel(Seeing(2, 2).to(ZERO))
    with torch.autocast("flagos", dtype=torch.float16):
        model(torch.ones(4, 2))
    model(torch.ones(4, 2))
    assert seen == [(torch.float16, True)] * 2 + [(torch.float32, False)] * 2
