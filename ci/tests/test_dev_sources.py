"""Owns: the tests of how `./dev` is written: readable everywhere, small, nothing to install."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from ci.dev.cli import ROOT, split_tests

SOURCES = sorted((ROOT / "ci" / "dev").glob("*.py"))


def test_paths_of_tests_are_told_from_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_a.py").touch()
    options, paths = split_tests(["-x", "test_a.py::test_b", "-k", "test_a.py", "gone.py"])
    assert options == ("-x", "-k", "test_a.py", "gone.py")
    assert paths == (f"{tmp_path / 'test_a.py'}::test_b",)


def test_the_script_itself_is_readable_by_old_interpreters() -> None:
    tree = ast.parse((ROOT / "dev").read_text(encoding="utf-8"), feature_version=(3, 4))
    modern = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.arg)
    assert not [node for node in ast.walk(tree) if isinstance(node, modern)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_parts_are_small_owned_and_need_nothing_installed(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 250
    tree = ast.parse(text)
    assert (ast.get_docstring(tree) or "").startswith("Owns:")
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert name.partition(".")[0] in {"ci", *sys.stdlib_module_names}
