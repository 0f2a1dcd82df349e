"""Owns: tests of a process that ends, is interrupted or forks amid its work: the status is the one
that was asked for, nothing aborts and nothing hangs."""

from __future__ import annotations

import signal
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from children import run_child

AT_ONCE = 2
TIMEOUT_S = 120.0

PRELUDE = """
import os, signal, sys, threading, time
import torch, torch_fl
torch.set_num_threads(1)
D = "flagos"
w = torch.ones(64, 64, device=D, requires_grad=True)
loss = (w @ w).relu().sum()
def hooked(action):
    y = w * 2
    y.register_hook(lambda grad: action())
    return ((y @ w).relu() + (w * 3).exp()).sum()
def long_kernel():  # about a second
    x = torch.ones(1200, 1200, device=D)
    return torch.linalg.svdvals(x + torch.eye(1200, device=D))
def later(seconds, action, *arguments):
    timer = threading.Timer(seconds, action, arguments)
    timer.daemon = True
    timer.start()
"""


@dataclass(frozen=True)
class Ending:
    """What a child does after the prelude, and how it then ends; `error`: part of its stderr."""

    code: str
    status: int = 0
    error: str | None = None


ENDINGS = {
    "sys.exit in a hook": Ending("hooked(lambda: sys.exit(5)).backward()", 5),
    "os._exit in a hook": Ending("hooked(lambda: os._exit(6)).backward()", 6),
    "an error in a hook": Ending(
        """
        def broken(): raise KeyError("amid backward")
        hooked(broken).backward()
        """,
        1,
        "KeyError: 'amid backward'",
    ),
    "KeyboardInterrupt in a hook": Ending(
        """
        def interrupt(): raise KeyboardInterrupt
        try:
            hooked(interrupt).backward()
        except KeyboardInterrupt:
            loss.backward()
            assert w.grad.sum().item() == 2 * 64**3
            sys.exit(7)
        """,
        7,
    ),
    "sys.exit in a custom function": Ending(
        """
        class Exits(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x * 1
            @staticmethod
            def backward(ctx, grad): sys.exit(8)
        (Exits.apply(w * 2).sum() + loss).backward()
        """,
        8,
    ),
    "sys.exit while a gradient accumulates": Ending(
        """
        w.register_post_accumulate_grad_hook(lambda p: sys.exit(9))
        loss.backward()
        """,
        9,
    ),
    "sys.exit in what is computed again": Ending(
        """
        from torch.utils.checkpoint import checkpoint
        calls = []
        def again(x):
            calls.append(x)
            if len(calls) == 2: sys.exit(10)
            return x.exp()
        checkpoint(again, w, use_reentrant=False).sum().backward()
        """,
        10,
    ),
    "sys.exit in a saved tensor's hook": Ending(
        """
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: sys.exit(11)):
            y = w.exp().sum()
        y.backward()
        """,
        11,
    ),
    "sys.exit in a Python kernel": Ending(
        """
        torch_fl.routing.register("exits", {"exp": lambda x: sys.exit(12)})
        with torch_fl.routing.use({"exp": "exits"}): w.exp()
        """,
        12,
    ),
    "sys.exit in a dispatch mode": Ending(
        """
        from torch.utils._python_dispatch import TorchDispatchMode
        class Exits(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None): sys.exit(13)
        with Exits(): loss.backward()
        """,
        13,
    ),
    "sys.exit in another thread": Ending(
        """
        thread = threading.Thread(target=lambda: hooked(lambda: sys.exit(5)).backward())
        thread.start(); thread.join()
        loss.backward()
        """
    ),
    "sys.exit while another thread is at work": Ending(
        """
        def work():
            x = torch.ones(64, 64, device=D, requires_grad=True)
            for _ in range(300): (x @ x).relu().sum().backward()
        threading.Thread(target=work).start()
        hooked(lambda: sys.exit(14)).backward()
        """,
        14,
    ),
    "os._exit while daemons are at work": Ending(
        """
        def work():
            x = torch.ones(64, 64, device=D, requires_grad=True)
            while True: (x @ x).relu().sum().backward()
        for _ in range(3): threading.Thread(target=work, daemon=True).start()
        time.sleep(0.05)
        hooked(lambda: os._exit(15)).backward()
        """,
        15,
    ),
    "an interrupt from another thread": Ending(
        """
        import _thread
        later(0.2, _thread.interrupt_main)
        try:
            while True: hooked(lambda: None).backward()
        except KeyboardInterrupt:
            loss.backward()
            sys.exit(16)
        """,
        16,
    ),
    "SIGINT that nobody catches": Ending(
        """
        later(0.2, os.kill, os.getpid(), signal.SIGINT)
        while True: hooked(lambda: None).backward()
        """,
        -signal.SIGINT,
        "KeyboardInterrupt",
    ),
    "SIGTERM in backward": Ending(
        """
        later(0.2, os.kill, os.getpid(), signal.SIGTERM)
        while True: hooked(lambda: None).backward()
        """,
        -signal.SIGTERM,
    ),
    "SIGTERM in a long kernel": Ending(
        """
        later(0.1, os.kill, os.getpid(), signal.SIGTERM)
        while True: long_kernel()
        """,
        -signal.SIGTERM,
    ),
    "SIGINT in a long kernel": Ending(
        """
        import time
        end = time.monotonic() + 60  # a loaded machine's timers are late
        later(0.1, os.kill, os.getpid(), signal.SIGINT)
        try:
            while time.monotonic() < end: long_kernel()
        except KeyboardInterrupt:
            assert (torch.ones(2, device=D) + 1).tolist() == [2.0, 2.0]
            sys.exit(17)
        """,
        17,
    ),
    "SIGINT in copies": Ending(
        """
        x = torch.arange(1 << 22, dtype=torch.float32).view(2048, 2048)
        later(0.1, os.kill, os.getpid(), signal.SIGINT)
        try:
            while True: y = x.t().to(D); z = y.cpu()
        except KeyboardInterrupt:
            assert x.t().to(D).cpu().equal(x.t())
            sys.exit(18)
        """,
        18,
    ),
    "SIGUSR1 in kernels and copies": Ending(
        """
        seen = []
        def handle(*_): seen.append((torch.ones(3, device=D) + 1).sum().item())
        signal.signal(signal.SIGUSR1, handle)
        level = torch.flagos.memory_allocated()
        x = torch.ones(1 << 18)
        def send():
            for _ in range(50): os.kill(os.getpid(), signal.SIGUSR1); time.sleep(0.002)
        thread = threading.Thread(target=send); thread.start()
        while thread.is_alive():
            assert x.to(D).add(1).cpu().sum().item() == 2 << 18
            hooked(lambda: None).backward(); w.grad = None
        assert len(seen) > 3 and set(seen) == {6.0}
        assert torch.flagos.memory_allocated() == level
        """
    ),
    "signals while threads are at work": Ending(
        """
        seen, end = [], threading.Event()
        signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        def work():
            x = torch.ones(64, 64, device=D, requires_grad=True)
            while not end.is_set(): (x @ x).relu().sum().backward()
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads: thread.start()
        try:
            for _ in range(20): os.kill(os.getpid(), signal.SIGUSR1); time.sleep(0.005)
            later(0.1, os.kill, os.getpid(), signal.SIGINT)
            while True: time.sleep(1)
        except KeyboardInterrupt:
            end.set()
        for thread in threads: thread.join()
        assert seen
        sys.exit(19)
        """,
        19,
    ),
    "a fork in a hook": Ending(
        """
        def fork():
            child = os.fork()
            if child == 0:
                try:
                    torch.ones(2, device=D)
                except RuntimeError as error:
                    os._exit(21 if "forked subprocess" in str(error) else 22)
                os._exit(23)
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        statuses = []
        hooked(fork).backward()
        assert statuses == [21], statuses
        loss.backward()
        assert torch.isfinite(w.grad).all().item()
        """
    ),
    "a fork while threads are at work": Ending(
        """
        end = threading.Event()
        def work():
            x = torch.ones(64, 64, device=D, requires_grad=True)
            while not end.is_set(): (x @ x).relu().sum().backward()
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads: thread.start()
        statuses = []
        for _ in range(5):
            child = os.fork()
            if child == 0:
                try:
                    w.exp()
                except RuntimeError as error:
                    os._exit(21 if "forked subprocess" in str(error) else 22)
                os._exit(23)
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        end.set()
        for thread in threads: thread.join()
        assert statuses == [21] * 5, statuses
        """
    ),
}


