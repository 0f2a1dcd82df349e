"""Owns: tests of activation: by `import torch_fl` in any order, and by `import torch` (autoload).

What goes wrong in it is in test_activation_errors.py.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from children import output_of_child, run_child
from forks import Outcome, advertise, run_forks

import torch_fl
import torch_fl_entry

USE = "assert torch.ones(3, device='flagos').mul(2).sum().item() == 6.0"
MANIFEST = Path(__file__).parents[1] / "pyproject.toml"
IMPORT_MS = 150  # above `import torch`


@pytest.fixture(scope="module")
def advertised(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PYTHONPATH on which the distribution says its entry points, installed or not."""
    return advertise(tmp_path_factory.mktemp("site"))


# -- import torch_fl

ORDERS = {
    "torch first": f"import torch; import torch_fl; {USE}",
    "torch second": f"import torch_fl; import torch; {USE}",
    "torch not at all": f"import sys, torch_fl; torch = sys.modules['torch']; {USE}",
}
# Each runs after `import torch`.
IMPORTS = {
    "twice": f"""
        import importlib, torch, torch_fl
        first = torch_fl
        import torch_fl
        assert importlib.import_module("torch_fl") is first is torch_fl
        {USE}
        """,
    "again after it was taken out": f"""
        import sys, torch, torch_fl
        del sys.modules["torch_fl"]
        import torch_fl
        from torch_fl._activation import activate
        activate()
        {USE}
        """,
    "in a thread": f"""
        import threading, torch
        def work():
            import torch_fl
            {USE}
        thread = threading.Thread(target=work); thread.start(); thread.join()
        {USE}
        """,
    "in many threads": f"""
        import threading, torch
        gate, done = threading.Barrier(8), []
        def work():
            gate.wait()
            import torch_fl
            {USE}
            done.append(torch_fl)
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert len(done) == 8 and len(set(map(id, done))) == 1
        """,
    "a submodule first": f"import torch_fl.flagos.streams, torch; {USE}",
    "the device named before": f"""
        import torch
        try:
            torch.device("flagos")
        except RuntimeError:
            pass
        import torch_fl
        {USE}
        """,
    "warnings are errors": f"""
        import warnings
        warnings.simplefilter("error")
        import torch, torch_fl
        {USE}
        """,
    "PrivateUse1 named flagos before": f"""
        import torch
        torch.utils.rename_privateuse1_backend("flagos")
        import torch_fl
        {USE}
        """,
    "torch keeps its settings": f"""
        import torch
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(5)
        state, threads = torch.get_rng_state(), torch.get_num_threads()
        with torch.no_grad():
            import torch_fl
            assert not torch.is_grad_enabled()
        assert torch.is_grad_enabled() and torch.get_num_threads() == threads
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.ones(1).device.type == "cpu" and torch.ones(1).dtype == torch.float64
        assert torch.ones(1, device="flagos").dtype == torch.float64
        {USE}
        """,
    "the environment stays": """
        import os, torch
        before, there = dict(os.environ), os.getcwd()
        import torch_fl
        torch.ones(1, device="flagos")
        assert dict(os.environ) == before and os.getcwd() == there
        """,
    "nothing is started": """
        import threading, torch
        before = threading.active_count()
        import torch_fl
        assert threading.active_count() == before and not torch.flagos.is_initialized()
        """,
}


@pytest.fixture(scope="module")
def imports() -> dict[str, Outcome]:
    return run_forks(IMPORTS)


