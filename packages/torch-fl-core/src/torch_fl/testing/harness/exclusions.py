"""Owns: the lists of known failures, one YAML file for each suite, which may only shrink.

An excluded entry that passes is an error: its line must go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from .configurations import CONFIGURATIONS
from .results import Key, UnitResult

MAXIMUM: Final = 15
KEPT_FOR: Final = (2, 13)
"""The oldest torch for which each line's entry must exist; an older database may lack it."""
DEFAULT_FOLDER: Final = Path(__file__).parents[1] / "exclusions"

_REQUIRED: Final = {"entry", "passes", "reason"}
_OPTIONAL: Final = {"since", "configurations"}


class ExclusionError(ValueError):
    """An exclusion list itself is wrong."""


@dataclass(frozen=True)
class Exclusion:
    """One entry of a suite, the passes in which it is known to fail, and why.

    `configurations`: where it fails; empty for all. `since`: the oldest torch, (major, minor),
    whose database has the entry.
    """

    suite: str
    entry: str
    passes: tuple[str, ...]
    reason: str
    configurations: tuple[str, ...] = ()
    since: tuple[int, int] = (0, 0)

    def covers(self, key: Key) -> bool:
        """Whether the unit may fail."""
        configuration, suite, entry, pass_name = key
        return (
            (suite, entry) == (self.suite, self.entry)
            and pass_name in self.passes
            and (not self.configurations or configuration in self.configurations)
        )


def load(
    folder: Path,
    suites: Mapping[str, Collection[str]],
    entries: Mapping[str, Collection[str]],
    torch_version: str,
) -> list[Exclusion]:
    """Read and check the lists of some suites; a suite without a file excludes nothing.

    Args:
        folder: where the YAML files are, named as the suites.
        suites: their names, each with the names of its passes.
        entries: for each suite the entries that exist.
        torch_version: such as ``2.13.0``.

    Raises:
        ExclusionError: no such folder, no YAML, too many entries, an unknown entry, pass,
            configuration or key, no reason, or the same entry twice in one configuration.
    """
    if not folder.is_dir():
        raise ExclusionError(f"there is no folder {folder} with lists of exclusions")
    found: list[Exclusion] = []
    for suite, passes in suites.items():
        path = folder / f"{suite}.yaml"
        if path.exists():
            version = _version(torch_version)
            exclusions = _read(path, suite, version)
            if version < KEPT_FOR:
                exclusions = [each for each in exclusions if each.entry in entries[suite]]
            _check(path, exclusions, entries[suite], passes)
            found += exclusions
    return found


def _version(torch_version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in torch_version.split(".")[:2])


def _read(path: Path, suite: str, version: tuple[int, ...]) -> list[Exclusion]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ExclusionError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict) or set(data) != {"exclusions"}:
        raise ExclusionError(f"{path} must hold one key, 'exclusions'")
    parsed = [_parse(suite, item) for item in data["exclusions"] or []]
    return [exclusion for exclusion in parsed if exclusion.since <= version]


def _check(
    path: Path, exclusions: list[Exclusion], entries: Collection[str], passes: Collection[str]
) -> None:
    if len(exclusions) > MAXIMUM:
        raise ExclusionError(f"{path} has {len(exclusions)} entries, at most {MAXIMUM} are allowed")
    seen: set[tuple[str, str]] = set()
    for exclusion in exclusions:
        if exclusion.entry not in entries:
            raise ExclusionError(f"{exclusion.entry} is no entry of {exclusion.suite}")
        for name in exclusion.passes:
            if name not in passes:
                raise ExclusionError(f"{exclusion.entry}: there is no pass {name!r}")
        for name in exclusion.configurations:
            if name not in CONFIGURATIONS:
                raise ExclusionError(f"{exclusion.entry}: there is no configuration {name!r}")
        keys = {(exclusion.entry, name) for name in exclusion.passes}
        if keys & seen:
            raise ExclusionError(f"{exclusion.entry} is excluded twice")
        seen |= keys


def _parse(suite: str, item: Any) -> Exclusion:
    if not isinstance(item, dict) or set(item) - _OPTIONAL != _REQUIRED:
        raise ExclusionError(f"an exclusion has the keys entry, passes and reason: {item!r}")
    entry, reason = item["entry"], item["reason"]
    configurations = item.get("configurations", [])
    if not isinstance(item["passes"], list) or not item["passes"]:
        raise ExclusionError(f"{entry}: passes must be a list of pass names")
    if not isinstance(configurations, list):
        raise ExclusionError(f"{entry}: configurations must be a list of their names")
    if not isinstance(reason, str) or not reason.strip():
        raise ExclusionError(f"{entry}: a reason is required")
    major, _, minor = str(item.get("since", "0.0")).partition(".")
    if not (major.isdigit() and minor.isdigit()):
        raise ExclusionError(f"{entry}: since must be a torch version such as '2.13'")
    return Exclusion(
        suite,
        str(entry),
        tuple(map(str, item["passes"])),
        reason.strip(),
        tuple(map(str, configurations)),
        (int(major), int(minor)),
    )


def excluded(exclusions: list[Exclusion], key: Key) -> Exclusion | None:
    """The exclusion that lets this unit fail, if there is one."""
    return next((exclusion for exclusion in exclusions if exclusion.covers(key)), None)


def passing_exclusions(
    exclusions: list[Exclusion], units: Mapping[Key, UnitResult]
) -> list[UnitResult]:
    """The units that are excluded and passed: their lines must leave the list.

    A unit whose samples were limited proves nothing: the failing sample may lie beyond. Neither
    does one without a sample.
    """
    return [
        unit
        for _, unit in sorted(units.items())
        if unit.ok and unit.counted and not unit.truncated and excluded(exclusions, unit.key)
    ]
