"""Owns: throw-away wheels for Triton: plugins with a target, and a backend of Triton that records.

The plugins' devices are host memory: what is under test is how code is generated and compiled.
"""

from __future__ import annotations

from throwaway import Wheel
from triton_accelerator import COMPILER, DRIVER, FUNCTIONS, REGISTRY

PLUGIN = """
from torch_fl.plugins.spec import HostRuntime, Identity, TritonTarget, hookimpl

@hookimpl
def torch_fl_identity():
    return Identity({name!r}, (1, 1))

@hookimpl
def torch_fl_runtime():
    return HostRuntime()

@hookimpl
def torch_fl_triton_target():
    return TritonTarget({target})
"""

HOPPER = (
    '"cuda", triton_backend="nvidia", arch=90, cuda_like=True, compile_threads=1, properties='
    '{"multi_processor_count": 132, "max_threads_per_multi_processor": 2048, '
    '"regs_per_multiprocessor": 65536}'
)

POLICIES = """
import json, os
from torch_fl.plugins.spec import CompilePolicy, BackendStrategies, hookimpl

@hookimpl
def torch_fl_compile_policies():
    return [CompilePolicy("first", "torch_fl_accel:First"),
            CompilePolicy("second", "torch_fl_accel:Second")]

def tell(hook, **what):
    with open(os.environ["TRITON_RECORD"], "a") as file:
        file.write(json.dumps({"hook": hook, **what}) + "\\n")

def get_device():
    return 0

class First:
    def strategies():
        tell("strategies")
        return BackendStrategies("accel_triton.registry:registry", "flagos",
                                 {"version_hash": lambda: ["1"]}, like="theirs",
                                 environment={"ACCEL_FRAMEWORK": "flagos"})

    def driver_queries(state):
        tell("driver_queries", state=sorted(state))
        return {"is_active": lambda: True, "get_current_device": state["current_device"],
                "get_current_stream": state["raw_stream"]}

    def libdevice():
        tell("libdevice")
        return {"tanh": "accel_triton.functions:tanh"}

    def options(kernel):
        tell("options", who="first", kernel=kernel.name)
        return {"enable_linearize": True, "num_stages": 1}

    def signature(kernel):
        tell("signature", options=dict(kernel.options))
        return {name: "*i8" for name, kind in kernel.signature.items() if kind == "*i1"}

class Second:
    def options(kernel):
        tell("options", who="second", seen=kernel.options["enable_linearize"])
        return {"num_stages": 7, "forced": "no"}

    def refuse(kernel):
        tell("refuse", signature=dict(kernel.signature), target=[kernel.backend, kernel.arch,
                                                                 kernel.warp_size])
        return "take another name" if "unwanted" in kernel.source else None

    def resources(kernel, error):
        tell("resources", error=str(error))
        if "scratch" in str(error):
            needed, limit = map(int, str(error).split()[-2:])
            return (needed, limit, "scratch memory")
"""

TARGET = '"accel", arch="a100x", warp_size=0, options={"forced": "yes"}, compile_threads=1'

TELLING = """
import os
from torch_fl.plugins.spec import CompilePolicy

@hookimpl
def torch_fl_compile_policies():
    return [CompilePolicy("telling", "torch_fl_workers:Telling")]

class Telling:
    def options(kernel):
        with open(os.environ["TRITON_RECORD"], "a") as file:
            file.write(f"{os.getpid()} {kernel.name}\\n")
        return {}
"""

ENTRIES = "[triton.backends]\naccel = accel_triton\n"

WHEELS = (
    Wheel("hopper", PLUGIN.format(name="hopper", target=HOPPER)),
    Wheel("accel", PLUGIN.format(name="accel", target=TARGET) + POLICIES),
    Wheel(
        "accel-triton",
        "",
        distribution="accel-triton",
        module="accel_triton/__init__",
        files={
            "{info}/entry_points.txt": ENTRIES,
            "accel_triton/compiler.py": COMPILER,
            "accel_triton/driver.py": DRIVER,
            "accel_triton/registry.py": REGISTRY,
            "accel_triton/functions.py": FUNCTIONS,
        },
    ),
    Wheel(
        "wide",
        PLUGIN.format(
            name="wide",
            target='"cuda", triton_backend="nvidia", arch=90, cuda_like=True, compile_threads=1, '
            'guards=("torch_fl.compile.wide_kernels:refuse",)',
        ),
    ),
    Wheel(
        "workers",
        PLUGIN.format(
            name="workers", target='"cuda", triton_backend="nvidia", arch=90, cuda_like=True'
        )
        + TELLING,
    ),
    Wheel(
        "absent",
        PLUGIN.format(
            name="absent",
            target='"absent", arch=1, install="Install triton-absent of its maker."',
        ),
    ),
)
