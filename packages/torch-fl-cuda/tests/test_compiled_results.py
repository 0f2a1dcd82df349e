"""Owns: tests of what is kept of the compiler's smoke set, and of its two sides side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torch_fl.testing.compiled import __main__ as commands
from torch_fl.testing.compiled import known, side_by_side
from torch_fl.testing.compiled.execution import Result
from torch_fl.testing.compiled.program import Graph, Program, all_graphs
from torch_fl.testing.compiled.results import LEFT_OUT, Results

NAMES = ("a/first", "a/second", "b/third")


class Execution:
    """Stands in for `execute`: gives "equal", or does what it is told for a graph."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.told: dict[str, Any] = {}

    def __call__(self, graph: Graph, device: str, backend: str) -> Result:
        self.ran.append(graph.name)
        what = self.told.get(graph.name, "equal")
        if isinstance(what, BaseException):
            raise what
        return Result(graph.name, device, what)


@pytest.fixture
def execution(monkeypatch: pytest.MonkeyPatch) -> Execution:
    found = Execution()
    graphs = {name: Graph(name, lambda place: Program(lambda: None, [()])) for name in NAMES}
    monkeypatch.setattr(commands, "all_graphs", lambda: graphs)
    monkeypatch.setattr(commands, "execute", found)
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "graphs.jsonl"


def _main(file: Path, *words: str) -> int:
    return commands.main(["--device", "cpu", "--json", str(file), *words])


def _write(file: Path, *lines: dict[str, Any], end: str = "\n") -> None:
    file.write_text("\n".join(json.dumps(line) for line in lines) + end, encoding="utf-8")


def test_a_graph_that_ended_the_process_once_has_another_try(
    execution: Execution, file: Path
) -> None:
    begun = {"name": "a/first", "started": True}
    _write(file, begun)
    assert _main(file) == 0
    assert execution.ran == list(NAMES)
    execution.ran.clear()
    _write(file, begun, begun)
    for _ in range(2):
        assert _main(file) == 1
        assert execution.ran == list(NAMES[1:])
        assert "2 times" in Results(file).done["a/first"]["notes"][0]


def test_what_was_interrupted_has_not_begun(execution: Execution, file: Path) -> None:
    for _ in range(3):
        execution.told["a/second"] = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            _main(file)
    execution.told.clear()
    assert _main(file) == 0
    assert execution.ran == ["a/first", *["a/second"] * 4, "b/third"]


def test_a_line_cut_short_is_dropped(execution: Execution, file: Path) -> None:
    done = {"name": "a/first", "verdict": "equal", "notes": [], "breaks": 0}
    _write(file, done, {"name": "a/second", "started": True}, end='\n{"name": "a/sec')
    assert _main(file) == 0
    assert execution.ran == list(NAMES[1:])
    assert all(json.loads(line) for line in file.read_text().splitlines())


def test_shards_are_all_of_it(execution: Execution, file: Path) -> None:
    statuses = []
    for number in (1, 2):
        try:
            statuses.append(_main(file, "--shard", f"{number}/2"))
        except SystemExit:
            statuses.append(2)  # there is nothing in this shard
    assert sorted(execution.ran) == sorted(NAMES)
    assert 0 in statuses
    with pytest.raises(SystemExit):
        _main(file, "--shard", "3/2")