def _how_it_went(ending: Ending) -> str | None:
    """None when the child ended as it should, else what it did."""
    code = f"{PRELUDE}\n{textwrap.dedent(ending.code)}"
    child = run_child(code, timeout=TIMEOUT_S, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    if child.returncode != ending.status:
        return f"status {child.returncode}: {child.stderr[-1500:]}"
    if ending.error is None:
        return f"it says {child.stderr[-1500:]}" if child.stderr else None
    return None if ending.error in child.stderr else f"it says {child.stderr[-1500:]}"


def _all_at_once(cases: dict[str, Ending]) -> dict[str, str]:
    """What went wrong, by case."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip(cases, pool.map(_how_it_went, cases.values()), strict=True))
    return {name: text for name, text in found.items() if text is not None}


# A selection that meets every kind; each child costs the import of torch.
QUICK = (
    "sys.exit in a hook", "os._exit while daemons are at work", "SIGINT in a long kernel",
    "SIGUSR1 in kernels and copies", "a fork in a hook",
)  # fmt: skip


def test_some_endings() -> None:
    assert _all_at_once({name: ENDINGS[name] for name in QUICK}) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDINGS)
def test_endings_again_and_again(name: str) -> None:
    assert _all_at_once({f"{name} {number}": ENDINGS[name] for number in range(10)}) == {}


DAEMONS = """
import sys, threading, time
import torch, torch_fl
torch.set_num_threads(1)
started = threading.Event()
def work():
    w = torch.ones(16, 16, device=DEVICE, requires_grad=True)
    started.set()
    while True:
        (w @ w).relu().sum().backward()
        w.grad = None
for _ in range(2): threading.Thread(target=work, daemon=True).start()
started.wait()
time.sleep(0.05)
sys.exit(3)
"""


@pytest.mark.slow
def test_daemons_amid_their_work_end_as_they_do_on_the_cpu() -> None:
    """CPython before 3.14 ends such a thread inside PyTorch's C++, which aborts the process, on
    every device; nothing may be worse here, and nothing may hang."""

    def statuses(device: str) -> set[int]:
        code = f"DEVICE = {device!r}\n{DAEMONS}"
        with ThreadPoolExecutor(AT_ONCE) as pool:
            children = pool.map(lambda _: run_child(code, timeout=TIMEOUT_S), range(12))
            return {child.returncode for child in children}

    assert statuses("flagos") <= statuses("cpu") | {3}
