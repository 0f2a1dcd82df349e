"""Owns: probing what is installed until there is one plugin to use, with every plugin's record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from torch_fl.plugins import discovery, probing, refusals, rules
from torch_fl.plugins.discovery import Discovery
from torch_fl.plugins.loaded import LoadedPlugin
from torch_fl.plugins.machine import Machine
from torch_fl.plugins.probing import Probed
from torch_fl.plugins.records import Record

_NAMED = "FLAGOS_PLUGIN names it."


class Chosen(NamedTuple):
    """`plugin` and `why`, or an `error`; and the records of all plugins that are installed."""

    plugin: LoadedPlugin | None
    why: str
    error: str | None
    records: tuple[Record, ...]


def by_name(wanted: str, installed: Discovery, machine: Machine) -> Chosen:
    """The plugin `wanted` and no other. The others are imported only to say what else there is."""
    candidate = next((each for each in installed.candidates if each.name == wanted), None)
    others = [each for each in installed.candidates if each is not candidate]
    records = list(installed.records)
    if candidate is not None:
        probed = probing.probe(candidate, machine)
        if probed.plugin is not None:
            why = f"FLAGOS_PLUGIN names {wanted!r}, so it is not imported."
            records += [replace(each.record(), stage="skipped", why=why) for each in others]
            return Chosen(probed.plugin, _NAMED, None, (_named(probed), *records))
        records.insert(0, probed.record)
    records += [probing.probe(each, machine).record for each in others]
    problems = [record.error or record.why for record in records if record.name == wanted]
    if problems:
        error = f"FLAGOS_PLUGIN is {wanted!r}, but that plugin cannot be used: {problems[0]}"
    else:
        missing = discovery.not_installed(wanted, installed.names)
        error = f"FLAGOS_PLUGIN is {wanted!r}, {missing}"
    listed = _listed("What else there is:", (each for each in records if each.name != wanted))
    return Chosen(None, "", f"{error}{listed}", tuple(records))


def by_hardware(installed: Discovery, machine: Machine) -> Chosen:
    """The plugin whose hardware is in the machine, else the host."""
    probed = [probing.probe(candidate, machine) for candidate in installed.candidates]
    found = [each.plugin for each in probed if each.plugin is not None and each.found]
    if not found:
        records = (*(each.record for each in probed), *installed.records)
        listed = _listed("What there is:", records)
        error = f"No plugin fits this machine, and the host plugin is disabled.{listed}"
        return Chosen(None, "", f"{error} {refusals.INSTALL}", records)
    choice = rules.choose(found)
    records = (*(_judged(each.record, choice) for each in probed), *installed.records)
    return Chosen(choice.plugin, choice.why, choice.error, records)


def _named(probed: Probed) -> Record:
    """What was doubtful about the hardware is a warning: who names a plugin may know better."""
    record = probed.record
    doubts = () if probed.found else (record.error or record.why,)
    warnings = (*record.warnings, *doubts)
    return replace(
        record, stage="chosen", why=_NAMED, error=None, traceback=None, warnings=warnings
    )


def _judged(record: Record, choice: rules.Choice) -> Record:
    if choice.plugin is not None and record.name == choice.plugin.name:
        return replace(record, stage="chosen", why=choice.why)
    if record.name in choice.others:
        return replace(record, stage="candidate", why=choice.others[record.name])
    return record


def _listed(title: str, records: Iterable[Record]) -> str:
    reasons = [f"{each.name} ({(each.error or each.why).rstrip('.')})" for each in records]
    return f" {title} {'; '.join(reasons)}." if reasons else ""
