"""Owns: tests of which plugin is chosen: by its hardware, by the rules, by name, under settings."""

from __future__ import annotations

import pytest
from choices import choose
from throwaway import Shelf

from torch_fl.plugins import rules
from torch_fl.plugins.hooks import attach
from torch_fl.plugins.loaded import LoadedPlugin
from torch_fl.plugins.spec import Detection, Identity


def test_with_nothing_installed_it_is_the_host(shelf: Shelf) -> None:
    chosen = choose(shelf)
    assert (chosen.plugin, chosen.error, chosen.notes) == ("host", None, [])
    assert chosen.why == "No other plugin fits this machine."
    (record,) = chosen.records
    assert (record["name"], record["distribution"]) == ("host", "torch-fl-core")


def test_hardware_that_is_not_here_leaves_the_host(shelf: Shelf) -> None:
    chosen = choose(shelf, "absent", "nodetect")
    assert chosen.plugin == "host"
    absent, nodetect = chosen.record("absent"), chosen.record("nodetect")
    assert (absent["stage"], absent["error"]) == ("detect", None)
    assert absent["why"] == "Its hardware was not found: No /dev/never here."
    assert (nodetect["stage"], nodetect["error"]) == ("detect", None)
    assert "only where FLAGOS_PLUGIN names it" in nodetect["why"]


@pytest.mark.parametrize(
    ("installed", "winner", "why", "lost"),
    [
        (("weak",), "weak", "no other plugin's is", {"host": "only where no other plugin fits"}),
        (("good", "weak"), "good", "exactly", {"weak": "not exactly, as 'good' does"}),
        (("good", "heir"), "heir", "supersedes 'good'", {"good": "superseded where 'heir' fits"}),
        (("good", "heir", "rival"), "rival", "supersedes", {"good": "", "heir": ""}),
        (("good", "keen"), "keen", "higher than that of 'good'", {"good": "lower than that of"}),
        (("heir", "weak", "absent"), "heir", "exactly", {"weak": "'heir'"}),
    ],
)
def test_the_rules_choose(
    shelf: Shelf, installed: tuple[str, ...], winner: str, why: str, lost: dict[str, str]
) -> None:
    chosen = choose(shelf, *installed)
    assert (chosen.plugin, chosen.error) == (winner, None)
    assert why in chosen.why
    assert chosen.record(winner)["why"] == chosen.why
    assert chosen.record(winner)["stage"] == "chosen"
    for name, reason in lost.items():
        assert chosen.record(name)["stage"] == "candidate"
        assert reason in chosen.record(name)["why"]


def test_a_tie_is_an_error_that_names_both_and_the_way_out(shelf: Shelf) -> None:
    chosen = choose(shelf, "good", "twin", "weak")
    assert (chosen.plugin, chosen.runtime) == (None, None)
    assert chosen.error == (
        "These plugins fit this machine equally well: 'good' (torch-fl-good 1.0) and 'twin' "
        "(torch-fl-twin 1.0). Set FLAGOS_PLUGIN=good or FLAGOS_PLUGIN=twin to choose one."
    )
    assert chosen.record("twin")["stage"] == "candidate"
    assert choose(shelf, "good", "twin", FLAGOS_PLUGIN="twin").plugin == "twin"


def test_a_named_plugin_is_the_only_one_imported(shelf: Shelf) -> None:
    chosen = choose(shelf, "good", "exits", FLAGOS_PLUGIN=" good ")
    assert (chosen.plugin, chosen.why) == ("good", "FLAGOS_PLUGIN names it.")
    assert chosen.imported == ["torch_fl_good"]
    assert chosen.record("exits")["stage"] == "skipped"
    assert choose(shelf, "good", FLAGOS_PLUGIN="host").imported == []


