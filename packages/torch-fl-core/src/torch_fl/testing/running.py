"""Owns: a run of suites: what was asked for, the units that this means, and running them."""

from __future__ import annotations

import fnmatch
import importlib.util
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from torch_fl import settings

from .evidence_files import usual_kind
from .harness import exclusions as exclusion_list
from .harness.cases import Suite, Tier
from .harness.configurations import CONFIGURATIONS, PLAIN, Configuration
from .harness.report import Report, expected_units
from .harness.results import Header, Key, Kind, ResultFile, UnitResult, merge
from .harness.runner import Runner, Unit
from .harness.worker import Ready, Setup
from .suites import SUITES

OTHER_CONFIGURATIONS: Final[Mapping[Tier, Tier]] = {"ci": "glance", "full": "ci"}
"""The tier with which all configurations but the first one are run."""

_NEEDED: Final = ("numpy", "yaml", "expecttest")


class RequestError(ValueError):
    """What was asked for does not fit together, or names what does not exist."""


@dataclass(frozen=True)
class Request:
    """What to run. Empty tuples mean everything that there is, but for suites that run by name."""

    device: str = "flagos"
    plugin: str = ""
    kind: Kind | None = None
    tier: Tier = "ci"
    suites: tuple[str, ...] = ()
    configurations: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    """patterns, such as ``nn.functional.*``"""
    shard: tuple[int, int] = (1, 1)
    workers: int = 2
    time_limit_s: float = 120.0
    seed: int = 1
    out: Path | None = None
    resume: bool = False
    exclusions: Path = exclusion_list.DEFAULT_FOLDER
    fingerprints: bool = False
    """keep one of each case in the results"""

    def chosen_suites(self) -> dict[str, Suite]:
        """The suites by name. Raises RequestError for one that does not exist."""
        usual = {name: suite for name, suite in SUITES.items() if self.suites or not suite.by_name}
        return {name: usual[name] for name in _chosen(self.suites, usual, "suite")}

    @property
    def variables(self) -> dict[str, str]:
        """What the workers' environment says about the backend."""
        return {settings.FLAGOS_PLUGIN.name: self.plugin} if self.plugin else {}


@dataclass
class Outcome:
    """What a run, or several merged ones, gave."""

    header: Header
    units: dict[Key, UnitResult]
    exclusions: list[exclusion_list.Exclusion]
    report: Report
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """The configurations of a run, each with its tier and its units."""

    header: Header
    units: Mapping[str, tuple[Tier, list[Unit]]]
    notes: tuple[str, ...]
    whole: bool

    def keys(self) -> set[Key]:
        """All units of the run, as results name them."""
        return {(name, *unit) for name, (_, units) in self.units.items() for unit in units}


def run(
    request: Request,
    on_start: Callable[[Plan, int], None] = lambda plan, todo: None,
    on_result: Callable[[UnitResult], None] = lambda unit: None,
) -> Outcome:
    """Run what was asked for.

    Args:
        request: what to run.
        on_start: told what will be run, and how many units of it are not done yet.
        on_result: told each result as it comes, by one thread at a time.

    Raises:
        RequestError, ResultError, ExclusionError: the request or a file is wrong.
        WorkerStartError: a worker process did not start, such as for want of the device.
    """
    with _started(request, PLAIN, request.tier) as first:
        plan = plan_of(request, first.ready)
        exclusions = load_exclusions(request, plan.header)
        file = None
        if request.out:
            file = ResultFile(request.out, plan.header, resume=request.resume)
        done = {} if file is None else dict(file.done)

        def keep(unit: UnitResult) -> None:
            done[unit.key] = unit
            if file:
                file.append(unit)
            on_result(unit)

        expected = plan.keys()
        on_start(plan, len(expected - done.keys()))
        try:
            for name, (tier, units) in plan.units.items():
                todo = [unit for unit in units if (name, *unit) not in done]
                if todo and (name, tier) == (PLAIN, request.tier):
                    first.run(todo, keep)
                elif todo:
                    first.close()  # its workers hold memory that these can use
                    with _started(request, name, tier) as runner:
                        runner.run(todo, keep)
        finally:
            if file:
                file.close()
    chosen = {key: unit for key, unit in done.items() if key in expected}
    report = Report.of(chosen, expected, exclusions, whole=plan.whole)
    return Outcome(plan.header, chosen, exclusions, report, list(plan.notes))


def merged(paths: Sequence[Path], folder: Path) -> Outcome:
    """The outcome of several result files of one setup. Raises ResultError, ExclusionError."""
    header, units = merge(list(paths))
    exclusions = load_exclusions(Request(exclusions=folder), header)
    report = Report.of(units, expected_units(header), exclusions)
    return Outcome(header, units, exclusions, report)


def selfcheck(
    request: Request, on_result: Callable[[UnitResult], None] = lambda unit: None
) -> dict[str, tuple[int, int]]:
    """For each suite, how many entries fail with its wrong operators, and how many must."""
    seen: dict[str, set[str]] = {name: set() for name in request.chosen_suites()}

    def note(unit: UnitResult) -> None:
        if unit.status == "done" and unit.failed:  # after a crash no comparison saw anything
            seen[unit.suite].add(unit.entry)
        on_result(unit)

    # One suite after the other: the operators of one must not be wrong for the next.
    for name in seen:
        with _started(request, PLAIN, "selfcheck", (name,), wrong=True) as runner:
            runner.run(_units(request, {name: SUITES[name]}, runner.ready, "selfcheck"), note)
    return {name: (len(found), SUITES[name].wrong_entries) for name, found in seen.items()}


