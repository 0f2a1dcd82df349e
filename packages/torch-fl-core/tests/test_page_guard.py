"""Owns: tests of FLAGOS_HOST_GUARD=1: a stray host access to device memory ends the process with
SIGSEGV, and everything that goes through PyTorch works as without the guard."""

from __future__ import annotations

import copy
import io
import json
import pickle
import signal
import sys
import threading
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from children import output_of_child, run_child
from parity import assert_close, assert_same, gradients, leaf, through, uneven, with_gradients
from torch import nn
from torch.nn import functional

import torch_fl  # noqa: F401  (makes the device)

if TYPE_CHECKING:
    from collections.abc import Callable

D = "flagos"

# Each case is tried in a forked copy of the process that touches the memory and nothing else.
TOUCH = """
import ctypes, os, resource, torch, torch_fl
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

def end_of(access, address):
    pid = os.fork()
    if pid == 0:
        if access == "read":
            ctypes.string_at(address, 4)
        else:
            ctypes.memset(address, 0, 4)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

def failed():
    x = torch.zeros(3, 3, device="flagos")
    try:
        torch.linalg.inv(x)
    except RuntimeError:
        return x
    raise AssertionError

def in_thread():
    import threading
    result = []
    thread = threading.Thread(target=lambda: result.append(torch.ones(4, device="flagos") * 2))
    thread.start(); thread.join()
    return result[0]

def gradient():
    w = torch.ones(4, device="flagos", requires_grad=True)
    (w * w).sum().backward()
    return w.grad

def resized():
    x = torch.ones(4, device="flagos")
    x.untyped_storage().resize_(1 << 20)
    return x

def reused():
    for _ in range(3):
        x = torch.ones(1 << 20, device="flagos")
        del x
    return torch.zeros(1 << 20, device="flagos")

def written():
    x = torch.empty(0, device="flagos")
    torch.add(torch.ones(9, device="flagos"), 1, out=x)
    return x

ONES = torch.ones(64, device="flagos")
CASES = {
    "empty": lambda: torch.empty(64, device="flagos"),
    "factory": lambda: ONES,
    "small": lambda: torch.ones(1, device="flagos"),
    "result": lambda: ONES * 2,
    "in place": lambda: ONES.add_(1),
    "view": lambda: ONES[5:],
    "copy of the host's": lambda: torch.arange(64.0).to("flagos"),
    "clone": lambda: ONES.clone(),
    "index": lambda: ONES[torch.tensor([1, 2])],
    "cat": lambda: torch.cat([ONES, ONES]),
    "list result": lambda: torch._foreach_add([ONES], 1.0)[0],
    "read before": lambda: (ONES.sum().item(), ONES)[1],
    "printed before": lambda: (str(ONES), ONES)[1],
    "after an error": failed,
    "made in a thread": in_thread,
    "gradient": gradient,
    "storage resized": resized,
    "reused": reused,
    "out": written,
    "sparse": lambda: torch.eye(3, device="flagos").to_sparse().values(),
    "quantized": lambda: torch.quantize_per_tensor(ONES, 0.1, 0, torch.quint8),
    "unpickled": lambda: torch.load(__import__("io").BytesIO(SAVED)),
}
buffer = __import__("io").BytesIO(); torch.save(ONES, buffer); SAVED = buffer.getvalue()
outcomes = {}
for name, make in CASES.items():
    tensor = make()
    outcomes[name] = [end_of(access, tensor.data_ptr()) for access in ("read", "write")]
outcomes["host"] = [end_of("read", x.data_ptr()) for x in (
    torch.ones(4), ONES.cpu(), (ONES * 2).cpu()[3:], torch.ones(4).pin_memory("flagos"))]
print(__import__("json").dumps(outcomes))
"""


def test_a_stray_access_dies_where_it_happens() -> None:
    outcomes = json.loads(output_of_child(TOUCH, FLAGOS_HOST_GUARD="1"))
    host = outcomes.pop("host")
    assert outcomes == {name: [signal.SIGSEGV] * 2 for name in outcomes}
    assert host == [0, 0, 0, 0], "memory of the host must stay open"
    assert len(outcomes) > 15


