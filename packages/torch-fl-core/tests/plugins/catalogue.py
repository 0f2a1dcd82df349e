"""Owns: the throw-away plugins: one that is right, and one for each thing that can be wrong."""

from __future__ import annotations

from throwaway import Wheel

IMPORTS = """
from torch_fl.plugins.spec import AbiRuntime, DelegateRuntime, Detection, HostRuntime, Identity
from torch_fl.plugins.spec import hookimpl
"""


def source(
    name: str,
    *,
    identity: str = "",
    detect: str = "return Detection(found=True, exact=True, devices=2, reason='Two are here.')",
    runtime: str = "return HostRuntime(devices=2)",
    more: str = "",
) -> str:
    """A plugin's module; `detect` and `runtime` are bodies of one line, `more` is code at the end.

    `identity` are further arguments of Identity.
    """
    return f"""{IMPORTS}
@hookimpl
def torch_fl_identity():
    return Identity({name!r}, {identity or "(1, 0)"})

@hookimpl
def torch_fl_detect(machine):
    {detect}

@hookimpl
def torch_fl_runtime():
    {runtime}

{more}
"""


def by_pci(vendor: int, node: str) -> str:
    """A `detect` as docs/plugins.md advises it: the maker's own PCI id, and a node to open."""
    return f"""
    found = machine.pci(vendor={vendor:#x})
    if not found:
        return Detection(found=False, reason="No PCI device of vendor {vendor:#06x}.")
    if not machine.nodes({node!r}):
        return Detection(found=False, reason="It is there, but {node} is not: is it passed in?")
    return Detection(found=True, exact=True, devices=len(found))
    """


NVIDIA, HYGON = 0x10DE, 0x1D94
NEVER = "return Detection(found=False, reason='No /dev/never here.')"
WEAK = "return Detection(found=True, reason='A library answers.')"

_WHEELS = [
    Wheel("good", source("good", identity="(1, 0), title='Good accelerators'")),
    Wheel("absent", source("absent", detect=NEVER)),
    Wheel("weak", source("weak", detect=WEAK)),
    Wheel("twin", source("twin")),
    Wheel("heir", source("heir", identity="(1, 0), supersedes=('good',)")),
    Wheel("rival", source("rival", identity="(1, 0), supersedes=('heir',)")),
    Wheel("keen", source("keen", identity="(1, 0), priority=5")),
    Wheel(
        "nodetect",
        source("nodetect").replace("@hookimpl\ndef torch_fl_detect", "def ask"),
    ),
    # -- at import
    Wheel("noimport", "import a_module_that_is_not_there\n"),
    Wheel("newcore", "from torch_fl.plugins.spec import Telepathy\n"),
    Wheel("exits", "import sys; sys.exit(3)\n"),
    Wheel("nosdk", "import ctypes; ctypes.CDLL('libaccelerator-sdk.so.7')\n"),
    Wheel("noattribute", source("noattribute"), reference="torch_fl_noattribute:plugin"),
    Wheel("syntax", "def (:\n"),
    # -- hooks
    Wheel("bare", "x = 1\n"),
    Wheel("unmarked", source("unmarked").replace("@hookimpl\ndef torch_fl_id", "def torch_fl_id")),
    Wheel("noruntime", source("noruntime").replace("def torch_fl_runtime", "def torch_fl_run")),
    Wheel("aclass", "class Plugin: pass\n", reference="torch_fl_aclass:Plugin"),
    Wheel(
        "unknown",
        source("unknown", more="@hookimpl\ndef torch_fl_rutime(): pass\n"),
    ),
    Wheel(
        "extra",
        source("extra", detect="return Detection(found=limits is None and depth == 3)").replace(
            "(machine)", "(limits, machine, depth=3)"
        ),
    ),
    # -- identity and API
    Wheel("misnamed", source("other")),
    Wheel("liar", source("liar").replace("return Identity", "return str")),
    Wheel("newfield", source("newfield", identity="(1, 0), colour='blue'")),
    Wheel("future", source("future", identity="(2, 0)"), version="7.2"),
    Wheel("newer", source("newer", identity="(1, 9)")),
    Wheel("past", source("past", identity="(0, 3)")),
    # -- detect
    Wheel("raises", source("raises", detect="raise OSError('the bus is on fire')")),
    Wheel("quits", source("quits", detect="raise SystemExit(4)")),
    Wheel("hangs", source("hangs", detect="import time; time.sleep(3600)")),
    Wheel("odd", source("odd", detect="return True")),
    # -- runtime
    Wheel("nolib", source("nolib", runtime="return AbiRuntime('/nowhere/libnolib_runtime.so')")),
    Wheel("badsetting", source("badsetting", runtime="raise ValueError('SIZE must be a size.')")),
    Wheel("badruntime", source("badruntime", runtime="return 'fast'")),
    # -- distributions
    Wheel("same", source("same"), distribution="first-same", version="1.1"),
    Wheel("same", source("same"), distribution="second-same", version="2.2"),
    Wheel("host", source("host"), distribution="false-host"),
    # -- hardware
    Wheel("nvidialike", source("nvidialike", detect=by_pci(NVIDIA, "/dev/nvidia[0-9]*"))),
    Wheel("hygonlike", source("hygonlike", detect=by_pci(HYGON, "/dev/kfd"))),
]
WHEELS = {wheel.distribution or wheel.name: wheel for wheel in _WHEELS}
