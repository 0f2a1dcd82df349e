"""Owns: tests that each broken plugin is one record with its own sentence, and harms nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from choices import choose
from throwaway import Shelf

# plugin: stage, what the error says
BROKEN = {
    "noimport": ("import", r"ModuleNotFoundError.*a_module_that_is_not_there.*reinstall torch-fl"),
    "newcore": ("import", r"ImportError.*Telepathy.*another torch-fl-core: upgrade"),
    "exits": ("import", r"SystemExit: 3.*must not end the process"),
    "nosdk": ("import", r"OSError: libaccelerator-sdk\.so\.7.*Install what it needs"),
    "noattribute": ("import", r"AttributeError.*'plugin'"),
    "syntax": ("import", r"SyntaxError"),
    "bare": ("hooks", r"has no hook torch_fl_identity, which every plugin must have"),
    "unmarked": ("hooks", r"torch_fl_identity is not marked with @hookimpl"),
    "noruntime": ("hooks", r"no hook torch_fl_runtime.*torch_fl_run is not a hook.*did you mean"),
    "aclass": ("hooks", r"names a class: it must name a module"),
    "misnamed": ("identity", r"'misnamed', but it says that it is 'other'"),
    "liar": ("identity", r"torch_fl_identity.*TypeError"),
    "newfield": ("identity", r"colour.*upgrade torch-fl-core and torch-fl-newfield"),
    "future": ("api", r"needs version 2\.0.*has 1\.\d+: upgrade torch-fl-core\."),
    "newer": ("api", r"needs version 1\.9.*upgrade torch-fl-core\."),
    "past": ("api", r"needs version 0\.3.*upgrade torch-fl-past\."),
    "raises": ("detect", r"torch_fl_detect.*raised OSError: the bus is on fire"),
    "quits": ("detect", r"torch_fl_detect.*raised SystemExit: 4"),
    "hangs": ("detect", r"not returned after 1 s, when it was at .*torch_fl_hangs\.py:\d+"),
    "odd": ("detect", r"returned an object of type bool, but must return Detection"),
}

# What is wrong with these was seen by the core, not raised.
NO_EXCEPTION = ("bare", "unmarked", "noruntime", "misnamed", "hangs")


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_is_one_record_and_the_host_is_used(shelf: Shelf, name: str) -> None:
    chosen = choose(shelf, name)
    stage, error = BROKEN[name]
    record = chosen.record(name)
    assert (chosen.plugin, chosen.error) == ("host", None)
    assert record["stage"] == stage
    assert re.search(error, record["error"]), record["error"]
    assert record["distribution"] == f"torch-fl-{name}"
    assert record["version"] == ("7.2" if name == "future" else "1.0")
    assert record["why"].endswith(".")
    assert record["error"].endswith((".", "?"))
    assert (record["traceback"] is None) == (stage == "api" or name in NO_EXCEPTION)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_does_not_hide_a_good_one(shelf: Shelf, name: str) -> None:
    chosen = choose(shelf, name, "good")
    assert (chosen.plugin, chosen.error) == ("good", None)
    assert chosen.record(name)["error"]


@pytest.mark.parametrize("name", [n for n, (stage, _) in BROKEN.items() if stage != "detect"])
def test_naming_a_broken_plugin_says_what_is_wrong_with_it(shelf: Shelf, name: str) -> None:
    chosen = choose(shelf, name, "absent", FLAGOS_PLUGIN=name)
    assert chosen.plugin is None
    assert chosen.runtime is None
    assert chosen.error is not None
    assert chosen.error.startswith(f"FLAGOS_PLUGIN is {name!r}, but that plugin cannot be used: ")
    assert re.search(BROKEN[name][1], chosen.error), chosen.error
    assert "absent (Its hardware was not found: No /dev/never here)" in chosen.error


@pytest.mark.parametrize("name", ["raises", "hangs", "absent", "nodetect"])
def test_naming_a_plugin_overrules_its_detection(shelf: Shelf, name: str) -> None:
    chosen = choose(shelf, name, FLAGOS_PLUGIN=name)
    assert (chosen.plugin, chosen.error) == (name, None)
    record = chosen.record(name)
    assert (record["stage"], record["error"]) == ("chosen", None)
    assert len(record["warnings"]) == 1


def test_a_good_plugin_says_who_it_is_and_what_it_found(shelf: Shelf) -> None:
    chosen = choose(shelf, "good")
    record = chosen.record("good")
    assert chosen.runtime == "HostRuntime(devices=2, memory_limit=0, guard=False)"
    assert record["stage"] == "chosen"
    assert record["title"] == "Good accelerators"
    assert record["detection"] == {
        "found": True,
        "exact": True,
        "devices": 2,
        "reason": "Two are here.",
    }
    assert record["ms"] > 0
    assert (record["error"], record["warnings"], record["traceback"]) == (None, [], None)
    assert chosen.record("host")["stage"] == "candidate"


def test_an_unknown_hook_is_a_warning(shelf: Shelf) -> None:
    chosen = choose(shelf, "unknown")
    assert chosen.plugin == "unknown"
    (warning,) = chosen.record("unknown")["warnings"]
    assert warning == (
        "torch_fl_rutime is not a hook of this torch-fl-core and is ignored: did you mean "
        "torch_fl_runtime?"
    )


def test_parameters_of_a_newer_core_get_their_default_or_none(shelf: Shelf) -> None:
    chosen = choose(shelf, "extra")
    assert chosen.plugin == "extra"
    limits, depth = chosen.record("extra")["warnings"]
    assert "'limits', which this torch-fl-core does not know: it gets None" in limits
    assert "'depth', which this torch-fl-core does not know: it gets its default" in depth


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (
            "nolib",
            "Its library /nowhere/libnolib_runtime.so is not there. Reinstall torch-fl-nolib.",
        ),
        ("badsetting", "'badsetting' (torch-fl-badsetting 1.0) cannot be started: SIZE must be"),
        ("badruntime", "returned an object of type str, but must return HostRuntime or Delegate"),
    ],
)
def test_a_runtime_that_cannot_start_is_the_selections_error(
    shelf: Shelf, name: str, error: str
) -> None:
    chosen = choose(shelf, name)
    assert (chosen.plugin, chosen.runtime) == (name, None)
    assert chosen.error is not None
    assert error in chosen.error
    assert chosen.error.endswith("FLAGOS_PLUGIN=host works without it.")
    record = chosen.record(name)
    assert (record["stage"], record["error"]) == ("runtime", chosen.error)


def test_two_distributions_with_one_plugin_name_are_both_refused(shelf: Shelf) -> None:
    chosen = choose(shelf, "first-same", "second-same")
    assert chosen.plugin == "host"
    records = [record for record in chosen.records if record["name"] == "same"]
    assert {record["distribution"] for record in records} == {"first-same", "second-same"}
    for record in records:
        assert record["stage"] == "metadata"
        assert "first-same 1.1 and second-same 2.2 each bring a plugin 'same'" in record["error"]
    assert not [name for name in chosen.imported if "same" in name]
    named = choose(shelf, "first-same", "second-same", FLAGOS_PLUGIN="same")
    assert named.plugin is None
    assert named.error is not None
    assert "first-same 1.1 and second-same 2.2" in named.error


def test_nobody_else_is_the_host(shelf: Shelf) -> None:
    chosen = choose(shelf, "false-host")
    assert chosen.plugin == "host"
    false, real = sorted(chosen.records, key=lambda record: str(record["distribution"]))
    assert (false["distribution"], false["stage"]) == ("false-host", "metadata")
    assert "uninstall false-host" in false["error"]
    assert (real["distribution"], real["stage"]) == ("torch-fl-core", "chosen")


def test_a_distribution_that_cannot_be_read_is_a_record(shelf: Shelf) -> None:
    site = Path(shelf.site("good"))
    info = site / "torch_fl_garbled-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-fl-garbled\nVersion: 1.0\n")
    (info / "entry_points.txt").write_bytes(b"[torch_fl.plugins]\ngarbled = \xff\n")
    chosen = choose(shelf, path=str(site))
    assert chosen.plugin == "good"
    record = chosen.record("torch-fl-garbled")
    assert (record["stage"], record["version"]) == ("metadata", "1.0")
    assert "UnicodeDecodeError" in record["error"]
    assert record["error"].endswith("Reinstall torch-fl-garbled.")


def test_of_a_distribution_that_is_there_twice_the_first_counts(shelf: Shelf) -> None:
    path = f"{shelf.site('good')}:{shelf.site('good', 'absent')}"
    chosen = choose(shelf, path=path)
    assert chosen.plugin == "good"
    assert chosen.record("good")["stage"] == "chosen"


def test_all_of_them_at_once(shelf: Shelf) -> None:
    """Every broken plugin in one process: as many records, and the good one is used."""
    chosen = choose(shelf, *BROKEN, "first-same", "second-same", "false-host", "good")
    assert chosen.plugin == "good"
    assert len(chosen.records) == len(BROKEN) + 5
    assert len({record["error"] for record in chosen.records if record["error"]}) == (
        len(BROKEN) + 2
    )
