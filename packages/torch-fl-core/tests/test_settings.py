"""Owns: tests of the FLAGOS_* variables: how they are read, and that a misspelt one is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_fl import settings


def test_an_empty_variable_counts_as_not_set() -> None:
    for setting in settings.SETTINGS:
        if isinstance(setting, settings.Setting):
            assert setting.read({}) == setting.read({setting.name: "  "}) == setting.unset


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        (settings.FLAGOS_AUTOLOAD, "0", False),
        (settings.FLAGOS_STRICT, "1", True),
        (settings.FLAGOS_PLUGIN, " host ", "host"),
        (settings.FLAGOS_PLUGINS_ALLOW, "a, b,,c", ("a", "b", "c")),
        (settings.FLAGOS_DISABLE_PLUGINS, "a", ("a",)),
        (settings.FLAGOS_DEVICE_ROOT, "/machine", Path("/machine")),
        (settings.FLAGOS_HOST_DEVICES, "64", 64),
        (settings.FLAGOS_HOST_MEMORY, "1.5 KiB", 1536),
        (settings.FLAGOS_HOST_MEMORY, "2gb", 2 * 10**9),
    ],
)
def test_values(setting: settings.Setting[object], text: str, value: object) -> None:
    assert setting.read({setting.name: text}) == value


@pytest.mark.parametrize(
    ("setting", "text", "says"),
    [
        (settings.FLAGOS_LOG_FALLBACK, "yes", "must be 0 or 1, but is 'yes'"),
        (settings.FLAGOS_HOST_DEVICES, "65", "must be a number from 1 to 64, but is '65'"),
        (settings.FLAGOS_HOST_DEVICES, "²", "must be a number"),
        (settings.FLAGOS_HOST_MEMORY, "2 parsecs", "such as 512MiB or 2GiB, but is '2 parsecs'"),
        (settings.FLAGOS_HOST_MEMORY, "0.1", "must be a size"),
    ],
)
def test_what_cannot_be_understood_is_named(
    setting: settings.Setting[object], text: str, says: str
) -> None:
    with pytest.raises(ValueError, match=f"^{setting.name} must be") as raised:
        setting.read({setting.name: text})
    assert says in str(raised.value)


def test_a_family_gives_what_is_set() -> None:
    variables = {"FLAGOS_OP_mm": " cpu ", "FLAGOS_OP_add__Tensor": "", "FLAGOS_STRICT": "1"}
    assert settings.FLAGOS_OP.read(variables) == {"mm": "cpu"}


def test_variables_that_nobody_reads_are_found_with_the_nearest_name() -> None:
    names = ["FLAGOS_PLUGNI", "FLAGOS_PLUGIN", "FLAGOS_OP_mm", "FLAGOS_ZZ", "PATH"]
    assert settings.undeclared(names) == {"FLAGOS_PLUGNI": "FLAGOS_PLUGIN", "FLAGOS_ZZ": None}
