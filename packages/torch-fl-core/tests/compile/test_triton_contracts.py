"""Owns: what torch_fl relies on inside Inductor and Triton to be a Triton device.

Each test names the adaptation that it holds. When a release of PyTorch or Triton moves something,
it fails here and says where to look, and not in a user's kernel.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from releases import OLD
from torch._dynamo import device_interface
from torch._inductor import choices, ir, scheduler, select_algorithm, utils
from torch._inductor import config as inductor_config
from torch._inductor.codegen import common
from torch._inductor.fx_passes import pad_mm, post_grad
from torch._inductor.runtime import benchmarking, hints, triton_heuristics
from torch._inductor.template_heuristics import registry
from torch.utils import _triton

from torch_fl._compat.compiler import triton_cuda_like, triton_inductor


def _source(thing: Any) -> str:
    return inspect.getsource(inspect.unwrap(thing))


def _names_devices(thing: Any) -> bool:
    """Whether a function still compares device names; where not, drop its adaptation."""
    return bool(re.search(r"\"cuda\"|is_cuda", _source(thing)))


def _device_interface() -> None:
    assert callable(device_interface.register_interface_for_device)
    base = device_interface.DeviceInterface
    for name in ("get_raw_stream", "get_compute_capability", "get_device_properties", "Worker"):
        assert hasattr(base, name), name


def _code_generation() -> None:
    assert list(inspect.signature(common.register_backend_for_device).parameters)[:5] == [
        "device",
        "device_scheduling",
        "device_wrapper_codegen",
        "device_cpp_wrapper_codegen",
        "device_fx_wrapper_codegen",
    ]
    assert callable(common.register_device_op_overrides)
    # The class of a device's scheduling decides whether it is Triton's: it must be a class.
    assert "issubclass(device_scheduling, TritonScheduling)" in _source(ir.is_triton)
    lines = ("import_get_raw_stream_as", "set_device", "synchronize", "device_guard")
    later = () if OLD else ("current_stream",)
    for name in (*lines, *later):
        assert hasattr(common.DeviceOpOverrides, name), name


def _gpu_types() -> None:
    assert isinstance(utils.GPU_TYPES, list)
    assert "cuda" in utils.GPU_TYPES
    assert hasattr(utils.get_gpu_type, "cache_clear")
    assert utils.is_gpu("cuda")
    assert "GPU_TYPES" in _source(utils.is_gpu)


def _reported_properties() -> None:
    assert hints.DeviceProperties._fields[0] == "type"
    assert "get_interface_for_device(device)" in _source(hints.DeviceProperties.create)
    meta = _source(triton_heuristics.CachingAutotuner._create_compile_meta)
    assert 'compile_meta["device_type"] = self.device_props.type' in meta


def _autotuner_device() -> None:
    find = triton_heuristics.CachingAutotuner.get_device_interface
    assert "self.device_props.type" in _source(find)


def _benchmarking() -> None:
    assert "device" in inspect.signature(benchmarking.Benchmarker.benchmark).parameters
    bench = _source(triton_heuristics.CachingAutotuner.bench)
    assert "device=self.device_props.type" in bench
    if hasattr(benchmarking, "register_benchmarker"):
        assert isinstance(benchmarking.GPU_BENCHMARK_DEVICE_TYPES, tuple)
        assert "override" in inspect.signature(benchmarking.register_benchmarker).parameters


def _has_triton() -> None:
    assert hasattr(_triton.has_triton, "cache_clear")
    assert callable(_triton.has_triton_package)


def _triton_backend() -> None:
    assert "make_backend(target)" in _source(_triton.triton_backend)
    assert "triton_backend()" in _source(_triton.triton_hash_with_backend)
    assert hasattr(_triton.triton_hash_with_backend, "cache_clear")


def _kernels_import_torch_fl() -> None:
    pytest.importorskip("triton", reason="Inductor's Triton kernels need it")
    from torch._inductor.codegen.triton import TritonKernel

    assert isinstance(vars(TritonKernel)["gen_common_triton_imports"], classmethod)
    template = _source(select_algorithm.TritonTemplateKernel)
    assert "gen_common_triton_imports()" in template


def _template_heuristics() -> None:
    known = registry._TEMPLATE_HEURISTIC_REGISTRY
    assert all(len(key) == 3 for key in known)
    assert ("triton::mm", "cuda", None) in known or any(key[1] == "cuda" for key in known)
    assert isinstance(registry._HEURISTIC_CACHE, dict)


def _configurations() -> None:
    find = choices.InductorChoices.get_config_heuristics
    assert _names_devices(find)
    assert list(inspect.signature(find).parameters) == ["self", "device_type"]


def _padding() -> None:
    assert _names_devices(pad_mm.check_device)
    assert list(inspect.signature(pad_mm.check_device).parameters) == ["a", "b"]


def _online_softmax() -> None:
    assert _names_devices(post_grad.prepare_softmax_extra_check)
    assert "extra_check=prepare_softmax_extra_check" in inspect.getsource(post_grad)
    assert hasattr(inductor_config, "online_softmax")


def _mixed_reductions() -> None:
    check = getattr(scheduler, "_is_gpu_triton_backend", None)
    assert check is None or _names_devices(check)


def _asked_of_cuda() -> None:
    from torch._inductor.kernel import mm
    from torch._inductor.kernel.flex import flex_decoding
    from torch._inductor.template_heuristics import triton as heuristics

    for module in (heuristics, flex_decoding, mm):
        assert vars(module)["torch"] is torch, module.__name__
        assert "torch.cuda." in inspect.getsource(module), module.__name__
    assert "torch.cuda." in _source(utils.get_max_num_sms)


_CONTRACTS: dict[str, Callable[[], None]] = {
    name.removeprefix("_"): value
    for name, value in list(globals().items())
    if inspect.isfunction(value) and value.__module__ == __name__
}
_ALL = [*triton_inductor.ADAPTATIONS, *triton_cuda_like.FOR_CUDA_LIKE]


@pytest.mark.parametrize("adaptation", [adapt.__name__ for adapt in _ALL])
def test_inductor_is_as_the_adaptation_finds_it(adaptation: str) -> None:
    _CONTRACTS[adaptation]()


def test_a_driver_is_asked_for_before_each_compilation() -> None:
    pytest.importorskip("triton", reason="Inductor's helpers are empty without it")
    from torch._inductor.runtime import triton_helpers

    assert callable(triton_helpers.set_driver_to_gpu)
    precompile = _source(triton_heuristics.CachingAutotuner._precompile_config)
    assert "triton_helpers.set_driver_to_gpu()" in precompile
    assert "triton.compile(*compile_args, **compile_kwargs)" in precompile


def test_settings_exist() -> None:
    known = inductor_config.get_config_copy()
    for name in ("compile_threads", "triton.cudagraphs", "use_static_cuda_launcher"):
        assert name in known, name


def test_triton_is_as_it_is_entered() -> None:
    triton = pytest.importorskip("triton")
    assert triton.compile is triton.compiler.compile is triton.compiler.compiler.compile
    assert list(inspect.signature(triton.compile).parameters)[:3] == ["src", "target", "options"]
    run = inspect.getsource(triton.runtime.jit)
    assert re.search(r"from \.\.compiler import .*\bcompile\b", run)
    source = triton.compiler.ASTSource
    assert {"fn", "signature", "constexprs"} <= set(inspect.signature(source).parameters)
    assert "required" in inspect.signature(triton.runtime.errors.OutOfResources).parameters
    driver = triton.runtime.driver
    assert hasattr(driver, "set_active")
    backend = next(iter(triton.backends.backends.values()))
    assert hasattr(backend.compiler, "get_module_map")
    assert isinstance(backend.driver, type)
    generator = importlib.import_module("triton.compiler.code_generator")
    assert "module_map" in inspect.getsource(generator)