def test_naming_a_plugin_that_is_not_installed_says_what_is(shelf: Shelf) -> None:
    chosen = choose(shelf, "good", "absent", "noimport", FLAGOS_PLUGIN="Goood")
    assert chosen.plugin is None
    assert chosen.error is not None
    assert chosen.error.startswith(
        "FLAGOS_PLUGIN is 'Goood', but no plugin of that name is installed. Did you mean 'good'? "
        "What else there is: "
    )
    for part in ("good (Two are here", "absent (Its hardware was not", "noimport (Importing"):
        assert part in chosen.error


def test_the_allow_list_keeps_others_from_being_imported(shelf: Shelf) -> None:
    chosen = choose(shelf, "good", "exits", "keen", FLAGOS_PLUGINS_ALLOW="good, goood")
    assert chosen.plugin == "good"
    assert chosen.imported == ["torch_fl_good"]
    assert chosen.record("exits")["stage"] == "skipped"
    assert "FLAGOS_PLUGINS_ALLOW does not name it" in chosen.record("keen")["why"]
    assert chosen.notes == [
        "FLAGOS_PLUGINS_ALLOW names 'goood', but no plugin of that name is installed. Did you mean "
        "'good'?"
    ]


def test_disabled_plugins_are_not_imported(shelf: Shelf) -> None:
    chosen = choose(shelf, "good", "exits", FLAGOS_DISABLE_PLUGINS="good,exits,zzz")
    assert (chosen.plugin, chosen.imported) == ("host", [])
    assert "FLAGOS_DISABLE_PLUGINS names it" in chosen.record("good")["why"]
    assert chosen.notes == [
        "FLAGOS_DISABLE_PLUGINS names 'zzz', but no plugin of that name is installed."
    ]
    named = choose(shelf, "good", FLAGOS_DISABLE_PLUGINS="good", FLAGOS_PLUGIN="good")
    assert named.plugin is None
    assert "FLAGOS_DISABLE_PLUGINS names it" in str(named.error)


def test_without_the_host_nothing_fitting_is_an_error(shelf: Shelf) -> None:
    chosen = choose(shelf, "absent", FLAGOS_DISABLE_PLUGINS="host")
    assert chosen.plugin is None
    assert chosen.error is not None
    assert chosen.error.startswith("No plugin fits this machine, and the host plugin is disabled.")
    assert "absent (Its hardware was not found: No /dev/never here)" in chosen.error
    assert choose(shelf, "good", FLAGOS_DISABLE_PLUGINS="host").plugin == "good"


def test_a_hosts_setting_that_cannot_be_understood_is_the_error(shelf: Shelf) -> None:
    chosen = choose(shelf, FLAGOS_HOST_DEVICES="many")
    assert (chosen.plugin, chosen.runtime) == ("host", None)
    assert chosen.error is not None
    assert "FLAGOS_HOST_DEVICES must be a number from 1 to 64, but is 'many'." in chosen.error
    assert "FLAGOS_PLUGIN=host" not in chosen.error


def test_a_device_root_that_is_not_there_is_told(shelf: Shelf) -> None:
    chosen = choose(shelf, root=shelf.folder / "nowhere")
    assert chosen.plugin == "host"
    (note,) = chosen.notes
    assert note.startswith("FLAGOS_DEVICE_ROOT is ")
    assert "not a folder" in note


def _plugin(name: str, *, priority: int = 0, supersedes: tuple[str, ...] = ()) -> LoadedPlugin:
    identity = Identity(name, (1, 0), supersedes=supersedes, priority=priority)
    hooks, _ = attach(name, object())
    return LoadedPlugin(name, None, None, identity, Detection(found=True, exact=True), hooks)


def test_two_that_supersede_each_other_are_left_to_their_priority() -> None:
    one = _plugin("one", supersedes=("two",))
    two = _plugin("two", supersedes=("one",))
    assert rules.choose([one, two]).plugin is None
    keen = _plugin("two", supersedes=("one",), priority=1)
    assert rules.choose([one, keen]).plugin is keen


def test_three_that_tie_are_all_named() -> None:
    choice = rules.choose([_plugin("a"), _plugin("b"), _plugin("c")])
    assert choice.plugin is None
    assert choice.error is not None
    assert "'a' and 'b' and 'c'" in choice.error
