"""Owns: tests of the `torch-fl` command and of `torch-fl demo`, its progress bar included."""

from __future__ import annotations

import importlib
import io
import re
import subprocess
import sys
import time

import pytest
import torch
from children import run_child

import torch_fl  # noqa: F401  (makes the device)
from torch_fl.cli import demo
from torch_fl.cli.main import COMMANDS, main
from torch_fl.cli.progress import Progress

LIMIT_S = 60


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torch_fl.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=3 * LIMIT_S,
        check=False,
    )


def _accuracy(text: str) -> float:
    (percent,) = re.findall(r"^accuracy: (\d+\.\d) %$", text, re.MULTILINE)
    return float(percent)


def test_demo_trains_on_flagos_and_shows_what_ran_where() -> None:
    begin = time.monotonic()
    done = run_command("demo")
    seconds = time.monotonic() - begin
    assert done.returncode == 0, done.stdout + done.stderr
    assert _accuracy(done.stdout) >= 97
    assert seconds <= LIMIT_S
    assert re.search(r"^operator +route +calls +device time$", done.stdout, re.MULTILINE)
    assert re.search(r"^aten::\S+ +boxing +\d+ +\d+\.\d+ ms$", done.stdout, re.MULTILINE)
    assert not re.search(r"^aten::\S+ +cpu ", done.stdout, re.MULTILINE)
    assert re.search(r"^device: \S", done.stdout, re.MULTILINE)
    (peak,) = re.findall(r"^peak memory: (\d+\.\d) MiB$", done.stdout, re.MULTILINE)
    assert float(peak) > 1
    assert "Nothing ran on the CPU fallback." in done.stdout
    assert "\r" not in done.stdout


