"""Owns: the suites as a pytest plugin: one item for each suite, entry, pass and configuration.

::

    pytest -p torch_fl.testing.pytest_plugin --pyargs torch_fl.testing --conformance-suite optim_db
    pytest -p torch_fl.testing.pytest_plugin tests    # where a file imports `conformance`'s test

A test with the argument ``conformance_unit`` is run for every unit. Excluded failures are
``xfail``; an excluded unit that passes fails, because its line in the list must go; a unit without
a sample on the CPU is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .harness import exclusions as exclusion_list
from .harness.configurations import PLAIN
from .harness.report import failure_lines, unit_line
from .harness.results import UnitResult
from .harness.runner import Unit, WorkerProcess
from .harness.worker import Setup
from .running import Plan, Request, load_exclusions, plan_of, ready_of

FIXTURE = "conformance_unit"

_TESTS = Path(__file__).with_name("conformance.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, all of which begin with ``--conformance``."""
    group = parser.getgroup("conformance", "the flagos device against stock CPU")
    names = {
        "plugin": "the backend; default: the one in use",
        "device": "the device under test; default: flagos",
        "suite": "suites; default: all",
        "ops": "entries, wildcards allowed; default: all",
        "passes": "passes; default: those of the tier",
        "configuration": "configurations; default: plain",
        "tier": "ci or full; default: ci",
        "exclusions": "folder of the lists of known failures",
    }
    for name, text in names.items():
        group.addoption(f"--conformance-{name}", metavar=name.upper(), default="", help=text)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """The one test file of this package. It is not named test_*.py, which no wheel should have."""
    if file_path != _TESTS or parent.session.isinitpath(file_path):
        return None  # what is named on the command line, pytest collects by itself
    return pytest.Module.from_parent(parent, path=file_path)


@dataclass(frozen=True)
class _Chosen:
    """What the options mean."""

    request: Request
    plan: Plan
    exclusions: list[exclusion_list.Exclusion]


_CHOSEN = pytest.StashKey[_Chosen]()


def _chosen(config: pytest.Config) -> _Chosen:
    """Asks the backend once what entries there are."""
    if _CHOSEN not in config.stash:
        request = _request(config)
        plan = plan_of(request, ready_of(request))
        config.stash[_CHOSEN] = _Chosen(request, plan, load_exclusions(request, plan.header))
    return config.stash[_CHOSEN]


def _request(config: pytest.Config) -> Request:
    def option(name: str) -> str:
        return str(config.getoption(f"--conformance-{name}", ""))

    def names(name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in option(name).split(",") if part.strip())

    if option("tier") not in ("", "ci", "full"):
        raise pytest.UsageError(f"--conformance-tier is ci or full, not {option('tier')!r}")
    return Request(
        device=option("device") or "flagos",
        plugin=option("plugin"),
        tier="full" if option("tier") == "full" else "ci",
        suites=names("suite"),
        configurations=names("configuration") or (PLAIN,),
        passes=names("passes"),
        entries=names("ops"),
        exclusions=Path(option("exclusions") or exclusion_list.DEFAULT_FOLDER),
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item for each unit."""
    if FIXTURE not in metafunc.fixturenames:
        return
    try:
        plan = _chosen(metafunc.config).plan
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    units = [(name, unit) for name, (_, found) in plan.units.items() for unit in found]
    ids = ["-".join((*unit, name)) for name, unit in units]
    metafunc.parametrize(FIXTURE, units, ids=ids, scope="function")


class _Workers:
    """The worker process of one configuration at a time, started again when it died."""

    def __init__(self, chosen: _Chosen, folder: Path) -> None:
        self._chosen = chosen
        self._folder = folder
        self._worker: WorkerProcess | None = None
        self._configuration = ""

    def evaluate(self, configuration: str, unit: Unit) -> UnitResult:
        if self._configuration != configuration:
            self.close()
        if self._worker is None:
            request = self._chosen.request
            setup = Setup(
                device=request.device,
                seed=request.seed,
                tier=self._chosen.plan.units[configuration][0],
                suites=tuple(request.chosen_suites()),
                configuration=configuration,
                variables=request.variables,
            )
            self._configuration = configuration
            self._worker = WorkerProcess(setup, self._folder / f"{configuration}.log")
        result = self._worker.evaluate(unit, self._chosen.request.time_limit_s)
        if result.status != "done":
            self._worker = None
        return result

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


@pytest.fixture(scope="session")
def conformance_workers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[_Workers]:
    """What evaluates units, in processes of its own: a crash costs one item."""
    workers = _Workers(_chosen(request.config), tmp_path_factory.mktemp("conformance"))
    yield workers
    workers.close()


def check(unit: tuple[str, Unit], workers: Any, config: pytest.Config) -> None:
    """Run a unit and end the test as it deserves."""
    result = workers.evaluate(*unit)
    exclusion = exclusion_list.excluded(_chosen(config).exclusions, result.key)
    if not result.ok:
        lines = "\n".join([unit_line(result), *failure_lines(result)])
        if exclusion is not None:
            pytest.xfail(f"excluded: {exclusion.reason}\n{lines}")
        pytest.fail(lines, pytrace=False)
    if not result.counted:
        pytest.skip("stock CPU carries out no sample")
    if exclusion is not None and not result.truncated:
        pytest.fail(f"{unit_line(result)}\nremove its exclusion", pytrace=False)
