"""Owns: where a migration holds: blocks, nesting, threads, processes; and that no trace stays."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from children import output_of_child
from torch.overrides import TorchFunctionMode

import torch_fl

REPLACED = (
    lambda: torch.cuda,
    lambda: sys.modules["torch.cuda"],
    lambda: torch.version,
    lambda: torch.Generator,
    lambda: torch.Stream,
    lambda: torch.Event,
    lambda: torch.autocast.__init__,
    lambda: torch.amp.GradScaler.__init__,
    lambda: torch.amp.custom_fwd,
    lambda: torch.get_autocast_dtype,
    lambda: threading.Thread.start,
)


def _is_flagos() -> bool:
    try:
        return torch.zeros(1, device="cuda").device.type == "flagos" and torch.cuda.is_available()
    except AssertionError:  # "Torch not compiled with CUDA enabled"
        assert not torch.cuda.is_available()
        return False


def test_nothing_stays_behind() -> None:
    before = [get() for get in REPLACED]
    with torch_fl.migrate():
        inside = [get() for get in REPLACED]
    assert all(old is not new for old, new in zip(before, inside, strict=True))
    assert all(get() is old for get, old in zip(REPLACED, before, strict=True))
    assert not _is_flagos()
    assert torch.zeros(1, device="flagos").is_cuda is False


def test_an_exception_ends_it() -> None:
    with pytest.raises(ZeroDivisionError), torch_fl.migrate():
        _ = 1 / 0
    assert not _is_flagos()


def test_without_a_block() -> None:
    migration = torch_fl.migrate()
    try:
        assert _is_flagos()
        assert migration.active
    finally:
        migration.stop()
    assert not _is_flagos()
    with pytest.raises(RuntimeError, match="ended already"):
        migration.stop()
    with pytest.raises(RuntimeError, match="has ended"):
        migration.__enter__()


def test_nesting() -> None:
    with torch_fl.migrate() as outer:
        torch.ones(1, device="cuda")
        with torch_fl.migrate() as inner:
            torch.ones(1, device="cuda")
        assert _is_flagos()
    assert [row.count for row in inner.rewrites] == [1]
    assert {row.name: row.count for row in outer.rewrites}["torch.ones(device='cuda')"] == 2


def test_ends_in_any_order() -> None:
    first, second = torch_fl.migrate(), torch_fl.migrate()
    first.stop()
    assert _is_flagos()
    second.stop()
    assert not _is_flagos()


def test_other_modes_on_the_stack_stay() -> None:
    class Count(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            Count.calls += 1
            return func(*args, **(kwargs or {}))

    migration = torch_fl.migrate()
    with Count():
        assert _is_flagos()
        migration.stop()
        seen = Count.calls
        torch.zeros(1)
        assert Count.calls == seen + 1
    assert not _is_flagos()


def test_threads() -> None:
    """Those started inside are inside until it ends; those that ran before are outside."""
    go, stop = threading.Event(), threading.Event()
    seen: dict[str, bool] = {}

    def wait_and_look(name: str) -> None:
        go.wait()
        seen[name] = _is_flagos()
        stop.wait()
        seen[f"{name} later"] = _is_flagos()

    before = threading.Thread(target=wait_and_look, args=("before",))
    before.start()
    with torch_fl.migrate() as migration:
        inside = threading.Thread(target=wait_and_look, args=("inside",))
        inside.start()
        with ThreadPoolExecutor(1) as pool:
            seen["pool"] = pool.submit(_is_flagos).result()
        go.set()
        while not {"before", "inside"} <= seen.keys():
            threading.Event().wait(0.001)
    stop.set()
    for thread in (before, inside):
        thread.join()
    assert seen == {
        "before": False,
        "inside": True,
        "pool": True,
        "before later": False,
        "inside later": False,
    }
    assert {row.name: row.count for row in migration.rewrites}["torch.zeros(device='cuda')"] == 2


def test_stop_in_another_thread_is_refused() -> None:
    with torch_fl.migrate() as migration, ThreadPoolExecutor(1) as pool:
        with pytest.raises(RuntimeError, match="begun in another thread"):
            pool.submit(migration.stop).result()
        assert pool.submit(_is_flagos).result()
        assert _is_flagos()


def test_real_cuda_is_refused() -> None:
    said = output_of_child(
        """
        import torch
        torch.cuda.is_available = lambda: True
        import torch_fl
        try:
            torch_fl.migrate()
        except RuntimeError as error:
            print("force=True" in str(error))
        with torch_fl.migrate(force=True):
            print(torch.zeros(1, device="cuda").device.type)
        """,
        FLAGOS_AUTOLOAD="0",
    )
    assert said.split() == ["True", "flagos"]


def test_from_the_environment() -> None:
    program = "import torch; print(torch.zeros(1).cuda().device)"
    assert output_of_child(program, FLAGOS_MIGRATE="1").strip() == "flagos:0"


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_other_processes(start: str) -> None:
    """A forked process is inside as its parent was; a spawned one by the environment."""
    said = output_of_child(
        f"""
        import torch
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        with ProcessPoolExecutor(1, get_context("{start}")) as pool:
            print(pool.submit(torch.cuda.device_count).result())
        """,
        FLAGOS_MIGRATE="1",
        FLAGOS_HOST_DEVICES="3",
    )
    assert said.strip() == "3"
