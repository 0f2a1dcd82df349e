"""Owns: tests that device memory comes back: freed means freed, loops do not grow, limits hold in
kernels too, and the figures follow a model through any sequence of allocations.

The statistics as such, and limits in factories, are tested in test_memory_stats.
"""

from __future__ import annotations

import gc
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from children import output_of_child
from memory_level import assert_back_at, settled
from torch import nn
from torch.nn import functional

import torch_fl  # noqa: F401  (makes the device)

if TYPE_CHECKING:
    from collections.abc import Callable

flagos = torch.flagos
D = "flagos"
MIB = 1 << 20
FOLDER = str(Path(__file__).parent)  # for children


@pytest.fixture
def base() -> int:
    return settled()


class Cycle:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.me = tensor, self


class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, x * 2)
        ctx.extra = x * 3
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad + ctx.saved_tensors[1]


def _x(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.ones(*(shape or (64, 64)), device=D, requires_grad=grad)


def _failing() -> None:
    x = _x()
    for broken in (
        lambda: torch.linalg.inv(x * 0),
        lambda: torch.linalg.cholesky(-x),
        lambda: x @ x[:3],
        lambda: x[torch.tensor([99])],
        lambda: torch.cat([x, x[0]]),
        lambda: functional.conv2d(x[None, None], torch.ones(1, 2, 3, 3, device=D)),
        lambda: functional.nll_loss(x, torch.full((64,), 99, device=D)),
        lambda: torch.embedding(x, torch.tensor([99], device=D)),
        lambda: x.view(7),
        lambda: x.to("flagos:99"),
    ):
        with pytest.raises((RuntimeError, IndexError)):
            broken()


def _failing_backward() -> None:
    class Broken(Keeps):
        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            raise ValueError

    x = _x(grad=True)
    with pytest.raises(ValueError):  # noqa: PT011
        (Broken.apply(x.exp()) * 2).sum().backward()


def _trained() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                        nn.LazyLinear(3)).to(D)  # fmt: skip
    net(_x(2, 1, 9, 9))
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    for _ in range(3):
        optimizer.zero_grad()
        net(_x(2, 1, 9, 9)).square().sum().backward()
        optimizer.step()


SCENES: dict[str, Callable[[], Any]] = {
    "views": lambda: _x()[1:].t()[::2].contiguous().view(-1)[5:],
    "results": lambda: (_x() @ _x()).softmax(-1).sum(),
    "lists": lambda: [*torch._foreach_add([_x(), _x()], 1.0), *_x().split(8)],
    "backward": lambda: (_x(grad=True) @ _x()).exp().sum().backward(),
    "an unused graph": lambda: (_x(grad=True) @ _x()).exp().sum(),
    "a retained graph": lambda: (_x(grad=True) * 2).sum().backward(retain_graph=True),
    "double backward": lambda: torch.autograd.grad(
        (y := _x(grad=True)).pow(3).sum(), [y], create_graph=True
    )[0].sum().backward(),
    "a custom function": lambda: Keeps.apply(_x(grad=True)).sum().backward(),
    "errors": _failing,
    "an error in backward": _failing_backward,
    "cycles": lambda: [Cycle(_x()) for _ in range(5)],
    "training": _trained,
    "out": lambda: torch.add(_x(), 1, out=torch.empty(0, device=D)),
    "resizing": lambda: (_x().resize_(1000, 50), _x().untyped_storage().resize_(0)),
    "exchange": lambda: _x().set_(_x(9)),
    "data": lambda: setattr(_x(), "data", _x(3)),
    "copies": lambda: (_x().cpu(), _x().to(torch.float64), torch.ones(9).to(D), _x().tolist()),
    "printing": lambda: repr(_x()),
    "indexing": lambda: (_x()[_x() > 0], _x().nonzero(), _x().__setitem__(0, 5)),
    "sorting": lambda: (_x().sort(), _x().topk(3), _x().unique()),
    "sparse": lambda: (_x().to_sparse().coalesce() @ _x(), _x().to_sparse_csr().to_dense()),
    "quantized": lambda: torch.quantize_per_tensor(_x(), 0.1, 0, torch.quint8).dequantize(),
    "recurrent": lambda: nn.LSTM(4, 5, 2).to(D)(_x(3, 2, 4))[0].sum().backward(),
    "attention": lambda: functional.scaled_dot_product_attention(
        *[_x(1, 2, 9, 8, grad=True) for _ in range(3)]
    ).sum().backward(),
    "linear algebra": lambda: torch.linalg.svd(_x()),
    "checkpoint": lambda: torch.utils.checkpoint.checkpoint(
        torch.exp, _x(grad=True), use_reentrant=False
    ).sum().backward(),
    "transforms": lambda: torch.func.vmap(torch.func.grad(lambda r: r.sin().sum()))(_x()),
    "pickles": lambda: __import__("pickle").loads(__import__("pickle").dumps(_x())),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SCENES)