def test_without_the_guard_the_memory_is_plain() -> None:
    outcomes = json.loads(output_of_child(TOUCH, FLAGOS_HOST_GUARD=None))
    assert all(status == 0 for statuses in outcomes.values() for status in statuses)
    child = run_child(
        """
        import ctypes, torch, torch_fl
        x = torch.arange(4.0, device="flagos")
        assert ctypes.c_float.from_address(x.data_ptr() + 8).value == 2.0
        ctypes.c_float.from_address(x.data_ptr()).value = 9.0
        assert x.tolist() == [9.0, 1.0, 2.0, 3.0]
        """,
        FLAGOS_HOST_GUARD="0",
    )
    assert child.returncode == 0, child.stderr


SECTIONS: dict[str, Callable[[], None]] = {}


def section(function: Callable[[], None]) -> Callable[[], None]:
    SECTIONS[function.__name__] = function
    return function


@section
def training() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.5), nn.Linear(16, 5),
    )  # fmt: skip

    def train(x: torch.Tensor, y: torch.Tensor) -> Any:
        mine = copy.deepcopy(net).to(x.device)
        losses = []
        for kind in (torch.optim.SGD, torch.optim.AdamW):
            for options in ({"foreach": True}, {"foreach": False}, {"fused": True}):
                optimizer = kind(mine.parameters(), lr=0.1, **options)
                for _ in range(2):
                    optimizer.zero_grad()
                    loss = functional.cross_entropy(mine(x), y)
                    loss.backward()
                    nn.utils.clip_grad_norm_(mine.parameters(), 1.0)
                    optimizer.step()
                    losses.append(loss.detach())
        return losses

    assert_close(train, uneven((3, 2, 6, 6)), torch.tensor([0, 4, 2]))


@section
def copies() -> None:
    x = uneven((6, 8))
    for make in (lambda t: t, lambda t: t.t(), lambda t: t[1:, ::2], lambda t: t[:1].expand(6, 8)):
        host, device = make(x), make(x.to(D))
        for dtype in (torch.float32, torch.float64, torch.int32, torch.complex64):
            for blocking in (False, True):
                there = host.to(D, dtype, non_blocking=blocking)
                assert torch.equal(there.cpu(), host.to(dtype))
                assert torch.equal(device.to("cpu", dtype, non_blocking=blocking), host.to(dtype))
                assert torch.equal(device.to(dtype).cpu(), host.to(dtype))
        assert torch.equal(make(torch.zeros(6, 8, device=D)).shape.numel() and device.cpu(), host)
    z = torch.complex(x, x.cos())
    assert torch.equal(z.conj().to(D).cpu(), z.conj())
    assert torch.equal(z.to(D).conj().imag.cpu(), z.conj().imag)
    pinned = x.pin_memory(D)
    assert torch.equal(pinned.to(D, non_blocking=True).cpu(), x)
    assert torch.equal(torch.empty(6, 8, device=D).copy_(pinned).cpu(), x)
    assert torch.equal(pinned.copy_(torch.ones(6, 8, device=D)), torch.ones(6, 8))
    same = x.to(D)
    same[1:].copy_(same[:-1].clone())
    assert x.to(D).numpy(force=True).sum() == x.numpy().sum()


@section
def views_and_indices() -> None:
    def run(x: torch.Tensor) -> Any:
        mask, ids = x > 0, torch.tensor([2, 0, 2], device=x.device)
        y = x.clone()
        y[mask] = 0
        y[1, ::2] = 5
        y[ids] += 1
        y.index_put_((ids, ids), x[0, 0], accumulate=True)
        picked = (x[mask], x[ids], x[:, torch.tensor([0, 1])], x[1], x.t()[0], x.view(-1)[::3])
        return y, picked, x.nonzero(), x.unfold(0, 2, 1), x.diagonal(), x[0, 0].item(), x.tolist()

    assert_same(run, uneven((4, 4)))
    assert_same(with_gradients(lambda x: (x[1:].t() * 2, x[x > 0], x.expand(2, 4, 4))), leaf(4, 4))


