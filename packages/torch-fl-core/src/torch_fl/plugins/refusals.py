"""Owns: the sentences of a plugin's record: what is wrong with it, and what to do about it."""

from __future__ import annotations

from collections.abc import Collection

from torch_fl.plugins.declarations import HOST
from torch_fl.plugins.discovery import Candidate
from torch_fl.plugins.hooks import PluginError
from torch_fl.plugins.loaded import LoadedPlugin
from torch_fl.plugins.records import Stage, describe, sentence
from torch_fl.plugins.spec import Detection, Identity

WHY: dict[Stage, str] = {
    "import": "It cannot be imported.",
    "hooks": "It does not have the hooks that it must have.",
    "identity": "It does not say who it is.",
    "api": "It needs another version of the plugin API.",
    "detect": "Looking for its hardware failed.",
    "runtime": "It was chosen, but could not be started.",
}
INSTALL = (
    "Install the plugin of this machine's accelerator, or take host out of FLAGOS_DISABLE_PLUGINS."
)
DOES_NOT_LOOK = "It has no hook torch_fl_detect, so it is used only where FLAGOS_PLUGIN names it."


def importing(candidate: Candidate, error: BaseException) -> str:
    """Importing it raised `error`."""
    said = f"Importing {candidate.reference!r} raised {sentence(describe(error))}"
    if isinstance(error, SystemExit):
        return f"{said} A plugin must not end the process: tell its makers. {_without(candidate)}"
    if isinstance(error, ImportError) and (error.name or "").split(".")[0] == "torch_fl":
        return f"{said} {_other_core(candidate)}"
    return f"{said} Install what it needs, or reinstall {_distribution(candidate)}. " + _without(
        candidate
    )


def half_imported(candidate: Candidate) -> str:
    """Its module is what imports torch_fl, and is not done."""
    return (
        f"{candidate.reference!r} is being imported by this program itself, and imports torch_fl "
        f"before its hooks are defined. Import torch_fl first."
    )


def no_hooks(candidate: Candidate, error: Exception) -> str:
    """Its hooks cannot be collected."""
    said = str(error) if isinstance(error, TypeError) else sentence(describe(error))
    return f"{said} Tell the makers of {_distribution(candidate)}."


def lacks(candidate: Candidate, hook: str, warnings: Collection[str]) -> str:
    """It does not have a hook that every plugin has."""
    known = "".join(f" {warning}" for warning in warnings)
    return (
        f"{candidate.reference!r} has no hook {hook}, which every plugin must have.{known} Tell "
        f"the makers of {_distribution(candidate)}."
    )


def identifying(candidate: Candidate, error: PluginError) -> str:
    """Its torch_fl_identity failed."""
    if isinstance(error.__cause__, TypeError):  # perhaps fields that this core does not have
        return f"{error} {_other_core(candidate)}"
    return f"{error} Tell the makers of {_distribution(candidate)}."


def other_name(candidate: Candidate, identity: Identity) -> str:
    """Its entry point and its identity do not agree."""
    return (
        f"Its entry point is named {candidate.name!r}, but it says that it is {identity.name!r}: "
        f"the two must be the same. Tell the makers of {_distribution(candidate)}."
    )


def api_version(candidate: Candidate, identity: Identity, core: tuple[int, int]) -> str | None:
    """It needs another version of the plugin API; None if it does not."""
    needed = identity.api_version
    if needed[0] == core[0] and needed[1] <= core[1]:
        return None
    upgrade = "torch-fl-core" if needed > core else _distribution(candidate)
    return (
        f"It needs version {needed[0]}.{needed[1]} of the plugin API, but this torch-fl-core has "
        f"{core[0]}.{core[1]}: upgrade {upgrade}."
    )


def hangs(candidate: Candidate, seconds: float, where: str) -> str:
    """Its torch_fl_detect did not come back."""
    return (
        f"torch_fl_detect had not returned after {seconds:g} s, when it was at {where}. It must "
        f"look at device nodes and PCI ids alone, and import nothing: tell the makers of "
        f"{_distribution(candidate)}. {_without(candidate)}"
    )


def detecting(candidate: Candidate, error: PluginError) -> str:
    """Its torch_fl_detect failed."""
    return f"{error} Tell the makers of {_distribution(candidate)}. {_without(candidate)}"


def starting(plugin: LoadedPlugin, error: BaseException | str) -> str:
    """It was chosen, and its runtime could not be had or started."""
    if isinstance(error, PluginError) and isinstance(error.__cause__, ValueError):
        error = error.__cause__  # a setting that the plugin explains itself
    if isinstance(error, str):
        said = error
    elif isinstance(error, ValueError | PluginError) and str(error):
        said = str(error)
    else:
        said = describe(error)
    said = f"The plugin {plugin} cannot be started: {sentence(said)}"
    return said if plugin.name == HOST else f"{said} FLAGOS_PLUGIN={HOST} works without it."


def no_library(library: str, plugin: LoadedPlugin) -> str:
    """The library of its runtime is not there."""
    return f"Its library {library} is not there. Reinstall {plugin.distribution}."


def found(detection: Detection) -> str:
    """Its hardware is here."""
    return sentence(detection.reason) or "Its hardware is here."


def not_found(detection: Detection) -> str:
    """Its hardware is not here."""
    return sentence(f"Its hardware was not found: {detection.reason or 'it gives no reason'}")


def _distribution(candidate: Candidate) -> str:
    return candidate.distribution or repr(candidate.name)


def _without(candidate: Candidate) -> str:
    return f"FLAGOS_DISABLE_PLUGINS={candidate.name} leaves it out."


def _other_core(candidate: Candidate) -> str:
    return (
        f"It was written for another torch-fl-core: upgrade torch-fl-core and "
        f"{_distribution(candidate)} to releases that fit."
    )