def ready_of(request: Request) -> Ready:
    """What the backend answers; the worker that was asked is gone then."""
    with _started(replace(request, workers=1), PLAIN, request.tier) as runner:
        return runner.ready


def plan_of(request: Request, ready: Ready) -> Plan:
    """What a request means for the backend that answered."""
    suites = request.chosen_suites()
    possible, notes = _possible(request, ready)
    units = {}
    passes = {}
    for position, name in enumerate(possible):
        tier = request.tier if position == 0 else OTHER_CONFIGURATIONS.get(request.tier, "ci")
        found = _units(request, suites, ready, tier)
        if found:
            units[name] = (tier, found)
            passes[name] = {
                suite: _passes(request, SUITES[suite], tier)
                for suite in dict.fromkeys(suite for suite, _, _ in found)
            }
    if not units:
        raise RequestError("no entry of the chosen suites has the chosen name and passes")
    kind = request.kind or usual_kind(ready.plugin)
    header = Header(
        device=ready.device,
        plugin=ready.plugin,
        plugin_version=ready.plugin_version,
        kind=kind,
        tier=request.tier,
        torch=ready.torch,
        python=platform.python_version(),
        machine=platform.machine(),
        seed=request.seed,
        configurations=tuple(units),
        passes=passes,
        entries={name: ready.entries[name] for name in suites},
        fingerprints=request.fingerprints,
        date=time.strftime("%Y-%m-%d"),
        device_name=ready.device_name,
    )
    whole = not request.entries and request.shard == (1, 1)
    return Plan(header, units, tuple(notes), whole)


def load_exclusions(request: Request, header: Header) -> list[exclusion_list.Exclusion]:
    """The exclusion lists; none where the CPU itself is under test, to try the harness out."""
    if header.plugin == "cpu":
        return []
    passes = {name: [item.name for item in SUITES[name].passes] for name in header.entries}
    return exclusion_list.load(request.exclusions, passes, header.entries, header.torch)


@contextmanager
def _started(
    request: Request,
    configuration: str,
    tier: Tier,
    suites: tuple[str, ...] = (),
    wrong: bool = False,
) -> Iterator[Runner]:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise RequestError(
            f"PyTorch's databases need {', '.join(missing)}: pip install 'torch-fl-core[test]'"
        )
    setup = Setup(
        device=request.device,
        seed=request.seed,
        tier=tier,
        suites=suites or tuple(request.chosen_suites()),
        configuration=configuration,
        variables=request.variables,
        wrong=wrong,
        fingerprints=request.fingerprints,
    )
    runner = Runner(setup, request.workers, request.time_limit_s)
    try:
        yield runner
    finally:
        runner.close()


def _possible(request: Request, ready: Ready) -> tuple[list[str], list[str]]:
    """The configurations that this backend has, and why the others are left out."""
    chosen = _chosen(request.configurations, CONFIGURATIONS, "configuration")
    refused = {name: _refused(CONFIGURATIONS[name], ready) for name in chosen}
    notes = [f"without {name}: {why}" for name, why in refused.items() if why]
    if request.configurations and notes:
        raise RequestError("; ".join(notes))
    return [name for name, why in refused.items() if not why], notes


def _refused(configuration: Configuration, ready: Ready) -> str:
    if configuration.name == PLAIN:
        return ""
    if ready.plugin == "cpu":
        return "the CPU has no such settings"
    if ready.plugin != "host" and configuration.host_only:
        return "only the host backend has it"
    if ready.plugin != "host" and configuration.devices > ready.devices:
        return f"it needs {configuration.devices} devices, here are {ready.devices}"
    return ""


def _units(request: Request, suites: Mapping[str, Suite], ready: Ready, tier: Tier) -> list[Unit]:
    index, count = request.shard
    if not 1 <= index <= count:
        raise RequestError(f"shard {index}/{count}: the first must lie between 1 and the second")
    for pattern in request.entries:
        if not any(fnmatch.filter(ready.entries[name], pattern) for name in suites):
            raise RequestError(f"no entry of {', '.join(suites)} matches {pattern!r}")
    units = []
    for name, suite in suites.items():
        entries = [
            entry
            for entry in ready.entries[name]
            if not request.entries or any(fnmatch.fnmatch(entry, p) for p in request.entries)
        ]
        for entry in entries[index - 1 :: count]:
            units += [(name, entry, pass_name) for pass_name in _passes(request, suite, tier)]
    return units


def _passes(request: Request, suite: Suite, tier: Tier) -> tuple[str, ...]:
    known = {item.name for name in request.chosen_suites() for item in SUITES[name].passes}
    for name in request.passes:
        if name not in known:
            raise RequestError(f"there is no pass {name!r}; there are {', '.join(sorted(known))}")
    return tuple(
        name for name in suite.passes_in(tier) if not request.passes or name in request.passes
    )


def _chosen(names: tuple[str, ...], known: Mapping[str, Any], what: str) -> list[str]:
    for name in names:
        if name not in known:
            raise RequestError(f"there is no {what} {name!r}; there are {', '.join(known)}")
    return [name for name in known if not names or name in names]
