"""Owns: tests of what users are told when a GPU runs out of memory, a kernel fails or there is no
GPU, and that nothing else is lost by it.

The same code runs with flagos and natively, each in a process of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

SIDES = {"cuda": "D = 'cuda'\n", "flagos": "import torch_fl\nD = 'flagos'\n"}
ALL_ERRORS = """
def told(call):
    try:
        call()
    except Exception as error:
        return {
            "type": type(error).__name__, "text": str(error),
            "code": getattr(error, "error_code", None),
        }
"""

Child = Callable[..., Any]


def _both(child: Child, code: str, **env: str) -> dict[str, Any]:
    """What `code` did natively and on flagos: finished processes."""
    with ThreadPoolExecutor() as pool:
        running = {
            side: pool.submit(child, head + ALL_ERRORS + code, **env)
            for side, head in SIDES.items()
        }
    return {side: done.result() for side, done in running.items()}


def _said(done: Any) -> Any:
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, f"ended with {done.returncode}\n{done.stderr}"
    return json.loads(lines[-1])


def _numberless(text: str) -> str:
    text = re.sub(r"Process \d+ has [\d.]+ \w+ memory in use\. ", "", text)
    return re.sub(r"[\d.]+ (bytes|KiB|MiB|GiB|TiB)", "N", text).replace("flagos:0", "cuda:0")


# -- out of memory

OUT_OF_MEMORY = """
x = torch.ones(2**20, device=D, requires_grad=True)
w = x.detach().view(-1, 1)
before = torch.accelerator.memory_allocated()
said = {
    "allocation": told(lambda: torch.empty(2**42, dtype=torch.uint8, device=D)),
    "operator": told(lambda: w @ w.T),
    "copy": told(lambda: w.expand(-1, 2**20).contiguous()),
    "backward": told(lambda: x.expand(2**20, -1)[0].sum().backward()),
}
said["kept"] = torch.accelerator.memory_allocated() - before
said["goes on"] = (x.detach() + 1).sum().item()
print(json.dumps(said))
"""


def test_memory_that_runs_out_is_told_as_by_cuda(child: Child) -> None:
    sides = {side: _said(done) for side, done in _both(child, OUT_OF_MEMORY).items()}
    for way in ("allocation", "operator", "copy", "backward"):
        cuda, flagos = sides["cuda"][way], sides["flagos"][way]
        assert cuda["type"] == "OutOfMemoryError", way
        assert flagos["type"] == "OutOfMemoryError", way
        assert _numberless(flagos["text"]) == _numberless(cuda["text"]), way
    text = sides["flagos"]["allocation"]["text"]
    assert "Tried to allocate 4096.00 GiB" in text
    assert re.search(
        r"GPU 0 has a total capacity of [\d.]+ GiB of which [\d.]+ [GMK]iB is free", text
    )
    assert "ALLOC_CONF" in text, "says what to do"
    assert [sides[side]["goes on"] for side in SIDES] == [2.0**21] * 2
    assert [sides[side]["kept"] for side in SIDES] == [0, 0]


def test_a_limit_is_kept_and_the_process_goes_on(said: Child) -> None:
    flagos = said(
        """
        import torch_fl
        limit = 2**30
        torch.flagos.set_per_process_memory_fraction(limit / torch.flagos.mem_get_info()[1])
        kept, caught = [], None
        try:
            for _ in range(16):
                kept.append(torch.ones(2**26, device="flagos"))  # 256 MiB
        except torch.OutOfMemoryError as error:
            caught = str(error)
        held = len(kept)
        most = torch.cuda.memory_reserved()
        kept.clear()
        torch.flagos.empty_cache()
        given_back = torch.cuda.memory_reserved()
        again = torch.ones(2**26, device="flagos").sum().item()
        ooms = torch.flagos.memory_stats()["num_ooms"]
        print(json.dumps([caught, held, most <= limit, given_back, again, ooms]))
        """
    )
    caught, held, limited, given_back, again, ooms = flagos
    assert "out of memory" in caught
    assert 1 <= held <= 4
    assert limited
    assert given_back == 0
    assert again == 2.0**26
    assert ooms == 1


def test_one_error_type_under_all_names() -> None:
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        torch.empty(2**45, dtype=torch.uint8, device="flagos")
    assert type(caught.value) is torch.OutOfMemoryError
    assert torch.flagos.OutOfMemoryError is torch.OutOfMemoryError
    assert issubclass(torch.OutOfMemoryError, RuntimeError)


# -- a kernel fails

WRONG = """
from torch.nn import functional
table = torch.ones(10, 4, device=D)
rows = torch.tensor([3, 11], device=D)
event = torch.Event(D)
event.record()
wrong = {
    "aten::embedding": lambda: functional.embedding(rows, table),
    "aten::index_select": lambda: table.index_select(0, rows),
    "aten::gather": lambda: table.gather(0, rows.view(2, 1)),
    "aten::nll_loss_forward": lambda: functional.cross_entropy(table[:2], rows),
}
torch.accelerator.synchronize()
"""
LATER = """
said = {
    "at once": told(wrong[NAME]),
    "device": told(torch.accelerator.synchronize),
    "kernel": told(lambda: table + 1),
    "new tensor": told(lambda: torch.ones(3, device=D)),
    "number": told(lambda: table[0, 0].item()),
    "to the CPU": told(table.cpu),
    "stream": told(lambda: torch.accelerator.current_stream().synchronize()),
    "event": told(event.synchronize),
}
print(json.dumps(said))
"""
NAMES = ("aten::embedding", "aten::index_select", "aten::gather", "aten::nll_loss_forward")


@pytest.mark.parametrize("name", NAMES)
def test_a_failed_kernel_is_told_as_by_cuda_and_named(child: Child, name: str) -> None:
    done = _both(child, WRONG + LATER.replace("NAME", repr(name)), FLAGOS_BREADCRUMBS="1")
    cuda, flagos = _said(done["cuda"]), _said(done["flagos"])
    assert done["flagos"].returncode == done["cuda"].returncode
    assert cuda["device"]["type"] == "AcceleratorError"
    for way, told in cuda.items():
        assert (told is None) == (flagos[way] is None), way
        if told is None:
            continue
        assert flagos[way]["type"] == told["type"], way
        assert flagos[way]["code"] == told["code"], way
        assert flagos[way]["text"].startswith(told["text"].splitlines()[0]), way
        assert flagos[way]["text"].count("newest first") == 1, way
    text = flagos["device"]["text"]
    assert "device-side assert" in text
    assert text.split("newest first:")[1].split()[0] == name, "nothing ran after it"


def test_a_blocking_launch_fails_where_the_mistake_is(child: Child) -> None:
    code = WRONG + LATER.replace("NAME", repr("aten::index_select"))
    done = _both(child, code, CUDA_LAUNCH_BLOCKING="1", FLAGOS_BREADCRUMBS="1")
    assert _said(done["cuda"])["at once"], "natively the call itself must fail"
    told = _said(done["flagos"])["at once"]
    assert told["type"] == "AcceleratorError"
    assert told["text"].split("newest first:")[1].split()[0] == "aten::index_select"


def test_without_breadcrumbs_the_error_says_how_to_have_them(child: Child) -> None:
    code = WRONG + LATER.replace("NAME", repr("aten::embedding"))
    told = _said(child(SIDES["flagos"] + ALL_ERRORS + code, FLAGOS_BREADCRUMBS=None))["device"]
    assert "FLAGOS_BREADCRUMBS=1" in told["text"]
    assert "aten::" not in told["text"]


def test_a_process_whose_gpu_failed_ends_as_natively(child: Child) -> None:
    code = WRONG + "wrong['aten::embedding']()\ntorch.accelerator.synchronize()\n"
    done = _both(child, code)
    assert done["cuda"].returncode == 1
    assert done["flagos"].returncode == 1, "neither a signal nor a wait without end"
    assert "AcceleratorError: CUDA error: device-side assert" in done["flagos"].stderr


# -- no GPU, another GPU


def test_without_a_visible_gpu_the_first_use_says_what_to_do(said: Child) -> None:
    told = said(
        SIDES["flagos"]
        + ALL_ERRORS
        + """
