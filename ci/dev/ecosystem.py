"""Owns: `./dev ecosystem`, which `./dev test --ecosystem` runs: other libraries on flagos.

One row for each script in ci/ecosystem. A row whose inputs have not changed since it went well is
not run again, so that an interrupted run goes on; what cannot be installed is a row as well.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ci.dev import bootstrap, build, ecosystem_evidence, process, state
from ci.dev.ecosystem_environment import EcosystemEnvironment
from ci.dev.errors import StepError, UserError
from ci.dev.layout import Environment

LIMIT = 900.0  # seconds for one script
FAILED = "does not work"


@dataclass(frozen=True)
class Row:
    """One script of ci/ecosystem, and the packages that it needs."""

    script: str
    library: str
    packages: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)


ROWS = (
    Row("transformers_models", "transformers", ("transformers",)),
    Row("transformers_trainer", "transformers, Trainer", ("transformers", "accelerate")),
    Row("accelerate_loop", "accelerate", ("accelerate",)),
    Row(
        "hugging_face_migrated",
        "accelerate and Trainer inside torch_fl.migrate()",
        ("transformers", "accelerate"),
        {"FLAGOS_MIGRATE": "1"},
    ),
    Row("lightning_trainer", "Lightning", ("lightning",)),
    Row("timm_models", "timm", ("timm",)),
    Row("peft_lora", "peft", ("peft", "transformers", "accelerate")),
    Row("torchao_weights", "torchao", ("torchao",)),
    Row("diffusers_unet", "diffusers", ("diffusers", "transformers")),
    Row("geometric_gcn", "PyTorch Geometric", ("torch-geometric",)),
    Row("x_transformers_models", "x-transformers", ("x-transformers",)),
)


def main(environment: Environment, names: Sequence[str], again: bool) -> int:
    """Runs the rows of these names, all by default. Raises UserError for an unknown name."""
    known = {row.script: row for row in ROWS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UserError(f"there is no row {', '.join(unknown)}. The rows are: {', '.join(known)}.")
    if environment.kind != "pinned":
        raise UserError(
            "the ecosystem's libraries are pinned for the torch in constraints/: leave "
            "--torch=installed out."
        )
    bootstrap.prepare(environment, "run")
    place = EcosystemEnvironment(environment)
    place.make()
    remembered = state.State(place.folder / "torch-fl-ecosystem.json")
    core = build.inputs(environment)
    passed = failed = 0
    for row in [known[name] for name in names] or ROWS:
        inputs = _inputs(place, row, core)
        result = place.work / f"{row.script}.json"
        print(f"\ndev: {row.library} ({row.script})", flush=True)
        if again or not (remembered.is_done(row.script, inputs) and result.exists()):
            start = time.monotonic()
            remembered.forget(row.script)
            _write(result, _run(place, row, result))
            if not _count(result)[1]:
                remembered.record(row.script, inputs, time.monotonic() - start)
        else:
            print("  went well before, and nothing has changed since", flush=True)
        ecosystem_evidence.merge(environment.layout, row.script, row.library, _read(result))
        good, bad = _count(result)
        passed, failed = passed + good, failed + bad
    print(f"\n{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def _inputs(place: EcosystemEnvironment, row: Row, core: str) -> str:
    """Fingerprint of what the row's outcome depends on."""
    layout = place.first.layout
    scripts = layout.root / "ci" / "ecosystem"
    files = [scripts / name for name in ("__init__.py", "harness.py", f"{row.script}.py")]
    python = sorted(path for path in (layout.core / "src").rglob("*.py"))
    values = [core, *row.packages, *row.variables]
    return state.fingerprint(values, [*files, *place.constraints, *python], layout.root)


def _run(place: EcosystemEnvironment, row: Row, result: Path) -> dict[str, Any]:
    """Installs and runs; what the script found, or why there is nothing."""
    try:
        place.install(row.packages, row.script)
    except StepError as error:
        print(f"  {error}", flush=True)
        return _nothing("installation", "pip could not install it: see the log", row)
    result.unlink(missing_ok=True)
    log = place.work / f"{row.script}.log"
    lines: list[str] = []

    def show(text: str) -> None:
        lines.append(text)
        if text.startswith("  ") and "(" in text and text.rstrip()[-1] != "^":
            print(text, end="", flush=True)

    command = [str(place.python), "-u", "-m", f"ci.ecosystem.{row.script}", str(result)]
    root = place.first.layout.root
    env = place.variables(**row.variables)
    status = process.run(command, env=env, cwd=root, limit=LIMIT, on_line=show)
    log.write_text("".join(lines), encoding="utf-8")
    if status == 0 and result.exists():
        return _read(result)
    why = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
    print(f"  ended with status {status}: {why} (log: {log})", flush=True)
    return _nothing("the script", f"ended with status {status}: {why[:200]}", row)


def _nothing(what: str, why: str, row: Row) -> dict[str, Any]:
    case = {"case": what, "state": FAILED, "note": why, "seconds": 0.0, "expected": False}
    python = "{}.{}.{}".format(*sys.version_info)
    return {"versions": {}, "python": python, "plugin": "", "cases": [case]}


def _count(result: Path) -> tuple[int, int]:
    cases = _read(result)["cases"]
    good = sum(case["expected"] for case in cases)
    return good, len(cases) - good


def _read(result: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return content


def _write(result: Path, content: dict[str, Any]) -> None:
    result.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
