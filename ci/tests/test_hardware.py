"""Owns: the tests of what carries steps out on a borrowed machine: which are passed by, when they
end, what is kept of them and of other builds, and how it travels."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ci.dev.cli import ROOT

HARDWARE = ROOT / "ci" / "hardware"

LIKE_PYTEST = """
import sys, time, pathlib
print("collected", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("1 failed: \\xe9", flush=True)
    pathlib.Path(sys.argv[1]).write_text("<testsuites/>")
    sys.exit(2)
"""
STUBBORN = """
import signal, subprocess, sys, time, pathlib
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
time.sleep(60)
"""


@pytest.fixture
def hardware(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The scripts' modules; they import each other from their own folder."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(HARDWARE))
    import cuda_all
    import cuda_compile
    import installation
    import results_folder
    import steps

    monkeypatch.setattr(steps, "INTERRUPTED_S", 2.0)
    yield SimpleNamespace(
        all=cuda_all,
        compile=cuda_compile,
        installation=installation,
        folder=results_folder,
        steps=steps,
    )
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == HARDWARE:
            del sys.modules[name]


@pytest.fixture
def visit(hardware: SimpleNamespace, tmp_path: Path) -> Callable[..., Any]:
    """Makes visits with the same folder; `seconds` may still be used by programs."""

    def made(seconds: float = 100.0) -> Any:
        ends = time.monotonic() + hardware.steps.RESERVE_S + seconds
        return hardware.steps.Visit(tmp_path / "out", ends)

    return made


class Counted:
    """A step's action: counts its calls and gives what it was told."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.calls = 0

    def __call__(self, job: Any) -> int:
        self.calls += 1
        job.log().write_text(f"call {self.calls}")
        return self.status


def test_a_second_visit_passes_by_what_has_succeeded(hardware: Any, visit: Any) -> None:
    good, bad, always = Counted(0), Counted(1), Counted(0)
    steps = [
        hardware.steps.Step("good", good),
        hardware.steps.Step("bad", bad),
        hardware.steps.Step("always", always, each_visit=True),
    ]
    for _ in range(2):
        outcomes = hardware.steps.perform_group(visit(), steps)
        assert [outcome.good for outcome in outcomes] == [True, False, True]
    assert (good.calls, bad.calls, always.calls) == (1, 2, 2)
    assert "not repeated" in outcomes[0].said
    folder = visit().steps
    assert (folder / "good.txt").read_text() == "call 1"  # of the visit in which it ran
    assert json.loads((folder / "bad.json").read_text())["status"] == 1


def test_a_signal_and_an_error_are_failures(hardware: Any, visit: Any) -> None:
    def mistaken(job: Any) -> int:
        raise ValueError("a mistake")

    step = hardware.steps.Step
    found = [
        hardware.steps.perform(visit(), step("died", Counted(-11))),
        hardware.steps.perform(visit(), step("mistaken", mistaken)),
    ]
    assert [outcome.good for outcome in found] == [False, False]
    assert "a mistake" in found[1].said
    again = Counted(0)
    assert hardware.steps.perform(visit(), step("died", again)).good
    assert again.calls == 1
    fine = step("fine", Counted(0), each_visit=True)
    facts = hardware.steps.Visit(visit().output, visit().ends, facts={"build": "a"})
    assert hardware.all.carry_out(facts, fine, [[step("signalled", Counted(-9))]]) == 1
    assert hardware.all.carry_out(facts, fine, [[step("good", Counted(0))]]) == 0


@pytest.mark.parametrize("text", ['{"status": 0', "", "[]", "\xff"])
def test_a_record_cut_short_is_none(hardware: Any, visit: Any, text: str) -> None:
    file = visit().steps / "half.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode("latin-1"))
    again = Counted(0)
    assert hardware.steps.perform(visit(), hardware.steps.Step("half", again)).good
    assert again.calls == 1
    assert not list(file.parent.glob("*.new"))


def test_nothing_is_started_at_the_end(hardware: Any, visit: Any) -> None:
    late = Counted(0)
    outcome = hardware.steps.perform(visit(10.0), hardware.steps.Step("late", late))
    assert (outcome.good, late.calls) == (False, 0)
    assert "no time" in outcome.said
    assert not (visit().steps / "late.json").exists()


def test_what_runs_at_the_end_is_interrupted_and_says_what_it_has(
    hardware: Any, visit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware.steps, "LEAST_S", 0.5)
    report = tmp_path / "report.xml"
    statuses = []

    def act(job: Any) -> int:
        statuses.append(job.run(sys.executable, "-c", LIKE_PYTEST, str(report)))
        return int(statuses[0])

    began = time.monotonic()
    outcome = hardware.steps.perform(visit(1.5), hardware.steps.Step("tests", act))
    assert time.monotonic() - began < 20
    assert (outcome.good, statuses) == (False, [hardware.steps.TIMED_OUT])
    assert report.read_text() == "<testsuites/>"
    assert "1 failed" in outcome.said
    assert "1 failed" in (visit().steps / "tests.txt").read_text(errors="replace")


def test_what_does_not_end_is_killed_with_all_that_it_started(
    hardware: Any, visit: Any, tmp_path: Path
) -> None:
    (visit().steps).mkdir(parents=True)
    job = hardware.steps.Job(visit(), "stubborn")
    file = tmp_path / "pid"
    assert job.run(sys.executable, "-c", STUBBORN, str(file), most=2.0) == 124
    child = int(file.read_text())
    for _ in range(100):
        if not _runs(child):
            return
        time.sleep(0.05)
    raise AssertionError("its child goes on")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def _fill(output: Path, *names: str) -> None:
    for name in names:
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text(name)


OURS = ("flagos.jsonl", "graphs-flagos-1.jsonl", "steps/tests.json", "cuda/record.json")
OTHERS = ("native-2.jsonl", "graphs-cuda-1.jsonl", "performance.json", "core.whl")
OTHERS += ("steps/native-2.json", "steps/install.txt")


def test_results_of_another_build_are_put_aside(hardware: Any, tmp_path: Path) -> None:
    put_aside = hardware.folder.put_aside
    assert put_aside(tmp_path, "one") is None
    _fill(tmp_path, *OURS, *OTHERS)
    assert put_aside(tmp_path, "one") is None
    assert all((tmp_path / name).exists() for name in (*OURS, *OTHERS))
    old = put_aside(tmp_path, "two")
    assert old == tmp_path / "old-one"
    assert all((old / name).exists() and not (tmp_path / name).exists() for name in OURS)
    assert all((tmp_path / name).exists() and not (old / name).exists() for name in OTHERS)
    # Back to the first: what it had before stays.
    _fill(tmp_path, "flagos.jsonl")
    assert put_aside(tmp_path, "one") == tmp_path / "old-two"
    _fill(tmp_path, "flagos.jsonl")
    assert put_aside(tmp_path, "two") == tmp_path / "old-one-2"


def test_a_visit_installs_first_and_repeats_the_steps_of_another_build(
    hardware: Any, visit: Any
) -> None:
    installed = Counted(0)
    mine, native = Counted(0), Counted(0)
    group = [hardware.steps.Step("tests", mine), hardware.steps.Step("native", native)]
    install = hardware.steps.Step("install", installed, each_visit=True)
    for build in ("one", "one", "two"):
        now = visit()
        now.facts["build"] = build
        assert hardware.all.carry_out(now, install, [group]) == 0
    assert (installed.calls, mine.calls, native.calls) == (3, 2, 1)
    assert json.loads((now.steps / "tests.json").read_text())["build"] == "two"
    installed.status = 1
    assert hardware.all.carry_out(visit(), install, [group]) == 1


def test_all_is_packed_in_one_file(
    hardware: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    _fill(output, "a/b/c/deep.json", "old.whl", "old.whl.sources", "new.whl", "old-one/x.jsonl")
    began = time.time()
    for old in ("old.whl", "old.whl.sources"):
        os.utime(output / old, (began - 100, began - 100))
    os.utime(output / "new.whl", (began + 100, began + 100))
    package = output / "results.tar.gz"  # even there

    def names() -> list[str]:
        hardware.folder.pack(output, package, began)
        with tarfile.open(package) as archive:
            return sorted(info.name for info in archive if info.isfile())

    assert names() == names() == ["a/b/c/deep.json", "new.whl", "old-one/x.jsonl"]
    monkeypatch.setattr(hardware.folder, "LIMIT", 10)
    assert names() == ["a/b/c/deep.json", "new.whl"]
    assert not list(output.glob("*.new"))


def test_the_command_packs_whatever_happens(
    hardware: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(job: Any, wheel: Path | None, *, plugin: bool) -> int:
        assert wheel is None
        assert plugin
        job.log().write_text("it cannot be built")
        return -11

    monkeypatch.setattr(hardware.installation, "install", broken)
    package = tmp_path / "back" / "results.tar.gz"
    words = [str(tmp_path / "out"), "checks", "figures", "--pack", str(package)]
    assert hardware.all.main(words) == 1
    with tarfile.open(package) as archive:
        assert "steps/install.txt" in archive.getnames()
    with pytest.raises(SystemExit):
        hardware.all.main([*words, "--wheel", str(tmp_path / "none.whl")])


def test_results_are_kept_after_each_group(hardware: Any, tmp_path: Path) -> None:
    kept: list[list[str]] = []
    visit = hardware.steps.Visit(tmp_path, time.monotonic() + 100, facts={"build": "one"})

    def step(name: str) -> Any:
        return hardware.steps.Step(name, lambda job: 0)

    def keep() -> None:
        kept.append(sorted(path.name for path in visit.steps.glob("*.json")))

    groups = [[step("first"), step("second")], [step("third")]]
    assert hardware.all.carry_out(visit, step("install"), groups, keep) == 0
    assert kept == [
        ["first.json", "install.json", "second.json"],
        ["first.json", "install.json", "second.json", "third.json"],
    ]


def test_parts_are_made_of_steps(hardware: Any) -> None:
    named = {name for groups in hardware.all.PARTS.values() for group in groups for name in group}
    assert named == set(hardware.all.STEPS)
    assert not named & set(hardware.all.PARTS)
    each = {step.name for step in hardware.all.STEPS.values() if step.each_visit}
    assert each == {"compared", "graphs", "lists-compared", "operators-compared"}


def test_a_wheel_of_other_sources_is_told(
    hardware: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, wheel = tmp_path / "src", tmp_path / "core.whl"
    monkeypatch.setattr(hardware.installation, "SOURCES", sources)
    _fill(sources, "torch_fl/a.py", "torch_fl/b.py")
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in sources.rglob("*.py"):
            archive.write(path, path.relative_to(sources).as_posix())
        archive.writestr("torch_fl/_build.py", "made by the build")
    assert hardware.installation.differences(wheel) == []
    (sources / "torch_fl/a.py").write_text("other")
    (sources / "torch_fl/b.py").rename(sources / "torch_fl/c.py")
    found = hardware.installation.differences(wheel)
    assert found == ["torch_fl/a.py", "torch_fl/b.py", "torch_fl/c.py"]
    digest = tmp_path / "core.whl.sources"
    digest.write_text(hardware.installation.compiled_digest())
    assert hardware.installation.differences(wheel) == found
    digest.write_text("other")
    assert hardware.installation.differences(wheel) == [*found, "what is compiled"]


@pytest.mark.parametrize(
    ("endings", "status", "runs"),
    [
        ([(-11, True), (3, True), (1, True)], 0, 3),  # it died, the device was lost, it is complete
        ([(-11, True), (-11, False)], -11, 2),  # no graph more: it would go on for ever
        ([(124, True)], 124, 1),
        ([(1, False)], 1, 1),  # it did not come to the first graph
    ],
)
def test_the_smoke_set_goes_on_in_new_processes(
    hardware: Any, tmp_path: Path, endings: list[tuple[int, bool]], status: int, runs: int
) -> None:
    left = list(endings)

    def run(*words: str, **_: Any) -> int:
        file = Path(words[words.index("--json") + 1])
        ended, grew = left.pop(0)
        if grew:
            with file.open("a") as stream:
                stream.write("a line\n")
        return ended

    job = SimpleNamespace(output=tmp_path, run=run)
    assert hardware.compile._shard(job, "cuda", 1) == status
    assert len(endings) - len(left) == runs
