"""Owns: the areas of `./dev test`, as data.

An area is a named part of the tests with a time budget on the reference machine (2 cores). To add
one, add it here; nothing else needs to know. Areas run in this order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

CORE = "packages/torch-fl-core"
UNIT = "not opdb and not compile and not plugins"  # the others are in areas of their own
WORKERS = "2"  # the reference machine's cores: budgets and memory are measured with these


@dataclass(frozen=True)
class Command:
    """One program of an area, started with the environment's Python.

    `pytest`: `target` is a folder of tests, `marker` chooses among them. `module`: `target` is a
    module of the package whose sources are in `package`. `dev`: `target` is a command of `./dev`.
    The last thing that these two print is the line `N passed, N failed`.
    """

    kind: Literal["pytest", "module", "dev"]
    target: str
    arguments: tuple[str, ...] = ()
    marker: str = ""
    package: str = ""

    @property
    def needs(self) -> tuple[str, ...]:
        """The paths in the repository of which one has to exist for the command to run."""
        if self.kind == "pytest":
            return (self.target,)
        if self.kind == "dev":
            return (self.kind,)
        path = f"{self.package}/src/{self.target.replace('.', '/')}"
        return (f"{path}.py", f"{path}/__main__.py")


@dataclass(frozen=True)
class Area:
    """`minutes` is the budget of the normal run; `full` are the commands of `--full`, where they
    differ from the normal ones. An area `on_request` is only run when it is named. `within`: its
    tests are found by another area when the user names tests."""

    name: str
    about: str
    minutes: int
    commands: tuple[Command, ...] = ()
    full: tuple[Command, ...] = field(default=())
    on_request: bool = False
    within: bool = False

    def chosen(self, full: bool) -> tuple[Command, ...]:
        return self.full if full and self.full else self.commands

    @property
    def takes_pytest_arguments(self) -> bool:
        return not self.within and any(command.kind == "pytest" for command in self.commands)


def _core_tests(marker: str, folder: str = "tests") -> Command:
    return Command("pytest", f"{CORE}/{folder}", ("-n", WORKERS), marker)


def _conformance(tier: str, *arguments: str) -> Command:
    return Command(
        "module",
        "torch_fl.testing",
        ("--tier", tier, "--workers", WORKERS, *arguments),
        package=CORE,
    )


def _compiled(tier: str) -> Command:
    # A loaded machine takes its time for a compilation.
    words = ("--suite", "compiled", "--configuration", "plain", "--time-limit", "600")
    return _conformance(tier, *words)


def _own_tests(marker: str) -> Command:
    return Command("pytest", "ci/tests", (), marker)


def _plugin_tests(vendor: str) -> Command:
    return Command("pytest", f"packages/torch-fl-{vendor}/tests", (), "not slow")


AREAS = (
    # Its work is the preparation that every command does; here it is timed and reported.
    Area("build", "environment, packages and the core", 6),
    Area(
        "unit",
        "unit and routing tests, and those of the vendors' packages",
        8,
        (
            _own_tests("not slow"),
            _core_tests(f"not slow and {UNIT}"),
            _plugin_tests("cuda"),
        ),
        (
            _own_tests("not slow"),
            _own_tests("slow"),
            _core_tests(f"not slow and {UNIT}"),
            _core_tests(f"slow and {UNIT}"),
            _plugin_tests("cuda"),
        ),
    ),
    Area(
        "wheels",
        "plugins really installed, the command line about them, the wheels made and tried",
        8,
        (
            _core_tests("not slow", "tests/plugins"),
            _core_tests("not slow", "tests/cli"),
            Command("dev", "wheels"),
        ),
        within=True,
    ),
    Area(
        "opdb",
        "PyTorch's own databases (torch-fl conformance) on flagos against CPU",
        14,
        (_conformance("ci"),),
        (_conformance("full"),),
    ),
    Area(
        "compile",
        "torch.compile: its tests, and operators compiled against the same eagerly",
        12,
        (_core_tests("not slow", "tests/compile"), _compiled("ci")),
        (
            _core_tests("not slow", "tests/compile"),
            _core_tests("slow", "tests/compile"),
            _compiled("full"),
        ),
        within=True,
    ),
    Area(
        "ecosystem",
        "other people's libraries, in an environment of their own (only with --ecosystem)",
        15,
        (Command("dev", "ecosystem"),),
        on_request=True,
    ),
)
