"""Owns: tests of the end of a process: whatever is alive then, it ends well and in silence."""

from __future__ import annotations

import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from children import run_child

AT_ONCE = 2
AFTER_BACKWARD = """
import torch, torch_fl
w = torch.randn(64, 64, device="flagos", requires_grad=True)
(w @ w).relu().sum().backward()
"""
# As on a device that works beside the caller: the engine's worker thread still holds Python objects
# when this ends. Without the hook of torch_fl._compat.interpreter_exit half of these abort.
AFTER_BACKWARD_IN_A_WORKER = """
import inspect, torch, torch_fl
w = torch.randn(64, 64, device="flagos", requires_grad=True)
loss = (w @ w).relu().sum()
run = inspect.unwrap(torch.autograd.graph._engine_run_backward)
run((loss,), (torch.ones_like(loss),), False, False, (),
    allow_unreachable=True, accumulate_grad=True)
"""

ALIVE = {
    "tensors, cycles and caches": """
        import functools
        class Node: pass
        first, second = Node(), Node()
        first.other, second.other = second, first
        first.tensor = torch.randn(4, 4, device="flagos", requires_grad=True)
        second.graph = (first.tensor @ first.tensor).sum()
        kept = [torch.ones(1 << 20, device="flagos") for _ in range(4)]
        torch.kept_on_a_module = torch.ones(3, device="flagos")
        @functools.lru_cache
        def cached(): return torch.ones(2, device="flagos")
        cached()
        del first, second
        """,
    "generators, streams and events": """
        flagos = torch.flagos
        generator = torch.Generator("flagos").manual_seed(1)
        torch.rand(5, device="flagos", generator=generator)
        torch.rand(5, device="flagos")
        stream, event = flagos.Stream(), flagos.Event(enable_timing=True)
        flagos.set_stream(stream)
        work = torch.ones(100, 100, device="flagos").mm(torch.ones(100, 100, device="flagos"))
        event.record(stream)
        work.record_stream(stream)
        """,
    "pinned memory": """
        pinned = torch.ones(1 << 16).pin_memory()
        on_device = pinned.to("flagos", non_blocking=True)
        back = on_device.to("cpu", non_blocking=True)
        view = back[10:]
        """,
    "atexit handlers and finalizers that use the device": """
        import atexit
        weights = torch.ones(8, 8, device="flagos", requires_grad=True)
        @atexit.register
        def last():
            (weights @ weights).sum().backward()
            assert weights.grad.sum().item() == 1024.0
            torch.flagos.empty_cache()
            torch.flagos.synchronize()
        import weakref
        class Owner:
            def __init__(self): self.tensor = torch.ones(3, device="flagos")
            def __del__(self):
                if torch is not None and self.tensor.numel() != 3: raise AssertionError
        owner = Owner()
        weakref.finalize(owner, lambda tensor: tensor.add_(1), torch.ones(3, device="flagos"))
        """,
    "hooks and a custom function": """
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * 2
            @staticmethod
            def backward(ctx, grad):
                return grad * 2
        x = torch.ones(3, device="flagos", requires_grad=True)
        x.register_hook(lambda grad: grad * 1)
        x.register_post_accumulate_grad_hook(lambda p: None)
        y = Twice.apply(x).sum()
        y.backward(retain_graph=True)
        """,
    "threads that have ended": """
        import threading
        def work():
            w = torch.ones(8, 8, device="flagos", requires_grad=True)
            (w @ w).sum().backward()
            local.w = w
        local = threading.local()
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
    # Amid an operator a daemon thread aborts stock PyTorch too, so this one waits.
    "a daemon thread that waits": """
        import threading
        started = threading.Event()
        def work():
            w = torch.ones(64, 64, device="flagos", requires_grad=True)
            loss = (w @ w).sum()
            loss.backward(retain_graph=True)
            started.set()
            threading.Event().wait()
        threading.Thread(target=work, daemon=True).start()
        started.wait()
        """,
    "an ordinary thread still at work": """
        import threading
        w = torch.ones(64, 64, device="flagos", requires_grad=True)
        def work():
            for _ in range(200): (w @ w).sum().backward()
        threading.Thread(target=work).start()
        """,
}


def _end(code: str) -> str | None:
    """None when the process ended well, else how it ended."""
    try:
        child = run_child(code, timeout=120, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    except subprocess.TimeoutExpired:
        return "it did not end"
    if child.returncode == 0 and child.stderr == "" and child.stdout == "":
        return None
    status = child.returncode
    how = signal.Signals(-status).name if status < 0 else f"status {status}"
    return f"{how}: {child.stdout[-300:]}{child.stderr[-1000:]}"


def _ends(code: str, times: int) -> list[str]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [end for end in pool.map(_end, [code] * times) if end is not None]


@pytest.mark.parametrize("times", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_exit_right_after_backward(times: int) -> None:
    assert _ends(AFTER_BACKWARD, times) == []


@pytest.mark.parametrize("times", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_exit_right_after_backward_in_a_worker_thread(times: int) -> None:
    assert _ends(AFTER_BACKWARD_IN_A_WORKER, times) == []


@pytest.mark.parametrize("what", ALIVE)
def test_exit_with_something_alive(what: str) -> None:
    code = "\n".join(line.removeprefix("        ") for line in ALIVE[what].splitlines())
    assert _end(f"import torch, torch_fl\n{code}") is None


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("import sys; sys.exit(3)", 3),
        ("raise RuntimeError('the end')", 1),
    ],
)
def test_the_status_of_a_process_is_its_own(ending: str, status: int) -> None:
    child = run_child(f"{AFTER_BACKWARD}\n{ending}", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert child.returncode == status, child.stderr
    assert ("the end" in child.stderr) is (status == 1)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["a daemon thread that waits", "hooks and a custom function"])
def test_exit_with_something_alive_many_times(what: str) -> None:
    code = "\n".join(line.removeprefix("        ") for line in ALIVE[what].splitlines())
    assert _ends(f"import torch, torch_fl\n{code}", 20) == []
