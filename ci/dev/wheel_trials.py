"""Owns: trying the wheels as their user does: installed in a second environment, then run.

Each trial raises AssertionError with what it saw. They run in this order and build on each other.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ci.dev.second_environment import Answer, Second
from ci.dev.wheel_file import Wheel

EPOCHS = 10  # of the demo: enough for its own goal
ANSWER = re.compile(r"^answer: (.*)$", re.MULTILINE)


@dataclass
class Trial:
    """The environment, and the folder that everything has to come from."""

    second: Second
    wheels: Path
    before: set[str] = field(default_factory=set)

    @property
    def by_name(self) -> dict[str, Wheel]:
        return {wheel.name: wheel for wheel in map(Wheel, sorted(self.wheels.glob("*.whl")))}


def install(trial: Trial) -> None:
    """`pip install torch-fl` finds the core in the folder and writes our own files alone."""
    trial.before = trial.second.files()
    _good(trial.second.pip("torch-fl", links=[trial.wheels]))
    site = trial.second.site.relative_to(trial.second.folder)
    allowed = ["venv/bin/torch-fl"]
    for name in ("torch-fl", "torch-fl-core"):
        wheel = trial.by_name[name]
        allowed += [f"{site}/{file}" for file in wheel.files]
        allowed += [f"{site}/{wheel.info}/{file}" for file in ("INSTALLER", "REQUESTED")]
    strange = sorted(trial.second.files() - trial.before - set(allowed))
    assert not strange, f"the installation wrote {', '.join(strange)}"


def extras(trial: Trial) -> None:
    """Each extra asks for its wheels by name and gets them, or stand-ins where there are none."""
    stand_ins = trial.second.folder / "stand-ins"
    stand_ins.mkdir()
    wanted = trial.by_name["torch-fl"].extras()
    for extra, names in wanted.items():
        for name in sorted(set(names) - set(trial.by_name)):
            without = trial.second.pip(f"torch-fl[{extra}]", links=[trial.wheels])
            assert without.status, f"[{extra}] does without {name}: {without.text}"
            assert name in without.text, without.text
            stand_in(stand_ins, name, _lowest(names[name]))
    every = f"torch-fl[{','.join(wanted)}]"
    _good(trial.second.pip(every, links=[trial.wheels, stand_ins]))
    installed = {path.name.partition("-")[0] for path in trial.second.site.glob("*.dist-info")}
    brought = {_module(name) for names in wanted.values() for name in names}
    assert brought <= installed, f"not installed: {', '.join(sorted(brought - installed))}"
    stood_in = [Wheel(path).name for path in stand_ins.glob("*.whl")]
    _good(trial.second.run(["python", "-m", "pip", "uninstall", "--yes", *stood_in]))


def libraries(trial: Trial) -> None:
    """Our library finds torch's by itself, in a process that has not loaded torch."""
    program = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print('answer: loaded')"
    library = trial.second.site / "torch_fl" / "libtorch_fl.so"
    answer = trial.second.run(["python", "-c", program, str(library)])
    assert _answer(answer) == "loaded", answer.text


def activation(trial: Trial) -> None:
    """`import torch` alone brings the device, from the installed wheel, in its version."""
    program = """
import torch
x = torch.ones(3, device="flagos", requires_grad=True)
(x * 2).sum().backward()
import torch_fl
print("answer:", x.grad.sum().item(), torch_fl.__version__, torch_fl.__file__)
"""
    answer = trial.second.python(program, FLAGOS_AUTOLOAD="1")
    version = trial.by_name["torch-fl-core"].version
    expected = f"6.0 {version} {trial.second.site / 'torch_fl' / '__init__.py'}"
    assert _answer(answer) == expected, answer.text


def demo(trial: Trial) -> None:
    """`torch-fl demo` trains, reaches its goal and falls back nowhere."""
    _good(trial.second.run(["torch-fl", "demo", "--epochs", str(EPOCHS)]))


def doctor(trial: Trial) -> None:
    """`torch-fl doctor` has nothing to complain of."""
    _good(trial.second.run(["torch-fl", "doctor"]))


def home(trial: Trial) -> None:
    """Nothing of this has written a file of its user's."""
    written = [str(path) for path in trial.second.home.rglob("*")]
    assert not written, f"files were written: {', '.join(written)}"


def another_torch(trial: Trial) -> None:
    """Built for another minor release, it says so in one line, and `import torch` works."""
    built_for = trial.second.site / "torch_fl" / "_build.py"
    kept = built_for.read_text(encoding="utf-8")
    built_for.write_text('TORCH = "1.13.1"\n', encoding="utf-8")
    try:
        imported = trial.second.python("import torch_fl")
        alone = trial.second.python(
            "import torch; print('answer:', torch.ones(2).sum().item())", FLAGOS_AUTOLOAD="1"
        )
    finally:
        built_for.write_text(kept, encoding="utf-8")
    last = imported.text.strip().splitlines()[-1]
    assert imported.status == 1, imported.text
    assert last.startswith("ImportError: torch_fl was built for torch 1.13"), imported.text
    assert _answer(alone) == "2.0", alone.text
    assert alone.text.count("built for torch 1.13") == 1, alone.text


Check = Callable[[Trial], None]
TRIALS: dict[str, Check] = {
    "pip install torch-fl": install,
    "the extras resolve by name": extras,
    "libtorch_fl.so finds torch's libraries": libraries,
    "import torch activates flagos": activation,
    "torch-fl demo": demo,
    "torch-fl doctor": doctor,
    "the home folder is untouched": home,
    "built for another torch": another_torch,
}


def stand_in(folder: Path, name: str, version: str) -> Path:
    """Writes a wheel that holds nothing but its name and version."""
    info = f"{_module(name)}-{version}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{info}/RECORD,,"]
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        rows.append(f"{path},sha256={digest.decode()},{len(text)}")
    wheel = folder / f"{_module(name)}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": "\n".join(rows)}.items():
            archive.writestr(path, text)
    return wheel


def _lowest(window: str) -> str:
    """A version that the window admits: `==0.1.*` gives 0.1.0."""
    number = re.search(r"\d+(\.\d+)*", window)
    return f"{number[0]}.0" if number else "1.0"


def _module(name: str) -> str:
    return name.replace("-", "_")


def _good(answer: Answer) -> None:
    assert answer.status == 0, f"it ended with status {answer.status}:\n{answer.text}"


def _answer(answer: Answer) -> str:
    found = ANSWER.search(answer.text)
    return found[1] if found and answer.status == 0 else ""