@section
def printing() -> None:
    numbers = (uneven((3, 4)), torch.arange(5), torch.tensor(True), torch.ones(2000))
    for x in (*numbers, torch.empty(0)):
        text = repr(x.to(D))
        assert "device='flagos:0'" in text
        assert "".join(text.replace(", device='flagos:0'", "").split()) == "".join(repr(x).split())
        assert f"{x.to(D)}"
    assert f"{torch.tensor(2.5, device=D):.3f}" == "2.500"
    assert "Parameter" in repr(nn.Parameter(torch.ones(2, device=D)))
    assert "grad_fn" in repr(torch.ones(2, device=D, requires_grad=True) * 2)


@section
def storages() -> None:
    def run(x: torch.Tensor) -> Any:
        y = x.clone()
        y.resize_(40)
        y[12:] = 1
        y.resize_(2, 3)
        z = torch.empty(0, device=x.device).set_(x.untyped_storage(), 2, (3, 2), (3, 1))
        z.add_(1)
        storage = x.untyped_storage()
        storage.resize_(400)
        x.mul_(2)
        other = torch.ones(7, device=x.device)
        other.set_(x)
        gone = torch.ones(9, device=x.device)
        gone.untyped_storage().resize_(0)
        gone.untyped_storage().resize_(36)
        gone.fill_(3)
        filled = torch.ones(4, device=x.device)
        filled.untyped_storage().fill_(0)
        out = torch.empty(0, device=x.device)
        torch.mm(x[:, :3], x[:, :3], out=out)
        return y, z, x, other, gone, filled, out, storage.nbytes()

    assert_same(run, uneven((3, 4)))
    x = torch.ones(4, device=D)
    copied = x.untyped_storage().clone()
    assert copied.data_ptr() != x.data_ptr()
    assert x.untyped_storage().cpu().device.type == "cpu"


@section
def sparse() -> None:
    coo = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    for s in (coo, coo.to_sparse_csr(), coo.to_sparse_csc()):
        assert torch.equal(s.to(D).cpu().to_dense(), s.to_dense())
        assert "device='flagos:0'" in repr(s.to(D))
        assert_same(lambda s, d: (s @ d, s.to_dense(), s * 2), s, uneven((2, 2)))
    assert_same(lambda s: (s.coalesce(), s + s, s.t(), s.clone().values().mul_(2)), coo.coalesce())

    def train(ids: torch.Tensor, weight: torch.Tensor) -> Any:
        return gradients(functional.embedding(ids, weight, sparse=True), [weight])

    assert_same(train, torch.tensor([1, 1]), leaf(3, 2))


@section
def sparse_copies() -> None:
    """What a copy to the host makes is the host's memory."""
    for layout in (torch.sparse_coo, torch.sparse_csr):
        host = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse(layout=layout)
        copied = torch.empty_like(host).copy_(host.to(D))
        assert torch.equal(copied.to_dense(), host.to_dense())
        there = torch.empty_like(host.to(D)).copy_(host)
        assert torch.equal(there.to_dense().cpu(), host.to_dense())


@section
def sparse_in_place() -> None:
    def run(s: torch.Tensor) -> Any:
        return s.add_(s.clone()), s.mul_(2), s.clone().zero_()

    assert_same(run, torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse())


@section
def quantized() -> None:
    q = torch.quantize_per_tensor(uneven((3, 4)).to(D), 0.1, 3, torch.quint8)
    host = torch.quantize_per_tensor(uneven((3, 4)), 0.1, 3, torch.quint8)
    assert torch.equal(q.int_repr().cpu(), host.int_repr())
    assert torch.equal(q[1:].dequantize().cpu(), host[1:].dequantize())
    assert torch.equal(q.clone().dequantize().cpu(), host.dequantize())
    scales, zeros = torch.tensor([0.1, 0.2, 0.3], device=D), torch.tensor([0, 1, 2], device=D)
    channel = torch.quantize_per_channel(uneven((3, 4)).to(D), scales, zeros, 0, torch.qint8)
    assert channel.dequantize().shape == (3, 4)


