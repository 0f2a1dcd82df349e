"""Owns: flagos among the devices that Inductor generates Triton kernels for.

Reason: Inductor can be given a device's code generation, but asks in many other places for the
names of the devices that PyTorch itself has, and reports a device's own name to Triton, which knows
the maker's. Its second part is triton_cuda_like.py; where flagos stands on a device that Inductor
knows, graphs are renamed instead, and inductor.py is all that is needed. Each function below is
one adaptation; `ADAPTATIONS` has them in order.

Dated 2026-11, torch 2.11 to 2.14. Held by tests/compile/test_triton_contracts.py.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any, Protocol

import torch

from torch_fl._compat.compiler import triton_cuda_like
from torch_fl._compat.importing import when_imported

__all__ = ["ADAPTATIONS", "Device", "install", "is_usable"]

FLAGOS = "flagos"


class Device(Protocol):
    """The device, as torch_fl.compile.triton_device has it."""

    backend: str  # its name in Triton's targets
    cuda_like: bool
    interface: Any  # Dynamo's device interface
    scheduling: type  # a subclass of TritonScheduling
    wrapper: type
    op_overrides: Any

    def device_count(self) -> int: ...

    def current_device(self) -> int: ...

    def properties(self) -> Any:
        """Of the current device, completed for the compiler."""

    def triton_target(self) -> Any:
        """Triton's own value for the current device."""


def install(compiler: Callable[[], Any]) -> None:
    """Adapts Inductor when it is imported, if flagos is its Triton device then. `compiler` gives
    torch_fl.compile.triton_device: its `is_device` says so, its `Device` is the device."""
    when_imported("torch._inductor.compile_fx", functools.partial(_change, compiler))
    when_imported(
        "torch._inductor.runtime.triton_helpers", functools.partial(_change_worker, compiler)
    )


def _change(compiler: Callable[[], Any], module: Any) -> None:
    if not compiler().is_device():
        return
    device: Device = compiler().Device()
    for adapt in (*ADAPTATIONS, *(triton_cuda_like.FOR_CUDA_LIKE if device.cuda_like else ())):
        adapt(device)


def _change_worker(compiler: Callable[[], Any], helpers: Any) -> None:
    """Processes that only compile kernels import no more of Inductor than this module.

    Before each compilation the one active driver is made. Ours is made when it is used
    (triton_backends.py), so that a process that only compiles starts no device.
    """
    if compiler().is_device():
        helpers.set_driver_to_gpu = lambda: None


def _module(name: str) -> Any:
    return importlib.import_module(f"torch._inductor.{name}")


def is_usable(device_type: str) -> bool:
    """Whether this PyTorch has such a device, apart from flagos."""
    module = getattr(torch, device_type, None)
    return module is not None and hasattr(module, "is_available") and module.is_available()


def _replace_everywhere(name: str, before: object, after: object) -> None:
    # PyTorch's modules import such functions by name.
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("torch.") and (
            vars(module).get(name) is before
        ):
            setattr(module, name, after)


def device_interface(device: Device) -> None:
    """Hardware properties from the target, device state from flagos."""
    from torch._dynamo import device_interface as interfaces

    for index in range(device.device_count()):
        interfaces.register_interface_for_device(f"{FLAGOS}:{index}", device.interface)
    interfaces.register_interface_for_device(FLAGOS, device.interface)


def code_generation(device: Device) -> None:
    """The public registrations."""
    common = _module("codegen.common")
    common.register_device_op_overrides(FLAGOS, device.op_overrides)
    common.register_backend_for_device(
        FLAGOS,
        device.scheduling,
        device.wrapper,
        None,
        _module("codegen.wrapper_fxir").WrapperFxCodegen,
    )