def test_a_lost_device_ends_the_process(
    execution: Execution, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution.told["a/first"] = "raises"
    monkeypatch.setattr(commands, "_is_lost", lambda device: execution.ran[-1:] == ["a/first"])
    assert _main(file) == commands.DEVICE_LOST
    execution.ran.append("a new process")
    assert _main(file) == 1
    assert execution.ran == ["a/first", "a new process", "a/second", "b/third"]


def _record(verdict: str = "equal", breaks: int = 0) -> dict[str, Any]:
    return {"verdict": verdict, "breaks": breaks, "notes": ["why"]}


@pytest.mark.parametrize(
    ("flagos", "native", "said"),
    [
        (_record(), _record("close"), ""),
        (_record("differs"), _record(), "a/first: differs ['why']"),
        (_record("differs"), _record("raises"), ""),
        (_record(breaks=2), _record(breaks=1), "a/first: 2 breaks, natively 1"),
        (_record(LEFT_OUT), _record(LEFT_OUT), ""),
        (_record(LEFT_OUT), _record(), "a/first: left out, natively equal"),
        (_record(), {**_record(LEFT_OUT), "device": "cuda"}, "a/first: equal, natively left out"),
        (_record(), {**_record(LEFT_OUT), "device": "cpu"}, ""),
        (_record("raises"), {**_record(LEFT_OUT), "device": "cpu"}, "a/first: raises ['why']"),
        (None, _record(), "a/first: not run on flagos"),
        (_record(), None, "a/first: not run natively"),
    ],
)
def test_what_is_good_natively_is_good_on_flagos(flagos: Any, native: Any, said: str) -> None:
    sides = [{} if side is None else {"a/first": side} for side in (flagos, native)]
    assert side_by_side.wrong(["a/first"], *sides) == ([said] if said else [])


def test_files_are_compared_by_all_graphs_that_there_are(
    execution: Execution, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(tmp_path / f"{number}.jsonl") for number in range(3)]
    for file, names in zip(files, (NAMES[:2], NAMES[2:], NAMES[:2]), strict=True):
        _write(Path(file), *({"name": name, **_record()} for name in names))
    assert commands.main(["--merge", *files[:2], "--against", files[2]]) == 1
    assert "b/third: not run natively" in capsys.readouterr().out
    assert commands.main(["--merge", *files[:2], "--against", *files[:2]]) == 0
    with pytest.raises(SystemExit):
        commands.main(["--merge", files[0]])


# -- operators


def _made_of(device: str = "cuda:0", **operators: int) -> dict[str, Any]:
    return {**_record(), "device": device, "operators": operators}


FLASH = _made_of(flash=1, mul=2)
WRITTEN_OUT = _made_of("flagos", bmm=2, mul=2)
FOUND = "\n         - bmm: 2, natively 0\n         - flash: 0, natively 1"


def _compared(flagos: dict[str, Any], native: dict[str, Any]) -> side_by_side.Operators:
    return side_by_side.compared_operators(["a/first"], {"a/first": flagos}, {"a/first": native})


def test_other_operators_are_told_by_name() -> None:
    assert _compared(WRITTEN_OUT, FLASH).wrong == ["a/first: other operators" + FOUND]
    assert _compared({**FLASH, "device": "flagos"}, FLASH) == side_by_side.Operators()


@pytest.mark.parametrize("verdict", ["raises", "differs", LEFT_OUT])
def test_operators_count_where_pytorch_itself_is_right(verdict: str) -> None:
    assert _compared(WRITTEN_OUT, {**FLASH, "verdict": verdict}) == side_by_side.Operators()


def test_operators_that_are_known_to_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "ON_ACCELERATORS", {"a/first": "of this test"})
    assert _compared(WRITTEN_OUT, FLASH) == side_by_side.Operators(known=["a/first"])
    on_the_cpu = _compared(WRITTEN_OUT, {**FLASH, "device": "cpu"})
    assert on_the_cpu.wrong == ["a/first: other operators" + FOUND]
    no_more = _compared(FLASH, FLASH)
    assert no_more.wrong == ["a/first: the native operators, and listed as others: of this test"]


def test_what_is_known_is_of_graphs_that_there_are() -> None:
    assert known.ON_HOST.items() >= known.ON_ACCELERATORS.items()
    for name, reason in known.ON_HOST.items():
        assert all_graphs()[name].name == name
        assert reason


def test_other_operators_fail_a_comparison(
    execution: Execution, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flagos, native, older = (tmp_path / name for name in ("flagos", "native", "older"))
    _write(flagos, *({"name": name, **WRITTEN_OUT} for name in NAMES))
    _write(native, *({"name": name, **(WRITTEN_OUT, FLASH)[name == "a/second"]} for name in NAMES))
    _write(older, *({"name": name, **_record()} for name in NAMES))
    assert commands.main(["--merge", str(flagos), "--against", str(native)]) == 1
    said = capsys.readouterr().out
    assert f"a/second: other operators{FOUND}\n1 have other operators than natively\n" in said
    assert commands.main(["--merge", str(native), "--against", str(native)]) == 0
    assert "0 have other operators than natively\n" in capsys.readouterr().out
    # Files from before operators were kept.
    assert commands.main(["--merge", str(flagos), "--against", str(older)]) == 0
    assert "3 were not compared by operators" in capsys.readouterr().out
