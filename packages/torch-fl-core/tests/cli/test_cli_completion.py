"""Owns: tests of the completion scripts, by the shells themselves where they are installed."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from torch_fl.cli import completion
from torch_fl.cli.main import COMMANDS, main

NAMES = [command.name for command in COMMANDS]


def _bash(*words: str) -> list[str]:
    """What bash offers for the last of these words after `torch-fl`."""
    typed = " ".join(f"'{word}'" for word in ("torch-fl", *words))
    code = f"""
set -u
{completion.script("bash")}
complete -p torch-fl >/dev/null || exit 1
COMP_WORDS=({typed}) COMP_CWORD={len(words)}
_torch_fl
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ([""], NAMES),
        (["do"], ["doctor"]),
        (["--v"], ["--version"]),
        (["doctor", "--"], ["--help", "--time-limit", "--json"]),
        (["demo", "--device", ""], []),
        (["demo", "--device", "cpu", "--ep"], ["--epochs"]),
        (["routes", "add", "--d"], ["--dtype"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["completion", "f"], ["fish"]),
        (["--help", "pl"], ["plugins"]),
    ],
)
def test_bash(words: list[str], offered: list[str]) -> None:
    assert _bash(*words) == offered


def test_zsh_takes_the_script() -> None:
    if not shutil.which("zsh"):
        pytest.skip("there is no zsh")
    code = f"autoload -U compinit; compinit -D\n{completion.script('zsh')}\nprint $_comps[torch-fl]"
    done = subprocess.run(["zsh", "-fc", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "_torch_fl", "")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("torch-fl do", {"doctor"}),
        ("torch-fl demo --ep", {"--epochs"}),
        ("torch-fl completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_fish(typed: str, offered: set[str]) -> None:
    if not shutil.which("fish"):
        pytest.skip("there is no fish")
    code = f"{completion.script('fish')}\ncomplete -C '{typed}'"
    done = subprocess.run(["fish", "-Nc", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {line.partition("\t")[0] for line in done.stdout.splitlines()} == offered


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_every_option_of_every_command_is_in_the_script(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for words in completion.commands():
        assert words.name in text
        for flag in words.flags:
            assert (flag.lstrip("-") if shell == "fish" else flag) in text


def test_another_shell_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["completion", "tcsh"])
    assert stopped.value.code == 2
    assert "'tcsh'" in capsys.readouterr().err
