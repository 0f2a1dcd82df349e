"""Owns: tests of activation that fails: the error is clear, and torch without flagos stays usable.

By `import torch_fl` it raises; by `import torch` (autoload) it is a warning and never an error.
"""

from __future__ import annotations

import pytest
from children import run_child
from forks import Outcome, advertise, run_forks

TORCH_WORKS = """
x = torch.ones(3, requires_grad=True)
(x * 2).sum().backward()
assert x.grad.tolist() == [2.0, 2.0, 2.0] and torch.ones(2).device.type == "cpu"
"""


def _check(outcome: Outcome) -> None:
    assert outcome.status == 0, outcome.err
    assert (outcome.out, outcome.err) == ("", "")


# -- settings that cannot be understood

BAD_SETTINGS = {
    "FLAGOS_HOST_DEVICES": ("0", "-1", "65", "two", "1.5", "²", "1,2"),
    "FLAGOS_HOST_MEMORY": ("0", "-5", "lots", "2 parsecs", "0.1", "1e9", "GiB", "4GiB 2"),
    "FLAGOS_HOST_GUARD": ("2", "yes", "true", "-1"),
    "FLAGOS_PLUGIN": ("no-such-backend", "HOST", "host,host"),
}


def _bad_setting(variable: str, value: str) -> str:
    return f"""
import os, torch
os.environ[{variable!r}] = {value!r}
import torch_fl
assert not torch.flagos.is_available()
try:
    torch.ones(2, device="flagos")
except RuntimeError as error:
    assert {variable!r} in str(error) and repr({value!r}) in str(error), error
else:
    raise AssertionError("it was taken")
{TORCH_WORKS}
"""


GOOD_SETTINGS = {
    "FLAGOS_HOST_DEVICES": ("", "1", " 3 ", "64"),
    "FLAGOS_HOST_MEMORY": ("", "65536", "512MiB", "1.5 GiB", "2gb", " 1TiB "),
    "FLAGOS_HOST_GUARD": ("", "0", " 1"),
    "FLAGOS_PLUGIN": ("", "host", " host "),
}


def _good_setting(variable: str, value: str) -> str:
    return f"""
import os, torch
os.environ[{variable!r}] = {value!r}
import torch_fl
assert torch.ones(2, device="flagos").sum().item() == 2.0
"""


# -- another owner of PrivateUse1

CAUGHT = """
import os, sys, warnings, torch
import torch_fl_entry
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch._import_device_backends()
texts = [str(warning.message) for warning in caught]
"""

FOREIGN = {
    "import torch_fl": f"""
import torch
torch.utils.rename_privateuse1_backend("other")
for _ in range(2):
    try:
        import torch_fl
    except RuntimeError as error:
        assert "'other'" in str(error) and "PrivateUse1" in str(error), error
    else:
        raise AssertionError("flagos took the place of another")
assert torch._C._get_privateuse1_backend_name() == "other"
{TORCH_WORKS}
""",
    "autoload stands down": f"""
import torch
torch.utils.rename_privateuse1_backend("other")
{CAUGHT}
assert len(texts) == 1 and "'other'" in texts[0], texts
assert "torch_fl" not in sys.modules
assert torch._C._get_privateuse1_backend_name() == "other"
{TORCH_WORKS}
""",
    "autoload stands down, FLAGOS_AUTOLOAD=1": f"""
import os, torch
os.environ["FLAGOS_AUTOLOAD"] = "1"
torch.utils.rename_privateuse1_backend("other")
{CAUGHT}
assert len(texts) == 1 and "'other'" in texts[0], texts
assert torch._C._get_privateuse1_backend_name() == "other"
{TORCH_WORKS}
""",
    "autoload stands down, FLAGOS_AUTOLOAD=0": f"""
import os, torch
os.environ["FLAGOS_AUTOLOAD"] = "0"
torch.utils.rename_privateuse1_backend("other")
{CAUGHT}
assert texts == [], "it was not asked for"
{TORCH_WORKS}
""",
}


FOREIGN_AND_WARNINGS_ARE_ERRORS = f"""
import warnings, torch
torch.utils.rename_privateuse1_backend("other")
warnings.simplefilter("error")
torch._import_device_backends()
{TORCH_WORKS}
"""


# -- an activation that breaks, under autoload

RAISE = {
    "ImportError": "raise ImportError('broken on purpose')",
    "an ordinary error": "raise ZeroDivisionError('broken on purpose')",
    "a syntax error": "raise SyntaxError('broken on purpose')",
    "sys.exit": "import sys; sys.exit('broken on purpose')",
    "GeneratorExit": "raise GeneratorExit('broken on purpose')",
    "any BaseException": "raise type('Odd', (BaseException,), {})('broken on purpose')",
    "ModuleNotFoundError": "import torch_fl.broken_on_purpose",
    "a warning as an error": "raise UserWarning('broken on purpose')",
    "no text": "def text(self): raise ValueError\n"
    "raise type('broken_on_purpose', (Exception,), {'__str__': text})()",
}
# A finder of its own stands before those of an editable installation.
STUB = """
import importlib.machinery, os, sys, torch
sys.path.insert(0, os.environ["STUBS"])
sys.meta_path.insert(0, importlib.machinery.PathFinder)
os.makedirs(sys.path[0] + "/torch_fl", exist_ok=True)
sys.dont_write_bytecode = True
with open(sys.path[0] + "/torch_fl/__init__.py", "w") as stub:
    stub.write({source!r})
importlib.invalidate_caches()
"""