torch.manual_seed(1)
print(json.dumps({
    "count": torch.flagos.device_count(), "available": torch.flagos.is_available(),
    "cpu": (torch.ones(2) + 1).tolist(), "use": told(lambda: torch.ones(2, device=D)),
    "init": told(torch.flagos.init), "device": told(lambda: torch.flagos.set_device(0)),
}))
""",
        CUDA_VISIBLE_DEVICES="99",
        FLAGOS_PLUGIN="cuda",
    )
    assert told["count"] == 0
    assert not told["available"]
    assert told["cpu"] == [2.0, 2.0]
    for way in ("use", "init", "device"):
        assert told[way]["type"] == "RuntimeError", way
        assert "No CUDA GPUs are available" in told[way]["text"], way
        assert "CUDA_VISIBLE_DEVICES" in told[way]["text"], f"{way}: says what to look at"


@pytest.mark.parametrize("index", [9, 120])
def test_a_gpu_that_is_not_there(index: int) -> None:
    count = torch.cuda.device_count()
    assert count <= index
    for call in (
        lambda: torch.ones(2, device=f"flagos:{index}"),
        lambda: torch.ones(2).to(f"flagos:{index}"),
        lambda: torch.flagos.set_device(index),
        lambda: torch.flagos.get_device_properties(index),
    ):
        with pytest.raises(RuntimeError, match=rf"flagos.* {index}: {count} devices? available"):
            call()
    assert torch.ones(2, device="flagos").sum().item() == 2
