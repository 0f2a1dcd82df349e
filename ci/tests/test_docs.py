"""Owns: the tests of the pages made from the code: nothing that the code reads is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ci.dev import docs
from ci.dev.cli import ROOT

SETTINGS = docs.load(ROOT / "packages" / "torch-fl-core" / docs.SETTINGS)
VARIABLE = re.compile(r"\bFLAGOS_[A-Z0-9_]*[A-Z0-9_<]")
MACRO = re.compile(r"#\s*define\s+(FLAGOS_\w+)")
SOURCES = sorted(
    path
    for folder in ("src", "csrc", "include")
    for path in ROOT.glob(f"packages/*/{folder}/**/*")
    if path.suffix in (".py", ".pyi", ".cpp", ".h")
)


def test_every_variable_is_on_the_page_with_all_that_is_known_of_it() -> None:
    page = docs.environment_page(SETTINGS)
    for setting in SETTINGS.SETTINGS:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{setting.name}` |")]
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 4
        assert all(cells)


def test_every_variable_that_the_sources_name_is_declared() -> None:
    assert SOURCES
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES}
    macros = {name for text in texts.values() for name in MACRO.findall(text)}
    names = [setting.name for setting in SETTINGS.SETTINGS]
    unknown = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in texts.items()
        for name in VARIABLE.findall(text)
        if name not in macros and not _known(name, names)
    }
    assert not unknown, "declare them in torch_fl/settings.py"


def _known(name: str, names: list[str]) -> bool:
    if name.endswith(("_", "<")):  # a family, or the beginning that some share
        return any(known.startswith(name.rstrip("<")) for known in names)
    if hasattr(SETTINGS, name):  # a declaration's own name, as in settings.FLAGOS_OP
        return True
    families = tuple(known.partition("<")[0] for known in names if "<" in known)
    return name in names or name.startswith(families)


def test_variables_are_read_through_their_declarations() -> None:
    """Or the page would promise what another reader does not keep."""
    direct = re.compile(r"(environ|getenv)\W[^\n]*FLAGOS_")
    allowed = {"settings.py", "torch_fl_entry.py"}  # the second is a leaf before torch_fl exists
    found = [path for path in SOURCES if direct.search(path.read_text(encoding="utf-8"))]
    assert [path.name for path in found if path.name not in allowed] == []


@pytest.mark.parametrize(
    "name", ["docs/architecture.md", "docs/compatibility-policy.md", "README.md"]
)
def test_links_between_pages_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert Path(page.parent, target).exists(), target