def test_what_is_freed_is_freed(name: str, base: int) -> None:
    SCENES[name]()
    assert_back_at(base)


def test_views_keep_memory_and_the_last_one_frees_it(base: int) -> None:
    x = _x(1000)
    view, detached, storage = x[5:], x.detach(), x.untyped_storage()
    held = flagos.memory_allocated()
    assert held > base
    del x, view
    assert flagos.memory_allocated() == held
    del detached
    assert flagos.memory_allocated() == held
    del storage
    assert flagos.memory_allocated() == base


def test_a_tensor_caught_in_an_exception_is_freed_with_it(base: int) -> None:
    def raises() -> None:
        local = _x(1000)
        raise RuntimeError(str(local.shape))

    try:
        raises()
    except RuntimeError as error:
        caught = error
    assert flagos.memory_allocated() > base
    del caught
    assert_back_at(base)


def test_in_place_work_allocates_no_copies(base: int) -> None:
    x, y = _x(1000), _x(1000)
    flagos.reset_peak_memory_stats()
    held = flagos.memory_allocated()
    x.add_(1).mul_(y).clamp_(max=3)
    torch.add(x, y, out=y)
    x[10:20] = 5
    x.copy_(y)
    x.view(10, 100).t().zero_()
    torch._foreach_mul_([x, y], 2.0)
    scalars = 512  # that the kernels make of the numbers
    assert flagos.max_memory_allocated() - held <= scalars


def test_peaks_show_what_was_alive_together(base: int) -> None:
    x = _x(MIB)  # 4 MiB
    for function, extra in (
        (lambda: x + 1, 1),
        (lambda: (x + 1) * 2, 2),
        (lambda: torch.cat([x, x]), 2),
        (lambda: x.view(1024, 1024) @ x.view(1024, 1024), 1),
        (lambda: x.sum(), 0),
        (lambda: x.double(), 2),
    ):
        flagos.reset_peak_memory_stats()
        held = flagos.memory_allocated()
        function()
        peak = flagos.max_memory_allocated() - held
        assert extra * 4 * MIB <= peak <= (extra + 0.5) * 4 * MIB
        assert flagos.memory_allocated() == held


def test_temporary_memory_of_kernels_counts(base: int) -> None:
    """What a kernel takes for itself is device memory, as on any device."""
    x = _x(MIB)
    flagos.reset_peak_memory_stats()
    held = flagos.memory_allocated()
    x.t().sort()
    results = 4 * MIB + 8 * MIB
    assert flagos.max_memory_allocated() - held >= results
    flagos.reset_peak_memory_stats()
    held = flagos.memory_allocated()
    x.view(1024, 1024).t()[:, ::2].cumsum(0).sum().item()
    assert flagos.max_memory_allocated() > held


def _resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as statistics:
        import resource

        return int(statistics.read().split()[1]) * resource.getpagesize()