@section
def quantized_moves() -> None:
    host = torch.quantize_per_tensor(uneven((3, 4)), 0.1, 3, torch.quint8)
    assert torch.equal(host.to(D).cpu().int_repr(), host.int_repr())
    assert "flagos" in repr(host.to(D))


@section
def threads() -> None:
    weight = torch.ones(16, 16, device=D, requires_grad=True)
    errors: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for step in range(30):
                x = torch.full((16, 16), float(index), device=D)
                y = (x @ weight).relu()
                (grad,) = torch.autograd.grad(y.sum(), [weight])
                assert grad.unique().tolist() == [16.0 * index]
                assert y.cpu().unique().tolist() == [16.0 * index]
                if step % 10 == 0:
                    torch.flagos.empty_cache()
                x.resize_(4000).fill_(2)
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]


@section
def saving() -> None:
    state = {"x": uneven((3, 4)).to(D), "view": uneven((3, 4)).to(D)[1:], "n": torch.ones(2)}
    for zipped in (True, False):
        buffer = io.BytesIO()
        torch.save(state, buffer, _use_new_zipfile_serialization=zipped)
        for where in (None, "cpu", D):
            buffer.seek(0)
            loaded = torch.load(buffer, map_location=where, weights_only=True)
            assert torch.equal(loaded["x"].cpu(), state["x"].cpu())
            assert torch.equal(loaded["view"].cpu(), state["view"].cpu())
    for other in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        assert torch.equal(other["x"], state["x"])
        assert other["x"].data_ptr() != state["x"].data_ptr()


@section
def foreach() -> None:
    def run(*given: torch.Tensor) -> Any:
        tensors = [x.clone() for x in given]
        torch._foreach_add_(tensors, 1.0)
        torch._foreach_mul_(tensors, [2.0, 3.0])
        torch._foreach_addcdiv_(tensors, given, tensors)
        torch._foreach_zero_([tensors[0][:1]])
        return tensors, torch._foreach_norm(tensors), torch._foreach_sqrt([x.abs() for x in given])

    assert_same(lambda *x: run(*x)[0] + list(run(*x)[1]), uneven((3, 4)), uneven((5,)))


@section
def attention() -> None:
    attend = functional.scaled_dot_product_attention
    given = [leaf(2, 2, 5, 4), leaf(2, 2, 5, 4), leaf(2, 2, 5, 4)]
    assert_same(with_gradients(attend), *given)
    assert_same(with_gradients(lambda *x: attend(*x, dropout_p=0.5)), *given)
    assert_same(with_gradients(attend), *given, uneven((5, 5)))


@section
def lstm() -> None:
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        torch.manual_seed(0)
        assert_close(through(kind(3, 4, num_layers=2, bidirectional=True)), leaf(5, 2, 3))


@section
def operators() -> None:
    x = uneven((4, 4))
    assert_same(lambda x: (x.sort(1), x.topk(2), x.unique(), x.cumsum(0), x.max(0)), x)
    assert_same(lambda x: (torch.linalg.svdvals(x), torch.linalg.inv(x), torch.linalg.qr(x)), x,
                exact=False)  # fmt: skip
    assert_same(lambda x: (torch.fft.rfft(x), torch.histc(x, 5), torch.bincount(x.long().abs()
                           .flatten())), x)  # fmt: skip
    assert_same(lambda x: (x[:0].sum(), torch.cat([x[:0], x]), x[:0] @ x), x)
    double = with_gradients(lambda x: functional.interpolate(x, scale_factor=2))
    assert_same(double, leaf(1, 2, 4, 4))
    assert_same(lambda d: (torch.rand(40, device=d), torch.randperm(40, device=d)), "cpu")
    assert_same(with_gradients(lambda x: functional.dropout(x, 0.5)), leaf(40))
    with torch.inference_mode():
        there = x.to(D)
        assert torch.equal((there.clone().add_(1) @ there).cpu(), x.clone().add_(1) @ x)