def test_demo_on_the_cpu_leaves_the_table_out_and_says_so() -> None:
    done = run_command("demo", "--device", "cpu", "--epochs", "10", "--seed", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert _accuracy(done.stdout) >= 97
    assert "there is no table for cpu" in done.stdout
    assert "device time" not in done.stdout


def test_demo_fails_with_an_explanation_when_the_goal_is_missed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    threads = torch.get_num_threads()
    assert main(["demo", "--device", "cpu", "--epochs", "1", "--batch-size", "2000"]) == 1
    assert torch.get_num_threads() == threads
    text = capsys.readouterr().out
    assert _accuracy(text) < 97
    assert re.search(r"^FAILED: at least 97 % .* 1 epochs may be too few", text, re.MULTILINE)


def test_demo_fails_when_something_fell_back_to_the_cpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    extension = importlib.import_module("torch_fl.routing.report")._C
    real = extension.observations
    fallen = ("aten::nonzero", "cpu", 4, 1000)
    answers = iter([real, lambda: [*real(), fallen]])
    monkeypatch.setattr(extension, "observations", lambda: next(answers)())
    monkeypatch.setattr(demo, "GOAL", 0.0)
    assert main(["demo", "--epochs", "1"]) == 1
    text = capsys.readouterr().out
    assert "FAILED: ran on the CPU fallback: aten::nonzero (4 calls)" in text
    assert "Nothing ran" not in text


def test_demo_fails_when_no_operator_was_seen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    extension = importlib.import_module("torch_fl.routing.report")._C
    monkeypatch.setattr(extension, "observations", list)
    monkeypatch.setattr(demo, "GOAL", 0.0)
    assert main(["demo", "--epochs", "1"]) == 1
    assert "FAILED: no operator was seen on flagos" in capsys.readouterr().out


def test_missing_scikit_learn_is_named_with_its_remedy() -> None:
    child = run_child(
        """
        import sys
        sys.modules["sklearn"] = None
        from torch_fl.cli.main import main
        sys.exit(main(["demo", "--device", "cpu"]))
        """
    )
    assert child.returncode == 1
    assert "pip install scikit-learn" in child.stderr
    assert "Traceback" not in child.stderr


@pytest.mark.parametrize("device", ["no_such_device", "flagos:99"])
def test_a_device_that_cannot_be_used_is_one_line(
    device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--device", device]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"torch-fl demo: the device '{device}' cannot be used: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["no_such_command"],
        ["demo", "--epochs", "0"],
        ["demo", "--batch-size", "-1"],
        ["demo", "--seed", "-1"],
        ["demo", "--seed", "x"],
        ["demo", "--no-such-option"],
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: torch-fl" in capsys.readouterr().err


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: torch-fl" in capsys.readouterr().err


def test_help_has_every_command_and_its_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for command in COMMANDS:
        assert f"{command.name} " in text
        assert command.summary.split()[0] in text
        with pytest.raises(SystemExit):
            main([command.name, "--help"])
        own = capsys.readouterr().out
        assert all(line in own and what in own for line, what in command.examples)


def test_version() -> None:
    done = run_command("--version")
    assert done.returncode == 0
    assert re.fullmatch(r"torch-fl \d+\.\d+\S*\n", done.stdout)


def test_an_interrupt_is_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", interrupt)
    assert main(["demo"]) == 130
    assert capsys.readouterr().err == "torch-fl demo: interrupted\n"


def test_held_out_digits_are_stratified_and_follow_the_seed() -> None:
    training, held_out = demo.load_digits(seed=1)
    assert training.images.shape[1:] == held_out.images.shape[1:] == (1, 8, 8)
    assert len(training.labels) + len(held_out.labels) == 1797
    everything = torch.bincount(torch.cat([training.labels, held_out.labels]), minlength=10)
    share = torch.bincount(held_out.labels, minlength=10) / everything
    assert (share - demo.HELD_OUT).abs().max() < 0.005
    assert training.images.min() == 0
    assert training.images.max() == 1
    assert torch.equal(demo.load_digits(seed=1)[1].images, held_out.images)
    assert not torch.equal(demo.load_digits(seed=2)[1].images, held_out.images)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _progress(stream: io.StringIO, steps: int = 40) -> str:
    with Progress(steps, stream) as progress:
        for step in range(1, steps + 1):
            progress.update(step, f"step {step}")
    return stream.getvalue()


def test_a_terminal_gets_one_line_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("torch_fl.cli.progress._REDRAW_S", 0.0)
    text = _progress(Terminal())
    assert text.count("\n") == 1
    assert text.endswith("\n")
    drawn = text[:-1].split("\r")[1:]
    assert len(drawn) == 40
    assert drawn[0].startswith("[#    ")
    assert re.fullmatch(r"\[#{30}\] 100%  step 40", drawn[-1])
    lengths = [len(line) for line in drawn]
    assert lengths == sorted(lengths), "a shorter line must cover the longer one before it"


def test_redrawing_is_rare_but_the_end_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("torch_fl.cli.progress._REDRAW_S", 1000.0)
    text = _progress(Terminal(), steps=100)
    assert text.count("\r") <= 2
    assert "100%" in text


def test_a_narrow_terminal_is_not_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("COLUMNS", "20")
    assert max(map(len, _progress(Terminal()).rstrip("\n").split("\r"))) == 19


@pytest.mark.parametrize(("stream", "ci"), [(io.StringIO, ""), (Terminal, "true")])
def test_a_log_gets_plain_lines(
    stream: type[io.StringIO], ci: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    text = _progress(stream())
    assert "\r" not in text
    assert text.splitlines() == [f"{p:3}%  step {p * 40 // 100}" for p in range(10, 101, 10)]


def test_an_exception_leaves_the_cursor_on_a_new_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    stream = Terminal()
    with pytest.raises(KeyError), Progress(10, stream) as progress:  # noqa: PT012
        progress.update(3, "working")
        raise KeyError
    assert stream.getvalue().endswith("working\n")


def test_progress_needs_a_step() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Progress(0)