def _train(steps: int) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1),
                        nn.Linear(32, 4)).to(D)  # fmt: skip
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))

    def step() -> float:
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x.to(D)), y.to(D))
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    for _ in range(100):
        step()
    time.sleep(0.05)
    gc.collect()
    device, reserved, host = flagos.memory_allocated(), flagos.memory_reserved(), _resident()
    for index in range(steps):
        loss = step()
        if index % 100 == 0:
            assert_back_at(device)
    assert loss < 1.4
    assert flagos.memory_reserved() == reserved
    gc.collect()
    assert _resident() - host < 8 * MIB, "the process grew"


def _train_in_a_child(steps: int) -> None:
    """With one thread for each operator: on a busy machine the threads wait for each other."""
    output_of_child(
        f"""
        import sys
        sys.path.insert(0, {FOLDER!r})
        import test_memory
        test_memory._train({steps})
        """,
        OMP_NUM_THREADS="1",
    )


def test_a_thousand_training_steps_do_not_grow() -> None:
    _train_in_a_child(1_000)


@pytest.mark.slow
def test_ten_thousand_training_steps_do_not_grow() -> None:
    _train_in_a_child(10_000)


def test_repeated_errors_and_layouts_do_not_grow() -> None:
    def round_() -> None:
        _failing()
        SCENES["sparse"]()
        SCENES["attention"]()
        SCENES["copies"]()
        SCENES["a custom function"]()

    for _ in range(20):
        round_()
    time.sleep(0.05)
    gc.collect()
    device, host = flagos.memory_allocated(), _resident()
    for _ in range(100):
        round_()
    assert_back_at(device)
    assert _resident() - host < 8 * MIB


def test_an_empty_cache_is_empty() -> None:
    output_of_child(
        """
        import gc, time, torch, torch_fl
        from torch import nn
        flagos = torch.flagos
        def work():
            net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(196, 3))
            net = net.to("flagos")
            for _ in range(3):
                net(torch.ones(2, 1, 9, 9, device="flagos")).sum().backward()
            half = torch.ones(64, 64, dtype=torch.bfloat16, device="flagos")
            (half @ half).sum().item()
            torch.ones(3 << 20, device="flagos").sort()
            [torch.ones(size, device="flagos") for size in range(1, 20000, 371)]
        work()
        gc.collect()
        time.sleep(0.2)  # the engine's thread may let go a moment later
        assert flagos.memory_allocated() == 0, flagos.memory_summary()
        assert flagos.memory_reserved() > 0
        flagos.empty_cache()
        assert flagos.memory_reserved() == 0, flagos.memory_summary()
        assert flagos.memory_stats()["segment.all.current"] == 0
        work()
        time.sleep(0.2)
        torch.accelerator.empty_cache()
        free, total = flagos.mem_get_info()
        assert free == total
        kept = torch.full((5,), 3.0, device="flagos")
        flagos.empty_cache()
        assert kept.tolist() == [3.0] * 5
        """
    )


LIMITED = r"""
import gc, time, torch, torch_fl
from torch.nn import functional
flagos, MIB = torch.flagos, 1 << 20
D = "flagos"
base_net = torch.nn.Linear(4, 4).to(D)

def refused(function, mib=None):
    held = flagos.memory_allocated()
    ooms = flagos.memory_stats()["num_ooms"]
    try:
        function()
    except torch.OutOfMemoryError as error:
        text = str(error)
        assert isinstance(error, RuntimeError)
        assert "flagos:0 out of memory" in text, text
        assert "Tried to allocate" in text and "96.00 MiB" in text, text
        if mib is not None:
            assert f"allocate {mib}.00 MiB" in text, text
    else:
        raise AssertionError("was not refused")
    del function
    for _ in range(200):
        if flagos.memory_allocated() == held:
            break
        gc.collect()
        time.sleep(0.01)  # the engine's thread may let go a moment later
    assert flagos.memory_stats()["num_ooms"] > ooms
    assert flagos.memory_allocated() == held, (held, flagos.memory_allocated())
    base_net.zero_grad()
    base_net(torch.ones(2, 4, device=D)).sum().backward()  # work goes on
    x = torch.ones(1 << 20, device=D)
    assert (x + 1).sum().item() == 2 << 20
"""


