"""Owns: tests of whole programs, natively and on flagos, in processes of their own.

What a comparison sees of two results is in test_programs_comparison.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, ClassVar

import faulty_programs
import pytest

from torch_fl.testing.programs import __main__ as command
from torch_fl.testing.programs import child, registry, settings
from torch_fl.testing.programs.compare import Outcome, Verdict
from torch_fl.testing.programs.known import ON_HOST, expected
from torch_fl.testing.programs.registry import Program
from torch_fl.testing.programs.running import Request, RequestError, Result, native_of, run
from torch_fl.testing.programs.side import Side, StartError

if TYPE_CHECKING:
    from pathlib import Path

_FIRST = "import faulty_programs\nfaulty_programs.register()\n"
_WITH_WRONG_KERNELS = f"{_FIRST}faulty_programs.make_kernels_wrong()\n"
_REAL = (
    "indexing.counting",
    "random_numbers.samplers_in_place",
    "recurrent.gru",
    "streams.side_streams",
    "vision.channels_last",
    "norms.activations",
)
_SEEN = ("random_numbers.samplers_in_place", "vision.channels_last", "norms.activations")


_ON_ONE_SIDE = ("ends", "hangs", "leaves_a_setting")


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Result]:
    """One run of programs of all sorts, with kernels that are wrong on flagos."""
    known = registry.load()
    faulty = [item for name, item in faulty_programs.ALL.items() if name not in _ON_ONE_SIDE]
    programs = [*faulty, *(known[name] for name in _REAL)]
    results = run(Request(programs, plugin="host", first=_WITH_WRONG_KERNELS))
    assert [result.program for result in results] == [program.name for program in programs]
    return {result.program.removeprefix("faulty."): result for result in results}


@pytest.mark.parametrize(
    ("name", "outcome", "detail"),
    [
        ("fine", "equal", "^$"),
        ("ends_on_flagos", "raises differently", "on flagos crashed signal 6;.*last words"),
        ("raises", "raises alike", "ValueError: no such thing on DEVICE:0"),
        ("raises_on_flagos", "raises differently", "natively done; .* raised ValueError: not here"),
        ("skipped", "skipped", "nobody has it"),
        ("skipped_on_flagos", "raises differently", "skipped flagos does not have it"),
        ("varies", "varies natively", "natively 6 of 6"),
        ("varies_more_on_flagos", "differs", "natively 6 of 6"),
        ("slightly_off", "close", "values: . of 6 by up to"),
        ("other_names", "differs", "only one side has numbers, values"),
        ("other_strides", "differs", r"values: strides \(3, 1\), on flagos \(1, 2\)"),
        ("other_dtype", "differs", "dtype torch.float32, on flagos torch.float64"),
        ("other_text", "differs", "text: 'two', on flagos 'one'"),
        ("only_on_accelerators", "skipped", "only accelerators"),
        ("of_the_future", "skipped", "it needs torch 99.1"),
    ],
)  # fmt: skip
def test_what_programs_do_is_seen(
    outcomes: dict[str, Result], name: str, outcome: str, detail: str
) -> None:
    result = outcomes[name]
    assert result.outcome == outcome
    assert re.search(detail, result.detail)
    assert result.as_expected == (outcome in ("equal", "skipped", "varies natively"))


def test_programs_after_a_crash_are_run(outcomes: dict[str, Result]) -> None:
    good = outcomes["indexing.counting"]
    assert (good.outcome, good.as_expected, good.worst) == ("equal", True, 0.0)
    assert good.compared == 33
    native_peak, peak = good.peaks
    assert native_peak is None
    assert peak
    assert outcomes["streams.side_streams"].outcome == "equal"


def test_what_is_known_of_the_host_is_expected(outcomes: dict[str, Result]) -> None:
    gru = outcomes["recurrent.gru"]
    assert (gru.outcome, gru.as_expected) == ("close", True)
    assert 0 < gru.worst < 1e-5
    assert "fused cells" in gru.detail


@pytest.mark.parametrize("name", _SEEN)
def test_wrong_kernels_are_seen(outcomes: dict[str, Result], name: str) -> None:
    result = outcomes[name]
    assert (result.outcome, result.as_expected) == ("differs", False)
    assert re.search("strides|exponential|mish", result.detail)


def test_a_process_that_is_no_good_is_replaced(tmp_path: Path) -> None:
    side = Side("cpu", tmp_path / "side", {}, _FIRST)
    try:
        assert side.start()["torch"]
        hung = side.run("faulty.hangs", "cpu", 1.0)
        assert hung.status == "timed out"
        assert re.search(r"after 1 s; .*faulty_programs.py.* in hangs", hung.text)
        left = side.run("faulty.leaves_a_setting", "cpu", 60.0)
        assert (left.status, left.results) == ("raised", {})
        assert "the program left the default dtype changed" in left.text
        fine = side.run("faulty.fine", "cpu", 60.0)
        assert (fine.status, fine.results["text"]) == ("done", {"text": "on DEVICE"})
        assert fine.results["values"]["about"]["dtype"] == "torch.float32"
        ended = side.run("faulty.ends", "cpu", 60.0)
        assert (ended.status, ended.text) == ("crashed", "exit status 3; nothing printed")
    finally:
        side.close()


def test_a_side_that_does_not_start_is_no_programs_fault(tmp_path: Path) -> None:
    side = Side("flagos", tmp_path / "side", {"FLAGOS_PLUGIN": "no-such-backend"})
    with pytest.raises(StartError, match=r"exit status 1;.*no-such-backend"):
        side.start()


def test_a_backend_is_compared_with_what_it_stands_on() -> None:
    said = {"target": "cpu", "plugin": "host"}
    assert native_of(Request([]), said) == native_of(Request([], native="cpu"), said) == "cpu"
    with pytest.raises(RequestError, match="flagos stands on 'cpu' here, by the backend 'host'"):
        native_of(Request([], native="cuda"), said)
    with pytest.raises(RequestError, match="has kernels of its own and no native device"):
        native_of(Request([]), {"target": None, "plugin": "other"})


class _NoChildren:
    """In the place of the processes: every program comes out as `outcome` says."""

    outcome = "equal"
    build: ClassVar = {"build": "1", "plugin": "host", "plugin_version": "2", "native": "cpu",
                       "device": "a", "torch": "3", "python": "4", "machine": "b"}  # fmt: skip

    def __init__(self, request: Request, folder: Path) -> None:
        assert folder.is_dir()

    def compare(self, program: Program) -> Result:
        fine = self.outcome == "equal"
        return Result(program.name, self.outcome, fine, "why", 0.5, 3, (0.1, 0.2), (100, 150))

    def close(self) -> None:
        """Nothing to end."""


def test_outcomes_are_kept_and_not_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch_fl.testing.programs.running._Sides", _NoChildren)
    file = tmp_path / "new" / "programs.json"

    def said(*options: str) -> tuple[int, str]:
        status = command.main(["--json", str(file), *options])
        return status, capsys.readouterr().out

    monkeypatch.setattr(_NoChildren, "outcome", "differs")
    status, text = said("--select", "losses.ctc")
    assert status == 1
    assert "1 programs to run" in text
    assert re.search(r"losses.ctc +differs +0.10s +0.20s +1.50  <--\n    why\n", text)
    assert text.endswith("1 programs: 1 differs\nnot as they should be: losses.ctc\n")

    monkeypatch.setattr(_NoChildren, "outcome", "equal")
    status, text = said("--select", "losses.ctc*")
    assert status == 1
    assert "1 programs to run" in text
    assert text.endswith("2 programs: 1 differs, 1 equal\nnot as they should be: losses.ctc\n")

    status, text = said("--select", "losses.ctc*", "--again")
    assert (status, text.endswith("2 programs: 2 equal\n")) == (0, True)

    data = json.loads(file.read_text())
    assert list(data["builds"].values()) == [_NoChildren.build]
    kept = data["programs"]["losses.ctc"]
    assert (kept["outcome"], kept["peaks"], kept["compared"]) == ("equal", [100, 150], 3)


def test_the_command_refuses_what_makes_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--select", "vision.*", "no.such"]) == 2
    assert "no program matches 'no.such'" in capsys.readouterr().err
    (tmp_path / "file").write_text("[]")
    assert command.main(["--json", str(tmp_path / "file"), "--select", "losses.*"]) == 2
    assert "is no record of programs" in capsys.readouterr().err


def test_programs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list", "--select", "graphs.*", "vision.*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "graphs.forward  (accelerators only)" in lines
    assert "vision.conv_net" in lines
    assert not any(line.startswith("losses") for line in lines)


def test_every_program_says_what_it_is() -> None:
    programs = registry.load()
    assert len(programs) > 140
    assert all(program.function.__doc__ for program in programs.values())
    assert programs.keys() >= ON_HOST.keys()
    assert not any(programs[name].accelerator for name in ON_HOST)


def test_what_is_known_may_not_come_out_otherwise() -> None:
    name, known = next(iter(ON_HOST.items()))
    assert expected(name, "cpu", Verdict(known.outcome)) == (True, known.reason)
    assert not expected(name, "cpu", Verdict(Outcome.EQUAL))[0]
    assert not expected(name, "cuda", Verdict(known.outcome))[0]


def test_devices_have_one_name_in_texts() -> None:
    texts = ("flagos:1 and 'PrivateUse1'", "cuda:1 and 'CUDA'")
    assert {child.neutral(text, "cuda") for text in texts} == {"DEVICE:1 and 'DEVICE'"}
    assert (
        child.neutral("softmax_cuda_out, scuda, cudax", "cuda")
        == "softmax_DEVICE_out, scuda, cudax"
    )


def test_settings_that_changed_are_named() -> None:
    before = settings.current_settings()
    assert not settings.changed_settings(before)
    before["gradients"] = not before["gradients"]
    assert settings.changed_settings(before) == ["gradients"]


def test_requirements() -> None:
    program = Program("x", faulty_programs.fine, accelerator=True, since=(2, 11))
    assert program.missing("cpu")
    assert not program.missing("cuda")


@pytest.mark.slow
def test_all_programs_on_the_host(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch_fl.testing.programs", "--native", "cpu"],
        env={**os.environ, "FLAGOS_PLUGIN": "host"},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