@pytest.mark.parametrize("order", ORDERS)
def test_torch_and_torch_fl_are_imported_in_either_order(order: str) -> None:
    child = run_child(ORDERS[order], TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert (child.returncode, child.stdout, child.stderr) == (0, "", "")


@pytest.mark.parametrize("case", IMPORTS)
def test_importing_activates_and_changes_nothing_else(
    imports: dict[str, Outcome], case: str
) -> None:
    outcome = imports[case]
    assert outcome.status == 0, outcome.err
    assert outcome.out == ""
    assert outcome.err == ""


@pytest.mark.parametrize("autoload", ["0", "1"])
def test_threads_import_both_at_once(advertised: str, autoload: str) -> None:
    code = f"""
        import threading
        gate, done = threading.Barrier(6), []
        def work(names):
            gate.wait()
            for name in names:
                __import__(name)
            import torch
            {USE}
            done.append(1)
        orders = [("torch", "torch_fl"), ("torch_fl", "torch")] * 3
        threads = [threading.Thread(target=work, args=(names,)) for names in orders]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert len(done) == 6, done
        """
    child = run_child(code, PYTHONPATH=advertised, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload)
    assert child.returncode == 0, child.stderr
    assert child.stdout == ""


# -- import torch

# Each runs in a process in which torch is imported and has not looked for backends yet.
AUTOLOAD = {
    "no other accelerator": (None, True),
    "an available one": ("cuda", False),
    "an available one, FLAGOS_AUTOLOAD=1": ("cuda", True),
    "no other, FLAGOS_AUTOLOAD=0": (None, False),
    "an available one, FLAGOS_AUTOLOAD=0": ("cuda", False),
}


def _autoload(name: str, accelerator: str | None) -> str:
    setting = re.search(r"FLAGOS_AUTOLOAD=(.)", name)
    return f"""
        import os, sys, warnings, torch
        os.environ.pop("FLAGOS_AUTOLOAD", None)
        os.environ.update({dict([setting.group(0).split("=")]) if setting else {}!r})
        before = dict(os.environ)
        current = {accelerator!r} and torch.device({accelerator!r})
        if current is not None:
            torch.accelerator.current_accelerator = lambda check_available=False: current
            torch.cuda.device_count = lambda: 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch._import_device_backends()
        assert caught == [], caught
        import torch_fl_entry
        assert torch_fl_entry.autoload_error is None
        assert dict(os.environ) == before
        assert torch.ones(2).sum().item() == 2.0
        activated = "torch_fl" in sys.modules
        assert activated is (torch._C._get_privateuse1_backend_name() == "flagos")
        assert activated is {AUTOLOAD[name][1]}, activated
        import torch_fl
        {USE}
        """


@pytest.fixture(scope="module")
def autoloads(advertised: str) -> dict[str, Outcome]:
    cases = {name: _autoload(name, accelerator) for name, (accelerator, _) in AUTOLOAD.items()}
    return run_forks(cases, PYTHONPATH=advertised)


@pytest.mark.parametrize("case", AUTOLOAD)
def test_autoload_activates_where_it_takes_nothing_away(
    autoloads: dict[str, Outcome], case: str
) -> None:
    outcome = autoloads[case]
    assert outcome.status == 0, outcome.err
    assert (outcome.out, outcome.err) == ("", "")


@pytest.mark.parametrize(
    ("torch_setting", "our_setting", "activated"),
    [(None, None, True), ("1", "1", True), ("1", "0", False), ("0", "1", False)],
)
def test_import_torch_alone(
    advertised: str, torch_setting: str | None, our_setting: str | None, activated: bool
) -> None:
    code = f"""
        import sys, torch
        assert ("torch_fl" in sys.modules) is {activated}
        assert hasattr(torch, "flagos") is {activated}
        assert torch.ones(2).sum().item() == 2.0
        import torch_fl
        {USE}
        """
    child = run_child(
        code,
        PYTHONPATH=advertised,
        TORCH_DEVICE_BACKEND_AUTOLOAD=torch_setting,
        FLAGOS_AUTOLOAD=our_setting,
    )
    assert (child.returncode, child.stdout, child.stderr) == (0, "", "")


def test_the_distribution_advertises_autoload_and_the_command() -> None:
    try:
        distribution = importlib.metadata.distribution("torch-fl-core")
    except importlib.metadata.PackageNotFoundError:
        manifest = MANIFEST.read_text()
        assert '[project.entry-points."torch.backends"]\ntorch_fl = "torch_fl_entry:au' in manifest
        assert '[project.scripts]\ntorch-fl = "torch_fl_entry:main"\n' in manifest
        return
    said = {(entry.group, entry.name): entry for entry in distribution.entry_points}
    assert said["torch.backends", "torch_fl"].load() is torch_fl_entry.autoload
    assert said["console_scripts", "torch-fl"].load() is torch_fl_entry.main
    assert [group for group, _ in said].count("torch.backends") == 1


def test_the_command_line_is_there() -> None:
    code = """
        import sys, torch_fl_entry
        sys.argv = ["torch-fl", "--version"]
        sys.exit(torch_fl_entry.main())
        """
    assert output_of_child(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").startswith("torch-fl ")


# -- what the modules import


def _imported_at_the_top(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


def test_the_top_level_imports_no_torch() -> None:
    top = _imported_at_the_top(Path(torch_fl.__file__))
    assert top - sys.stdlib_module_names <= {"torch_fl", "torch_fl_entry"}
    entry = _imported_at_the_top(Path(torch_fl_entry.__file__))
    assert entry.isdisjoint({"torch", "torch_fl"})


def test_the_entry_module_alone_loads_no_torch() -> None:
    code = "import sys, torch_fl_entry; print('torch' in sys.modules, 'torch_fl' in sys.modules)"
    assert output_of_child(code).split() == ["False", "False"]


@pytest.mark.slow
def test_importing_costs_little_above_torch() -> None:
    """Median of the time that `import torch_fl` takes when torch is there, in milliseconds."""
    code = """
        import time, torch
        start = time.perf_counter()
        import torch_fl
        print((time.perf_counter() - start) * 1e3)
        """
    times = [float(output_of_child(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")) for _ in range(9)]
    assert statistics.median(times) <= IMPORT_MS, times


@pytest.mark.slow
def test_nothing_is_printed_by_an_interactive_start() -> None:
    """A session that reads its code from standard input, as notebooks and pipes do."""
    child = subprocess.run(
        [sys.executable, "-"],
        input=f"import torch, torch_fl\n{USE}\n",
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (child.returncode, child.stdout, child.stderr) == (0, "", "")