def test_the_limit_holds_inside_kernels() -> None:
    output_of_child(
        LIMITED + r"""
base_net(torch.ones(2, 4, device=D)).sum().backward()
a = torch.ones(1 << 13, 1, device=D)       # 32 KiB, whose product with itself is 256 MiB
refused(lambda: a @ a.t(), 256)
refused(lambda: a + a.t(), 256)
refused(lambda: torch.addmm(a, a, a.t()))
refused(lambda: a.expand(-1, 1 << 13).contiguous(), 256)
refused(lambda: torch.cat([a.expand(-1, 4096)] * 2), 256)
refused(lambda: torch.cdist(a, a))
refused(lambda: torch.zeros(1 << 25, device=D), 128)
refused(lambda: torch.rand(1 << 25, device=D), 128)
refused(lambda: torch.ones(1 << 25).to(D), 128)
refused(lambda: torch.arange(1 << 25, device=D))
refused(lambda: torch.ones(9, device=D).resize_(1 << 25), 128)
refused(lambda: torch.ones(9, device=D).untyped_storage().resize_(1 << 27), 128)
refused(lambda: torch.add(a, a.t(), out=torch.empty(0, device=D)), 256)
refused(lambda: torch.empty_like(a.expand(-1, 1 << 13)), 256)
refused(lambda: torch._foreach_add([a.expand(-1, 1 << 13)], 1.0))
half = torch.ones(8 << 20, dtype=torch.int32, device=D)   # 32 MiB
refused(lambda: half.sort())
refused(lambda: half.double().double().cumsum(0))
refused(lambda: torch.ones(40 << 20, dtype=torch.bool, device=D).nonzero())
refused(lambda: half.repeat(3), 96)
image = torch.ones(1, 8, 300, 300, device=D)
refused(lambda: functional.conv2d(image, torch.ones(512, 8, 3, 3, device=D)))
refused(lambda: functional.interpolate(image, scale_factor=8.0))
weight = torch.ones(1 << 13, 1, device=D, requires_grad=True)
small = (weight * weight.detach()).sum()
small.backward()
big = torch.ones(12 << 20, device=D, requires_grad=True)   # 48 MiB; its gradient does not fit
y = (big[:10] * 2).sum()
refused(lambda: y.backward())
"""
        "print('fine')",
        FLAGOS_HOST_MEMORY="96MiB",
    )


def test_an_out_argument_survives_running_out_of_memory() -> None:
    output_of_child(
        LIMITED
        + r"""
base_net(torch.ones(2, 4, device=D)).sum().backward()
out = torch.full((4,), 7.0, device=D)
a = torch.ones(1 << 13, 1, device=D)
refused(lambda: torch.mm(a, a.t(), out=out.resize_(0)))
assert out.untyped_storage().nbytes() in (0, 16)
torch.add(torch.ones(4, device=D), 1, out=out)
assert out.tolist() == [2.0] * 4
""",
        FLAGOS_HOST_MEMORY="96MiB",
    )


def test_a_request_that_needs_the_cache_gets_it() -> None:
    output_of_child(
        """
        import torch, torch_fl
        flagos, MIB = torch.flagos, 1 << 20
        def fill(size):
            small = [torch.empty(size, dtype=torch.uint8, device="flagos")
                     for _ in range(60 * MIB // size)]
            assert flagos.memory_allocated() >= 58 * MIB
        for size in (4_000, 70_000, 900_000, 3 * MIB):
            fill(size)
            assert flagos.memory_reserved() >= 58 * MIB
            retries = flagos.memory_stats()["num_alloc_retries"]
            one = torch.ones(60 * MIB, dtype=torch.uint8, device="flagos")
            assert flagos.memory_stats()["num_alloc_retries"] == retries + 1
            assert flagos.memory_stats()["num_ooms"] == 0
            assert one.min().item() == one.max().item() == 1
            del one
        # Inside a kernel, with the same retry.
        fill(4_000)
        a = torch.ones(4000, 1, device="flagos")
        assert (a @ a.t()).sum().item() == 4000 * 4000
        """,
        FLAGOS_HOST_MEMORY="100MiB",
    )


