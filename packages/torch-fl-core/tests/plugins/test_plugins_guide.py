"""Owns: a test that the complete plugin of docs/plugins.md is one."""

from __future__ import annotations

import re
from pathlib import Path

from choices import choose
from pretend_machine import PretendMachine
from throwaway import Wheel, install

from torch_fl.plugins.adapting import parameters

GUIDE = Path(__file__).parents[4] / "docs/plugins.md"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_guides_plugin_works(tmp_path: Path) -> None:
    (manifest,), (source,) = _blocks("toml"), _blocks("python")
    assert 'example = "torch_fl_example"' in manifest
    shelf = install([Wheel("example", source)], tmp_path)
    pretend = PretendMachine(tmp_path / "root")
    pretend.nodes("other")
    nothing = choose(shelf, "example", root=pretend.root)
    assert nothing.plugin == "host"
    assert nothing.record("example")["why"].endswith("No PCI device of vendor 0x1af4.")
    pretend.pci(0x1AF4, 1, 0x120000)
    assert choose(shelf, "example", root=pretend.root).plugin == "host"
    pretend.nodes("example0")
    chosen = choose(shelf, "example", root=pretend.root)
    assert (chosen.plugin, chosen.error) == ("example", None)
    runtime = "DelegateRuntime(device_type='cuda', foreach_takes_any_device=False)"
    assert chosen.runtime == runtime
    assert chosen.record("example")["warnings"] == []


def test_the_guide_has_every_hook() -> None:
    for hook, names in parameters().items():
        assert f"`{hook}({', '.join(names)})`" in GUIDE.read_text()
