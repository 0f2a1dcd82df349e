"""Owns: the smoke set on flagos: every graph compiled as it is eagerly, forward and gradients, with
no graph break more than on the CPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from children import output_of_child
from releases import OLD

from torch_fl.testing.compiled import __main__ as commands
from torch_fl.testing.compiled.__main__ import main
from torch_fl.testing.compiled.comparison import differences
from torch_fl.testing.compiled.execution import execute
from torch_fl.testing.compiled.program import Graph, Place, Program, all_graphs, before

GRAPHS = all_graphs()
# What Inductor need not be asked for: Dynamo leaves these functions as they are.
NOT_COMPILED = {"devices/default-device", "devices/sparse"}


def parameters(graphs: dict[str, Graph]) -> list[Any]:
    marks = {True: [pytest.mark.slow], False: []}
    return [pytest.param(name, marks=marks[graph.slow]) for name, graph in graphs.items()]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_the_set_is_as_large_as_promised() -> None:
    assert len(GRAPHS) >= 60


@pytest.mark.parametrize("name", parameters({n: g for n, g in GRAPHS.items() if g.devices == 1}))
def test_a_graph_does_what_it_does_eagerly(name: str) -> None:
    result = execute(GRAPHS[name], "flagos")
    assert result.good or (OLD and result.limit), result
    assert result.inductor > 0 or name in NOT_COMPILED, "Inductor compiled nothing"


def test_graphs_with_two_devices() -> None:
    said = output_of_child(
        """
        import json, torch, torch_fl
        from torch_fl.testing.compiled.execution import execute
        from torch_fl.testing.compiled.program import all_graphs
        for name, graph in all_graphs().items():
            if graph.devices == 2:
                result = execute(graph, "flagos")
                print(json.dumps([name, result.verdict, result.notes, result.inductor]))
        """,
        FLAGOS_HOST_DEVICES="2",
    )
    found = [json.loads(line) for line in said.splitlines()]
    assert {name for name, *_ in found} == {n for n, g in GRAPHS.items() if g.devices == 2}
    for name, verdict, notes, graphs in found:
        assert verdict in ("equal", "close"), (name, notes)
        assert graphs > 0, name


def breaks(graph: Graph, device: str) -> list[str]:
    program = graph.build(Place(device, graph.name))
    torch._dynamo.reset()
    try:
        said = torch._dynamo.explain(program.function)(*program.calls[0])
    except Exception:
        if program.raises is None:
            raise
        return []
    return sorted(str(one.reason).splitlines()[0] for one in said.break_reasons)


@pytest.mark.parametrize("name", parameters({n: g for n, g in GRAPHS.items() if g.devices == 1}))
def test_no_graph_breaks_that_the_cpu_does_not_have(name: str) -> None:
    graph = GRAPHS[name]
    expected = [] if graph.accelerator else breaks(graph, "cpu")
    assert breaks(graph, "flagos") == expected


# -- the set's own tools


def _program(function: Any, **kinds: Any) -> Graph:
    def build(at: Place) -> Program:
        return Program(function, [(at.normal(4),)], **kinds)

    return Graph("of this test", build)


def test_another_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    function = _program(lambda x: x.sin() + (1 if torch.compiler.is_compiling() else 2))
    result = execute(function, "flagos")
    assert (result.verdict, result.good) == ("differs", False)
    assert "differs by up to 1" in result.notes[0]


def test_an_error_while_compiling_is_found() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            return x.view(99)
        return x * 2

    result = execute(_program(function), "flagos")
    assert (result.verdict, result.good) == ("raises", False)


@pytest.mark.parametrize(
    ("got", "expected", "equal", "notes"),
    [
        (torch.ones(2), torch.ones(2), True, 0),
        (torch.ones(2) * (1 + 1e-6), torch.ones(2), False, 0),
        (torch.ones(2) * 1.1, torch.ones(2), False, 1),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), False, 1),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), False, 1),
        (torch.tensor(float("nan")), torch.tensor(float("nan")), True, 0),
        (torch.tensor(float("nan")), torch.tensor(1.0), False, 1),
        ([torch.ones(1)], torch.ones(1), False, 1),
        ({"a": 1}, {"a": 2}, False, 1),
        (torch.ones(1, device="flagos"), torch.ones(1), False, 1),
    ],
)
def test_comparison(got: Any, expected: Any, equal: bool, notes: int) -> None:
    same, found = differences(got, expected, 0.0)
    assert (same, len(found)) == (equal, notes), found


def test_the_command_goes_on_where_it_ended(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.jsonl"
    begun = {"name": "views/nothing-computed", "started": True}
    file.write_text((json.dumps(begun) + "\n") * 2, encoding="utf-8")
    assert main(["--select", "views/nothing-computed", "--json", str(file)]) == 1
    assert "1 raises" in capsys.readouterr().out  # the process ended in it twice: not once more
    file.unlink()
    assert main(["--select", "views/nothing-computed", "--json", str(file)]) == 0
    before = file.read_text(encoding="utf-8")
    assert main(["--select", "views/nothing-computed", "--json", str(file)]) == 0
    assert file.read_text(encoding="utf-8") == before
    assert json.loads(before.splitlines()[-1])["verdict"] == "equal"


@pytest.mark.parametrize("limit", ["", "it cannot"])
def test_what_pytorch_itself_cannot_do_is_said_and_no_failure(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
    capsys: pytest.CaptureFixture[str],
    limit: str,
) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + (1 if torch.compiler.is_compiling() else 2)

    graph = replace(_program(function), limit=limit)
    monkeypatch.setattr(commands, "all_graphs", lambda: {graph.name: graph})
    file = tmp_path / "found.jsonl"
    assert main(["--json", str(file)]) == (0 if limit else 1)
    record = json.loads(file.read_text(encoding="utf-8").splitlines()[-1])
    assert (record["verdict"], record["limit"]) == ("differs", limit)
    assert ("1 of them by PyTorch's own limits" in capsys.readouterr().out) == bool(limit)


def test_a_limit_ends_with_a_release() -> None:
    assert before("99.0", "it cannot") == "it cannot"
    assert before("2.11", "it cannot") == ""