HUGE: dict[str, Callable[[int, str], Any]] = {
    "empty": lambda n, d: torch.empty(n, device=d),
    "empty bytes": lambda n, d: torch.empty(n, dtype=torch.uint8, device=d),
    "empty complex": lambda n, d: torch.empty(n, dtype=torch.complex128, device=d),
    "two dims": lambda n, d: torch.empty(n, n, device=d),
    "strided": lambda n, d: torch.empty_strided((n,), (1,), device=d),
    "huge stride": lambda n, d: torch.empty_strided((2,), (n,), device=d),
    "new_empty": lambda n, d: torch.ones(2, device=d).new_empty(n),
    "empty_like": lambda n, d: torch.empty_like(torch.ones(1, device=d).expand(n)),
    "zeros": lambda n, d: torch.zeros(n, device=d),
    "full": lambda n, d: torch.full((n,), 1.0, device=d),
    "rand": lambda n, d: torch.rand(n, device=d),
    "resize_": lambda n, d: torch.ones(2, device=d).resize_(n),
    "clone": lambda n, d: torch.ones(1, device=d).expand(n).clone(),
    "contiguous": lambda n, d: torch.ones(2, device=d).expand(n, 2).contiguous(),
    "add": lambda n, d: torch.ones(1, device=d).expand(n) + torch.ones(1, device=d),
    "repeat": lambda n, d: torch.ones(2, device=d).repeat(n),
    "storage": lambda n, d: torch.UntypedStorage(n, device=d),
    "storage resize": lambda n, d: torch.ones(2, device=d).untyped_storage().resize_(n),
    "set_": lambda n, d: torch.ones(2, device=d).set_(
        torch.ones(2, device=d).untyped_storage(), 0, (n,), (1,)
    ),
    "set_ offset": lambda n, d: torch.ones(2, device=d).set_(
        torch.ones(2, device=d).untyped_storage(), n, (1,), (1,)
    ),
    "to": lambda n, d: torch.ones(1).expand(n).to(d),
    "linspace": lambda n, d: torch.linspace(0, 1, n, device=d),
    "eye": lambda n, d: torch.eye(n, device=d),
}


def test_huge_and_negative_sizes_are_ordinary_errors() -> None:
    """In a child, because what is wrong here ends a process."""
    output = output_of_child(
        f"""
        import sys
        sys.path.insert(0, {FOLDER!r})
        import torch
        from test_memory import HUGE
        for exponent in (62, 61, 60, 45):
            for name, function in HUGE.items():
                where = f"{{name}} of 2**{{exponent}}"
                print("trying", where, flush=True)
                try:
                    function(2**exponent, "flagos")
                except torch.OutOfMemoryError as error:
                    assert "Tried to allocate" in str(error), where
                    assert "allocate 0" not in str(error), f"{{where}}: {{error}}"
                except RuntimeError:
                    pass
                else:
                    raise AssertionError(f"{{where}} was not refused")
        for name, function in HUGE.items():
            try:
                function(-1, "cpu")
            except RuntimeError:
                pass
            else:
                continue
            try:
                function(-1, "flagos")
            except RuntimeError:
                continue
            raise AssertionError(f"{{name}} of -1 was not refused")
        assert torch.ones(2, device="flagos").expand(2**40, 2).shape == (2**40, 2)
        assert torch.ones(3, device="flagos").sum().item() == 3
        print("fine")
        """
    )
    assert output.splitlines()[-1] == "fine"