@section
def errors() -> None:
    x = torch.ones(3, 3, device=D)
    for broken in (
        lambda: x + torch.ones(4, device=D),
        lambda: torch.linalg.inv(x * 0),
        lambda: x[torch.tensor([9])],
        lambda: torch.ones(3, 3, device=D).gather(0, torch.full((1, 3), 9, device=D)),
    ):
        with pytest.raises((RuntimeError, IndexError)):
            broken()
    assert x.sum().item() == 9


@section
def custom_operators() -> None:
    library = torch.library.Library("flagos_guard", "FRAGMENT")
    library.define("scale_(Tensor(a!) x) -> Tensor(a!)")
    library.define("total(Tensor[] xs, Tensor? y) -> Tensor")
    library.impl("scale_", lambda x: x.mul_(2), "CPU")
    library.impl("total", lambda xs, y: torch.from_numpy(sum(x.numpy() for x in xs)) + y, "CPU")
    x = torch.ones(3, device=D)
    torch.ops.flagos_guard.scale_(x)
    assert x.tolist() == [2.0] * 3
    assert torch.ops.flagos_guard.total([x, x], x).tolist() == [6.0] * 3


@section
def mixed_precision() -> None:
    net, scaler = nn.Linear(4, 3).to(D), torch.amp.GradScaler(D)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        with torch.autocast(D, dtype=torch.float16):
            loss = net(torch.ones(2, 4, device=D)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@section
def many_live_tensors() -> None:
    """Each guarded block has pages of its own: a few thousand must be possible."""
    tensors = [torch.full((8,), float(i), device=D) for i in range(3000)]
    assert torch.stack(tensors)[:, 3].tolist() == [float(i) for i in range(3000)]
    del tensors[::2]
    assert sum(float(x[0]) for x in tensors[:100]) == sum(range(1, 200, 2))


@section
def graph_tools() -> None:
    cubes = torch.func.grad(lambda r: (r**3).sum())
    assert_same(lambda x: torch.func.vmap(cubes)(x), uneven((3, 4)))
    x = torch.ones(50, device=D, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda t: t.exp().sin(), x, use_reentrant=False)
    y.sum().backward()
    seen = []
    x.register_hook(lambda g: seen.append(g.sum().item()))
    (x * 2).sum().backward()
    assert seen == [100.0]
    x = torch.ones(3, device=D, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(torch.exp, [x])


def run_sections(names: list[str]) -> None:
    """In the child: run and say what became of each, line by line, so that a crash is located."""
    warnings.simplefilter("ignore")
    for name in names:
        print(json.dumps(["begins", name]), flush=True)
        try:
            SECTIONS[name]()
        except BaseException:
            print(json.dumps([name, traceback.format_exc()]), flush=True)
        else:
            print(json.dumps([name, ""]), flush=True)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """What became of each section under the guard; after a crash the rest runs in a new child."""
    results: dict[str, str] = {}
    remaining = list(SECTIONS)
    while remaining:
        child = run_child(
            f"""
            import sys
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            import test_page_guard
            test_page_guard.run_sections({remaining!r})
            """,
            FLAGOS_HOST_GUARD="1",
            PYTHONPATH=":".join(sys.path),
        )
        lines = [json.loads(x) for x in child.stdout.splitlines() if x.startswith("[")]
        results.update({name: text for name, text in lines if name != "begins"})
        begun = [name for word, name in lines if word == "begins"]
        if not begun:
            raise AssertionError(f"the child did not start: {child.stderr}")
        crashed = begun[-1]
        if crashed not in results:
            results[crashed] = f"the process ended with {child.returncode}\n{child.stderr}"
        remaining = [name for name in remaining if name not in results]
    return results


@pytest.mark.parametrize("name", SECTIONS)
def test_works_under_the_guard(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes[name] == "", outcomes[name]