def gpu_types(device: Device) -> None:
    """A list of names decides on device guards, padding, alignment, templates and more."""
    utils = _module("utils")
    if FLAGOS in utils.GPU_TYPES:
        return
    if any(is_usable(name) for name in utils.GPU_TYPES):
        utils.get_gpu_type()  # remembers that one: there must not be two
    else:
        utils.get_gpu_type.cache_clear()
    utils.GPU_TYPES.append(FLAGOS)


def reported_properties(device: Device) -> None:
    """Kernels say for which device Triton compiles them, by PyTorch's name."""
    properties = _module("runtime.hints").DeviceProperties
    create = properties.create

    @functools.wraps(create)
    def create_for_target(cls: type, of: torch.device) -> Any:
        made = create(of)
        return made._replace(type=device.backend) if of.type == FLAGOS else made

    properties.create = classmethod(create_for_target)


def autotuner_device(device: Device) -> None:
    """Autotuners look for the device of their kernels by the name that was reported to Triton."""
    if is_usable(device.backend):
        return  # by its name there is a device, and flagos stands on it
    autotuner = _module("runtime.triton_heuristics").CachingAutotuner
    find = autotuner.get_device_interface

    @functools.wraps(find)
    def get_device_interface(self: Any) -> Any:
        if self.device_props.type == device.backend:
            return device.interface
        return find(self)

    autotuner.get_device_interface = get_device_interface


def benchmarking(device: Device) -> None:
    """Times are measured by device names: with events for those that are known, else as on CPUs;
    and kernels give the name that was reported to Triton, which need not be one of PyTorch's."""
    module = _module("runtime.benchmarking")
    known = getattr(module, "GPU_BENCHMARK_DEVICE_TYPES", None)  # since torch 2.12
    if known and FLAGOS not in known and not any(is_usable(name) for name in known):
        module.GPU_BENCHMARK_DEVICE_TYPES = (*known, FLAGOS)

    def bench(self: Any, function: Any, **others: Any) -> Any:
        if "device_type" in inspect.signature(self.benchmark_gpu).parameters:
            others["device_type"] = FLAGOS
        return self.benchmark_gpu(function, **others)

    if hasattr(module, "register_benchmarker"):
        module.register_benchmarker(FLAGOS, bench, override=True)
    if is_usable(device.backend):
        return
    benchmark = module.Benchmarker.benchmark

    @functools.wraps(benchmark)
    def benchmark_on(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") == device.backend:
            kwargs["device"] = FLAGOS
        return benchmark(self, *args, **kwargs)

    module.Benchmarker.benchmark = benchmark_on


def has_triton(device: Device) -> None:
    """Up to torch 2.13 only four devices can have Triton; later the device's interface is asked."""
    module = importlib.import_module("torch.utils._triton")
    module.has_triton.cache_clear()
    if not module.has_triton():
        before = module.has_triton
        _replace_everywhere("has_triton", before, module.has_triton_package)


def triton_backend(device: Device) -> None:
    """Keys of caches come from the target of the active driver, which need not be there to
    compile."""
    module: Any = importlib.import_module("torch.utils._triton")

    @functools.cache
    def backend() -> Any:
        from triton.compiler.compiler import make_backend

        return make_backend(device.triton_target())

    module.triton_backend = backend
    module.triton_hash_with_backend.cache_clear()


def kernels_import_torch_fl(device: Device) -> None:
    """Kernels may be compiled in another process, and policies have to be in force there too."""
    kernel = _module("codegen.triton").TritonKernel
    imports = vars(kernel)["gen_common_triton_imports"].__func__

    @functools.wraps(imports)
    def gen_common_triton_imports(cls: type) -> str:
        return f"import torch_fl\n{imports(cls)}"

    kernel.gen_common_triton_imports = classmethod(gen_common_triton_imports)


ADAPTATIONS: tuple[Callable[[Device], None], ...] = (
    device_interface,
    code_generation,
    gpu_types,
    reported_properties,
    autotuner_device,
    benchmarking,
    has_triton,
    triton_backend,
    kernels_import_torch_fl,
)