def test_sizes_in_the_message_are_right() -> None:
    for exponent, text in ((45, "33554432.00 MiB"), (58, "274877906944.00 MiB")):
        with pytest.raises(torch.OutOfMemoryError, match=f"Tried to allocate {text}"):
            torch.empty(2**exponent, dtype=torch.uint8, device=D)


@pytest.mark.parametrize("seed", range(3))
def test_figures_follow_a_model_through_random_work(seed: int) -> None:
    """Requested bytes are exact; allocated bytes exceed them by the rounding only."""
    rng = random.Random(seed)
    gc.collect()
    stats = flagos.memory_stats()
    requested, count = stats["requested_bytes.all.current"], stats["allocation.all.current"]
    start = flagos.memory_allocated()
    flagos.reset_peak_memory_stats()
    live: list[tuple[torch.Tensor, int, int]] = []
    total = peak = 0
    for step in range(1000):
        action = rng.random()
        if action < 0.55 or not live:
            size = rng.choice([rng.randrange(1, 200), int(2 ** rng.uniform(0, 21))])
            value = step % 251
            live.append((torch.full((size,), value, dtype=torch.uint8, device=D), size, value))
            total += size
        elif action < 0.85:
            total -= live.pop(rng.randrange(len(live)))[1]
        elif action < 0.95:
            index = rng.randrange(len(live))
            tensor, size, value = live[index]
            grown = size + rng.randrange(1, 5000)
            tensor.resize_(grown)
            peak = max(peak, total + grown)  # both blocks live while one is copied
            tensor[size:] = value
            live[index] = (tensor, grown, value)
            total += grown - size
            del tensor
        elif action < 0.97:
            flagos.empty_cache()
        else:
            tensor, size, value = rng.choice(live)
            assert [int(x) for x in tensor.aminmax()] == [value, value]
            del tensor
        peak = max(peak, total)
        if step % 25 == 0:
            stats = flagos.memory_stats()
            assert stats["requested_bytes.all.current"] - requested == total
            assert stats["allocation.all.current"] - count == len(live)
            assert total <= flagos.memory_allocated() - start <= total * 1.25 + 512 * len(live)
            assert flagos.memory_reserved() >= flagos.memory_allocated()
    assert flagos.memory_stats()["requested_bytes.all.peak"] - requested >= peak * 0.999
    for tensor, size, value in live:
        assert tensor.numel() == size
        assert [int(x) for x in tensor.aminmax()] == [value, value]
    live.clear()
    del tensor
    assert flagos.memory_allocated() == start
    assert flagos.memory_stats()["requested_bytes.all.current"] == requested


def test_pinned_memory_is_no_device_memory(base: int) -> None:
    tensors = [torch.ones(MIB).pin_memory() for _ in range(8)]
    assert flagos.memory_allocated() == base
    assert all(x.is_pinned() for x in tensors)
    assert not torch.ones(4).is_pinned()
    assert tensors[0][5:].is_pinned()
    with pytest.raises(RuntimeError, match="pinned"):
        torch.ones(2, device=D).pin_memory()
    with pytest.raises(RuntimeError, match="pinned"):
        torch.empty(2, device=D, pin_memory=True)
    addresses = {x.data_ptr() for x in tensors}
    assert len(addresses) == 8
    assert [x.sum().item() for x in tensors] == [float(MIB)] * 8
    del tensors
    again = torch.empty(MIB, pin_memory=True)
    assert again.is_pinned()
    assert again.data_ptr() in addresses, "pinned memory is cached"
    del again
    if hasattr(torch.accelerator, "empty_host_cache"):  # torch 2.12 and newer
        host = _resident()
        torch.accelerator.empty_host_cache()
        assert host - _resident() > 16 * MIB, "the cache of pinned memory was given back"
    fresh = torch.empty(MIB, pin_memory=True)
    fresh.copy_(torch.full((MIB,), 3.0, device=D), non_blocking=True)
    flagos.synchronize()
    assert fresh.unique().tolist() == [3.0]
