"""Owns: `torch-fl routes`: which implementation runs an operator, and which line decided it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from torch_fl.cli.main import CommandError, UsageError

if TYPE_CHECKING:
    import torch

    from torch_fl.cli.tables import Page
    from torch_fl.routing.explain import Explanation
    from torch_fl.routing.plans import Facts
    from torch_fl.routing.table import Clause, Resolution, Table

IMPLICIT, CORE, FOREIGN, NONE = "implicit", "core", "foreign", "none"

_MEANINGS = {
    "boxing": "the target's own kernel",
    "native": "a kernel that the plugin brings",
    "flaggems": "a Triton kernel of FlagGems",
    "composite": "PyTorch's own decomposition into other operators",
    "cpu": "PyTorch's CPU kernel, on copies",
    CORE: "the device's own: memory, copies, views",
    FOREIGN: "a kernel that another package has registered for flagos",
    IMPLICIT: "PyTorch makes it of other operators, which have routes of their own",
    NONE: "the target has no kernel for it, and PyTorch no decomposition",
}


@dataclass(frozen=True)
class Row:
    """The calls of one operator in some dtypes. Without `dtypes`: in all, or in all others."""

    operator: str
    dtypes: tuple[str, ...]
    routes: tuple[str, ...]
    layer: str | None
    location: str | None
    line: str
    own: bool
    """Nothing changes what it does by itself."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `torch-fl routes`."""
    parser.add_argument(
        "operator",
        nargs="?",
        metavar="OPERATOR",
        help="a name (add: all its overloads), one overload (aten::add.Tensor), or a pattern with "
        "* and ?; by default all that are not on their own route",
    )
    parser.add_argument("--dtype", help="of the first tensor of the calls, such as int64")
    parser.add_argument("--all", action="store_true", help="every operator")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print routes: 0, 1 where there is no such operator, 2 where there is no such dtype."""
    from torch_fl.cli import tables
    from torch_fl.cli.device import activate

    if arguments.operator and arguments.all:
        raise UsageError("name an operator, or say --all, but not both.")
    with tables.others_on_stderr():
        activate()
    dtype = _dtype(arguments.dtype)
    if arguments.operator:
        return _explain(arguments.operator, dtype, as_json=arguments.json)
    return _show(dtype, every=arguments.all, as_json=arguments.json)


def rows(dtype: torch.dtype | None = None) -> list[Row]:
    """All operators in alphabetic order, with their routes in this thread and now.

    Args:
        dtype: calls in this dtype alone, one row for each operator; else one for each answer.
    """
    from torch_fl.routing.engine import ENGINE

    table = ENGINE.table()
    facts = sorted(ENGINE.facts().values(), key=lambda fact: fact.name)
    return [row for fact in facts for row in _rows(fact, table, dtype)]


def counts(found: list[Row]) -> dict[str, int]:
    """How many operators take each route, or none: by what their calls try first."""
    return dict(Counter(row.routes[0] for row in found if not row.dtypes).most_common())


def layers() -> list[dict[str, object]]:
    """The layers that say something, the earliest first: later ones win."""
    from torch_fl.routing.engine import ENGINE

    return [
        {
            "layer": layer.name,
            "lines": len(layer.entries),
            "files": list(dict.fromkeys(entry.location.file for entry in layer.entries)),
        }
        for layer in ENGINE.table().layers
    ]


def _rows(fact: Facts, table: Table, dtype: torch.dtype | None) -> Iterator[Row]:
    from torch_fl.routing import plans

    if not fact.routable:
        yield Row(fact.name, (), (_fixed(fact),), None, None, "", own=True)
        return
    resolution = table.resolve(fact.name, plans.usable(fact))
    if dtype is not None:
        name = plans.name_of(dtype)
        yield _row(fact, (), resolution.clause(name), dtype)
        return
    rest = _row(fact, (), resolution.clause(None), None)
    yield rest
    yield from _by_dtype(fact, resolution, rest)


def _by_dtype(fact: Facts, resolution: Resolution, rest: Row) -> Iterator[Row]:
    """Rows for the dtypes whose calls differ from `rest`."""
    from torch_fl.routing import plans

    if not resolution.clauses:
        return
    found: dict[Row, list[str]] = {}
    for dtype in plans.TORCH_DTYPES:
        name = plans.name_of(dtype)
        row = _row(fact, (), resolution.clause(name), dtype)
        if row != rest:
            found.setdefault(row, []).append(name)
    for row, names in found.items():
        yield Row(**{**vars(row), "dtypes": tuple(names)})


def _row(
    fact: Facts, dtypes: tuple[str, ...], clause: Clause | None, dtype: torch.dtype | None
) -> Row:
    from torch_fl.routing import plans

    steps = plans.chain(fact, clause, dtype)
    routes = tuple(label for _, label, _ in steps if label) or (NONE,)
    if clause is None:
        return Row(fact.name, dtypes, routes, None, None, "", own=True)
    place = str(clause.entry.location)
    own = routes == (fact.own or NONE,)
    return Row(fact.name, dtypes, routes, clause.layer, place, clause.entry.text.strip(), own)


def _fixed(fact: Facts) -> str:
    if fact.implicit:
        return IMPLICIT
    return fact.own if fact.own in _MEANINGS else FOREIGN


def _dtype(word: str | None) -> torch.dtype | None:
    if word is None:
        return None
    import torch

    from torch_fl.routing.errors import nearest
    from torch_fl.routing.grammar import DTYPES

    found = getattr(torch, DTYPES.get(word.removeprefix("torch."), ""), None)
    if not isinstance(found, torch.dtype):
        near = nearest(word, DTYPES)
        meant = f" Did you mean {near}?" if near else ""
        raise UsageError(f"there is no dtype {word!r}.{meant}")
    return found


def _explain(operator: str, dtype: torch.dtype | None, *, as_json: bool) -> int:
    from torch_fl import routing
    from torch_fl.cli import tables

    try:
        found = routing.explain(operator, dtype)
    except routing.RouteError as error:
        meant = f" Did you mean {error.nearest}?" if error.nearest else ""
        raise CommandError(f"{error.problem}.{meant}") from error
    if as_json:
        tables.print_json([_as_dict(one) for one in found])
    else:
        tables.Page().text(str(found))
    return 0


def _as_dict(one: Explanation) -> dict[str, object]:
    return {
        "operator": one.operator,
        "dtype": one.dtype and str(one.dtype).removeprefix("torch."),
        "routes": list(one.chain),
        "decided_by": one.decided_by,
        "layer": one.layer,
        "location": one.location and str(one.location),
        "line": one.line,
        "alternatives": [asdict(other) for other in one.alternatives],
    }


def _show(dtype: torch.dtype | None, *, every: bool, as_json: bool) -> int:
    from torch_fl.cli import tables

    found = rows(dtype)
    shown = [row for row in found if every or not row.own]
    if as_json:
        listed = [asdict(row) for row in shown]
        tables.print_json({"counts": counts(found), "layers": layers(), "operators": listed})
        return 0
    page = tables.Page()
    if shown:
        page.table(("operator", "dtypes", "routes", "decided by"), map(_cells, shown))
    else:
        page.text("Every operator is on its own route.")
    print_summary(found, page)
    return 0


def print_summary(found: list[Row], page: Page) -> None:
    """How many operators take each route, and where the routes in force come from."""
    page.heading("operators by route")
    page.table(
        ("route", "operators", "what runs"),
        [(name, number, _MEANINGS.get(name, "")) for name, number in counts(found).items()],
    )
    said = layers()
    if said:
        page.heading("layers, later ones win")
        page.table(
            ("layer", "lines", "from"),
            [(one["layer"], one["lines"], ", ".join(map(str, _files(one)))) for one in said],
        )


def _files(layer: dict[str, object]) -> list[object]:
    files = layer["files"]
    return files if isinstance(files, list) else []


def _cells(row: Row) -> tuple[str, ...]:
    dtypes = ", ".join(row.dtypes) or "all"
    decided = f"{row.layer}, {row.location}: {row.line}" if row.layer else "nothing names it"
    return row.operator, dtypes, ", then ".join(row.routes), decided
