"""Owns: tests that `import torch` survives every plugin, and of what finding them costs."""

from __future__ import annotations

import pytest
from catalogue import WHEELS
from children import output_of_child, run_child
from choices import WITHOUT_ACTIVATION
from forks import Outcome, advertise, run_forks
from throwaway import Shelf

SELECT_MS = 20

TORCH_WORKS = """
x = torch.ones(3, requires_grad=True)
(x * 2).sum().backward()
assert x.grad.tolist() == [2.0, 2.0, 2.0] and torch.ones(2).device.type == "cpu"
"""
# As at the end of `import torch`. What activation says of a plugin is not asked here.
AUTOLOAD = (
    """
import os, sys, torch
sys.path.insert(0, {site!r})
os.environ |= {settings!r}
torch._import_device_backends()
assert "torch_fl.plugins.selection" in sys.modules, "nothing was tried"
"""
    + TORCH_WORKS
)
TIES = {"two that match": ("good", "twin"), "one name twice": ("first-same", "second-same")}


@pytest.fixture(scope="module")
def outcomes(shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    sets = {name: (name,) for name in WHEELS} | TIES
    cases = {
        name: AUTOLOAD.format(site=shelf.site(*wheels), settings={})
        for name, wheels in sets.items()
    }
    cases["a missing one is named"] = AUTOLOAD.format(
        site=shelf.site("good"), settings={"FLAGOS_PLUGIN": "missing"}
    )
    advertised = advertise(tmp_path_factory.mktemp("advertised"))
    root = str(tmp_path_factory.mktemp("root"))
    return run_forks(cases, PYTHONPATH=advertised, FLAGOS_AUTOLOAD="1", FLAGOS_DEVICE_ROOT=root)


@pytest.mark.parametrize("name", [*WHEELS, *TIES, "a missing one is named"])
def test_import_torch_survives(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    assert outcome.status == 0, outcome.err
    assert outcome.out == ""
    assert "Traceback" not in outcome.err


def test_import_torch_survives_all_of_them_at_once(
    shelf: Shelf, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without a fork, and with the plugins there from the start."""
    site = f"{advertise(tmp_path_factory.mktemp('advertised'))}:{shelf.site(*WHEELS)}"
    child = run_child(
        f"import torch\n{TORCH_WORKS}",
        PYTHONPATH=site,
        TORCH_DEVICE_BACKEND_AUTOLOAD="1",
        FLAGOS_AUTOLOAD="1",
        PYTHONWARNINGS="error",
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout == ""
    assert "Traceback" not in child.stderr


def test_what_is_broken_is_told_once_where_no_plugin_is_named(shelf: Shelf) -> None:
    code = f"{WITHOUT_ACTIVATION}\nfrom torch_fl.plugins import selection\nselection.select()"
    site = shelf.site("noimport", "absent")
    child = run_child(code, PYTHONPATH=site, FLAGOS_DEVICE_ROOT=site, FLAGOS_PLUGIN=None)
    assert child.returncode == 0
    (line,) = child.stderr.splitlines()
    assert line.startswith("The plugin 'noimport' is not used: Importing 'torch_fl_noimport'")
    child = run_child(code, PYTHONPATH=site, FLAGOS_DEVICE_ROOT=site, FLAGOS_PLUGIN="host")
    assert (child.returncode, child.stderr) == (0, "")


def test_what_the_engine_reports_becomes_the_selections_error(shelf: Shelf) -> None:
    code = f"""{WITHOUT_ACTIVATION}
from torch_fl.plugins import selection
chosen = selection.select()
failed = selection.failed(OSError("no such symbol"))
assert failed is selection.current() and failed.plugin is chosen.plugin
assert failed.runtime is None
assert failed.error == (
    "The plugin 'good' (torch-fl-good 1.0) cannot be started: OSError: no such symbol. "
    "FLAGOS_PLUGIN=host works without it."), failed.error
(record,) = [record for record in failed.records if record.name == "good"]
assert record.stage == "runtime" and record.error == failed.error
assert selection.failed("later").error == failed.error, "the first reason stays"
assert selection.select().error is None, "a new selection is a new start"
"""
    output_of_child(code, PYTHONPATH=shelf.site("good"), FLAGOS_PLUGIN=None)


def test_selection_without_plugins_is_quick(shelf: Shelf) -> None:
    """Of the processor's time, beyond what importing pluggy and importlib_metadata takes."""
    code = f"""{WITHOUT_ACTIVATION}
import time, pluggy, importlib_metadata
from torch_fl.plugins import selection
start = time.process_time()
selection.select()
print((time.process_time() - start) * 1e3)
"""
    site = shelf.site()
    best = min(float(output_of_child(code, PYTHONPATH=site)) for _ in range(5))
    assert best < SELECT_MS


def test_a_plugin_imported_before_torch_fl_is_told_apart(shelf: Shelf) -> None:
    """Its own import of torch_fl activates, before its hooks are there."""
    child = run_child(
        "import torch_fl_good, torch, warnings\n"
        "import torch_fl.plugins.selection as selection\n"
        "print(selection.current().plugin.name, torch_fl_good.torch_fl_identity().name)\n"
        "print(*[r.error for r in selection.current().records if r.name == 'good'])",
        PYTHONPATH=shelf.site("good"),
    )
    assert child.returncode == 0, child.stderr
    first, second = child.stdout.splitlines()
    assert first == "host good"
    assert "Import torch_fl first" in second
    assert "Import torch_fl first" in child.stderr
