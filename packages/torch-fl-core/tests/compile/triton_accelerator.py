"""Owns: the source of a backend of Triton that compiles nothing and records what it is given.

It is made as makers' are: a compiler and a driver that Triton finds by entry points, and a registry
of strategies. The compiler's front end is Triton's own.
"""

COMPILER = """
import json, os
from dataclasses import dataclass
from triton.backends.compiler import BaseBackend

@dataclass(frozen=True)
class Options:
    num_warps: int = 4
    num_stages: int = 2
    num_ctas: int = 1
    debug: bool = False
    sanitize_overflow: bool = False
    enable_linearize: bool = False
    forced: str = ""
    launch_cooperative_grid: bool = False
    extern_libs: tuple = ()
    allow_fp8e4nv: bool = False
    supported_fp8_dtypes: tuple = ()
    deprecated_fp8_dot_operand_dtypes: tuple = ()
    default_dot_input_precision: str = "ieee"
    allowed_dot_input_precisions: tuple = ("ieee",)
    max_num_imprecise_acc_default: int = 0
    instrumentation_mode: str = ""
    backend_name: str = "accel"
    fpsan_homomorphic_casts: bool = False

    def hash(self):
        return repr(self)

class Accelerator(BaseBackend):
    binary_ext = "accelbin"

    @staticmethod
    def supports_target(target):
        return target.backend == "accel"

    def parse_options(self, options):
        known = Options.__dataclass_fields__
        return Options(**{name: value for name, value in options.items() if name in known})

    def hash(self):
        return "accel"

    def add_stages(self, stages, options, language=None):
        def binary(module, metadata):
            text = str(module)
            with open(os.environ["TRITON_RECORD"], "a") as file:
                said = {"hook": "compiled", "ttir": text, "forced": options.forced,
                        "linearize": options.enable_linearize, "stages": options.num_stages,
                        "target": [self.target.backend, self.target.arch, self.target.warp_size]}
                file.write(json.dumps(said) + "\\n")
            if "hungry" in text:
                raise RuntimeError("accelerator: out of scratch 300 200")
            metadata["shared"] = 0
            metadata["warp_size"] = 1
            metadata["name"] = text.split("tt.func public @")[1].split("(")[0]
            return text.encode()

        stages["ttir"] = lambda module, metadata: module
        stages["accelbin"] = binary

    def load_dialects(self, context):
        pass

    def get_module_map(self):
        return {}

    def get_codegen_implementation(self, options):
        return {"convert_custom_types": None, "min_dot_size": lambda a, b: (1, 1, 1)}

    def pack_metadata(self, metadata):
        return ()
"""

DRIVER = '''
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
import triton_recorder

class Driver(DriverBase):
    """As makers' drivers are: it asks for the maker's own PyTorch."""

    @staticmethod
    def is_active():
        import torch_accel

    def __init__(self):
        self.utils = triton_recorder.Utils()
        self.launcher_cls = triton_recorder.Launcher
        self.get_current_device = lambda: 1 / 0
        self.get_current_stream = lambda device: 1 / 0

    def get_current_target(self):
        return GPUTarget("accel", "a100x", 0)

    def map_python_to_cpp_type(self, ty):
        return ty

    def get_active_torch_device(self):
        raise NotImplementedError

    def get_benchmarker(self):
        raise NotImplementedError
'''

REGISTRY = """
class Registry:
    def __init__(self):
        self.strategies = {"theirs": {"version_hash": list}}

    def register(self, category, name):
        def add(function):
            self.strategies.setdefault(category, {})[name] = function
            return function
        return add

registry = Registry()
"""

FUNCTIONS = """
import triton

@triton.jit
def tanh(x):
    return x * 12345.0
"""