def _stub(source: str) -> str:
    return STUB.format(source=source)


RECORDED = """
assert len(texts) == 1, texts
assert "flagos was not activated" in texts[0], texts
error = torch_fl_entry.autoload_error
assert isinstance(error, BaseException), error
assert "torch_fl" not in sys.modules
"""


BROKEN = {name: _stub(source) + CAUGHT + RECORDED + TORCH_WORKS for name, source in RAISE.items()}
for _name in ("ImportError", "sys.exit", "any BaseException"):
    BROKEN[_name] += (
        "assert 'broken on purpose' in texts[0] and 'broken on purpose' in str(error)\n"
    )
BROKEN["KeyboardInterrupt"] = f"""{_stub("raise KeyboardInterrupt")}
try:
    torch._import_device_backends()
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("it was swallowed")
import torch_fl_entry
assert torch_fl_entry.autoload_error is None
{TORCH_WORKS}
"""
BROKEN["a setting"] = f"""
import os
os.environ["FLAGOS_STRICT"] = "none"
{CAUGHT}
{RECORDED}
assert isinstance(error, ValueError) and "FLAGOS_STRICT" in texts[0]
{TORCH_WORKS}
try:
    import torch_fl
except ValueError as raised:
    assert "FLAGOS_STRICT" in str(raised) and "'none'" in str(raised)
else:
    raise AssertionError("`import torch_fl` raises it for real")
"""


def _warnings_are_errors(around: str = "torch._import_device_backends()") -> str:
    return f"""{_stub("raise ImportError('broken on purpose')")}
import warnings
warnings.simplefilter("error")
{around}
import torch_fl_entry
assert isinstance(torch_fl_entry.autoload_error, ImportError)
{TORCH_WORKS}
"""


BROKEN["there is no standard error"] = _warnings_are_errors(
    "sys.stderr = None\ntorch._import_device_backends()"
)
BROKEN["standard error is closed"] = _warnings_are_errors(
    """
kept, sys.stderr = sys.stderr, open(os.devnull, "w")
sys.stderr.close()
try:
    torch._import_device_backends()
finally:
    sys.stderr = kept
"""
)


@pytest.fixture(scope="module")
def advertised(tmp_path_factory: pytest.TempPathFactory) -> str:
    return advertise(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def outcomes(advertised: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    cases = {}
    for variable, values in BAD_SETTINGS.items():
        cases |= {f"{variable}={value}": _bad_setting(variable, value) for value in values}
    for variable, values in GOOD_SETTINGS.items():
        cases |= {f"{variable}={value}": _good_setting(variable, value) for value in values}
    cases |= FOREIGN | BROKEN
    cases["foreign, warnings are errors"] = FOREIGN_AND_WARNINGS_ARE_ERRORS
    cases["broken, warnings are errors"] = _warnings_are_errors()
    stubs = str(tmp_path_factory.mktemp("stubs"))
    return run_forks(cases, PYTHONPATH=advertised, FLAGOS_AUTOLOAD=None, STUBS=stubs)


@pytest.mark.parametrize(
    "setting",
    [f"{variable}={value}" for variable, values in BAD_SETTINGS.items() for value in values],
)
def test_a_setting_that_cannot_be_understood_is_named_at_first_use(
    outcomes: dict[str, Outcome], setting: str
) -> None:
    _check(outcomes[setting])


@pytest.mark.parametrize(
    "setting",
    [f"{variable}={value}" for variable, values in GOOD_SETTINGS.items() for value in values],
)
def test_a_setting_that_can_be_understood_is_taken(
    outcomes: dict[str, Outcome], setting: str
) -> None:
    _check(outcomes[setting])


@pytest.mark.parametrize("case", FOREIGN)
def test_another_owner_of_the_slot_is_named_and_keeps_it(
    outcomes: dict[str, Outcome], case: str
) -> None:
    _check(outcomes[case])


@pytest.mark.parametrize("case", BROKEN)
def test_autoload_records_what_broke_and_warns_once(
    outcomes: dict[str, Outcome], case: str
) -> None:
    _check(outcomes[case])


@pytest.mark.parametrize(
    ("case", "what"),
    [
        ("foreign, warnings are errors", "'other'"),
        ("broken, warnings are errors", "broken on purpose"),
    ],
)
def test_autoload_does_not_raise_where_warnings_are_errors(
    outcomes: dict[str, Outcome], case: str, what: str
) -> None:
    outcome = outcomes[case]
    assert outcome.status == 0, outcome.err
    assert outcome.out == ""
    assert outcome.err.count(what) == 1
    assert "Traceback" not in outcome.err


def test_import_torch_survives_a_broken_activation_under_w_error(advertised: str) -> None:
    """The whole of it once, without a fork: `python -W error -c "import torch"`."""
    code = f"""
import torch
import torch_fl_entry
assert isinstance(torch_fl_entry.autoload_error, ValueError)
{TORCH_WORKS}
"""
    child = run_child(
        code,
        PYTHONPATH=advertised,
        PYTHONWARNINGS="error",
        TORCH_DEVICE_BACKEND_AUTOLOAD="1",
        FLAGOS_AUTOLOAD=None,
        FLAGOS_STRICT="perhaps",
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout == ""
    assert child.stderr.count("FLAGOS_STRICT") == 1
