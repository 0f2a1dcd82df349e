"""Owns: `python -m torch_fl.migrate`: runs a script or a module with "cuda" meaning flagos."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path

from torch_fl import settings
from torch_fl.migrate import Migration, limits, migrate

_ABOUT = """\
Runs a script that has "cuda" written into it on flagos, and ends with a report of what was
rewritten and of what could not be. Child processes that import torch are migrated too."""
_EXAMPLES = """\
examples:
  python -m torch_fl.migrate train.py --epochs 3
  python -m torch_fl.migrate -m package.train --epochs 3
  python -m torch_fl.migrate --report report.txt train.py
"""


def main(arguments: list[str] | None = None) -> None:
    """Runs the program; its end, an exit code or an exception, is ours."""
    options = _parser().parse_args(arguments)
    program: list[str] = options.program
    if not program:
        _parser().error("name a script, or a module after -m")
    as_module = options.module
    sys.argv = program
    # For child processes: they see the variable when they import torch.
    variable = settings.FLAGOS_MIGRATE.name
    os.environ[variable] = "force" if options.force else "1"
    migration = migrate(force=options.force)
    try:
        if as_module:
            sys.path[0] = os.getcwd()
            runpy.run_module(program[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(program[0]).resolve().parent)
            _look_at(migration, program[0])
            runpy.run_path(program[0], run_name="__main__")
    finally:
        _write(migration, options.report)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m torch_fl.migrate",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--force", action="store_true", help="also where CUDA devices are")
    parser.add_argument("--report", metavar="FILE", help="the report's file (standard error)")
    parser.add_argument("-m", dest="module", action="store_true", help="run a module, not a file")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="script or module, arguments")
    return parser


def _look_at(migration: Migration, script: str) -> None:
    try:
        source = Path(script).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return  # running it will say what is wrong
    for name, advice, site in limits.find(source, script):
        migration.add_limit(name, advice, site)


def _write(migration: Migration, path: str | None) -> None:
    text = f"torch_fl.migrate:\n{migration.table()}\n"
    if path:
        Path(path).write_text(text, encoding="utf-8")
    else:
        print(text, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
