"""Owns: tests of the compiler's caches: flagos' entries are its own, outlive the process, and are
not read where anything has changed that made them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from children import output_of_child

from torch_fl.compile import cache_key

_PROGRAM = """
    import json, sys, time
    import torch, torch_fl
    from torch._dynamo.utils import counters

    @torch.library.custom_op("torch_fl_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        assert x.device.type == {device!r}
        return x * 2

    twice.register_fake(torch.empty_like)
    twice.register_autograd(lambda context, gradient: gradient * 2)

    def function(x, w):
        dropped = torch.nn.functional.dropout(torch.relu(x @ w), 0.5)
        return (twice(dropped) + torch.nn.functional.gelu(x.sum())).sin()

    def run(function):
        torch.manual_seed(1)
        y = function(x, w)
        y.sum().backward()
        return y, x.grad

    {before}
    torch.manual_seed(0)
    x = torch.randn(4, 8).to({device!r}).requires_grad_()
    w = torch.randn(8, 4).to({device!r})
    started = time.perf_counter()
    with torch._inductor.config.patch(fallback_random=True):  # eager programs draw the same
        results = run(torch.compile(function))
    seconds = time.perf_counter() - started
    x.grad = None
    assert results[0].device.type == {device!r}
    torch.testing.assert_close(results, run(function))
    open({artifacts!r}, "wb").write(torch.compiler.save_cache_artifacts()[0])
    print(json.dumps({{
        "inner": [counters["inductor"]["fxgraph_cache_" + w] for w in ("hit", "miss")],
        "outer": [counters["aot_autograd"]["autograd_cache_" + w] for w in ("hit", "miss")],
        "seconds": seconds,
    }}))
"""


def compile_in_a_child(
    folder: Path, device: str = "flagos", before: str = "", **variables: str
) -> dict[str, Any]:
    """What the caches did for a program, whose results were those of an eager program."""
    program = _PROGRAM.format(device=device, before=before, artifacts=f"{folder}.artifacts")
    said = output_of_child(program, TORCHINDUCTOR_CACHE_DIR=str(folder), **variables)
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def is_new(found: dict[str, Any]) -> bool:
    """Whether everything was compiled; else everything came from the caches."""
    state = found["inner"], found["outer"]
    assert state in (([0, 2], [0, 1]), ([2, 0], [1, 0])), found
    return bool(state == ([0, 2], [0, 1]))


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with the program's entries, and what their making said."""
    folder = tmp_path_factory.mktemp("caches")
    found = compile_in_a_child(folder)
    assert is_new(found)
    Path(f"{folder}.artifacts").rename(f"{folder}.first")  # each child writes its own
    return folder, found


def test_a_new_process_finds_everything(cold: tuple[Path, dict[str, Any]]) -> None:
    folder, first = cold
    second = compile_in_a_child(folder)
    assert not is_new(second)
    assert second["seconds"] < first["seconds"] / 2


def test_the_targets_own_entries_are_others(cold: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = cold
    assert is_new(compile_in_a_child(folder, "cpu"))
    assert not is_new(compile_in_a_child(folder))


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"FLAGOS_OP_mm": "cpu"}, id="a route"),
        pytest.param(
            {
                "before": "library = torch.library.Library('torch_fl_other', 'DEF'); "
                "library.define('f(Tensor x) -> Tensor'); "
                "library.impl('f', torch.sin, 'PrivateUse1')"
            },
            id="a kernel for flagos",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"before": "torch_fl.__version__ = '99.0'"}, id="the core", marks=pytest.mark.slow
        ),
    ],
)
def test_what_made_an_entry_is_part_of_its_key(
    cold: tuple[Path, dict[str, Any]], settings: dict[str, str]
) -> None:
    folder, _ = cold
    assert is_new(compile_in_a_child(folder, **settings))


def test_every_part_changes_the_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(cache_key._PARTS) == {"plugin", "flagtree", "calls"}
    before = cache_key.tag()
    assert cache_key.tag() == before
    for name in cache_key._PARTS:
        with monkeypatch.context() as patch:
            patch.setitem(cache_key._PARTS, name, lambda: "another")
            assert cache_key.tag() != before


def test_the_tag_is_in_force_for_flagos_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import compile_fx

    seen = []
    compile_graph = compile_fx.fx_codegen_and_compile

    def note(*args: Any, **kwargs: Any) -> Any:
        seen.append(torch.compiler.config.cache_key_tag)
        return compile_graph(*args, **kwargs)

    monkeypatch.setattr(compile_fx, "fx_codegen_and_compile", note)
    with (
        torch._inductor.config.patch(fx_graph_cache=False),
        torch.compiler.config.patch(cache_key_tag="mine"),
    ):
        for device in ("cpu", "flagos", "cpu"):
            torch._dynamo.reset()
            torch.compile(lambda x: x + 3)(torch.zeros(2, device=device))
        assert torch.compiler.config.cache_key_tag == "mine"
    torch._dynamo.reset()
    assert seen[0] == seen[2] == "mine"
    assert seen[1].startswith(f"mine;{cache_key.tag()}")


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="emptied"),
        pytest.param(lambda data: data[: len(data) // 2], id="cut", marks=pytest.mark.slow),
        pytest.param(lambda data: b"x" * len(data), id="overwritten", marks=pytest.mark.slow),
    ],
)
def test_damaged_entries_are_made_anew(
    cold: tuple[Path, dict[str, Any]], tmp_path: Path, damage: Any
) -> None:
    folder, _ = cold
    mine = tmp_path / "caches"
    shutil.copytree(folder, mine)
    entries = [
        path
        for kind in ("fxgraph", "aotautograd")
        for path in (mine / kind).rglob("*")
        if path.is_file()
    ]
    assert len(entries) >= 3
    for path in entries:
        path.write_bytes(damage(path.read_bytes()))
    found = compile_in_a_child(mine)
    assert found["inner"][0] == found["outer"][0] == 0


def test_artifacts_are_saved_and_loaded(cold: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    saved = f"{cold[0]}.first"
    before = f"torch.compiler.load_cache_artifacts(open({saved!r}, 'rb').read())"
    assert not is_new(compile_in_a_child(tmp_path / "elsewhere", before=before))
