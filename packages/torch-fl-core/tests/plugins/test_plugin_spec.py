"""Owns: tests of what the values of the plugin API accept, and of hooks called one at a time."""

from __future__ import annotations

import dataclasses
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from torch_fl.plugins import adapting, spec, time_limit
from torch_fl.plugins.hooks import PluginError, attach
from torch_fl.plugins.loaded import LoadedPlugin
from torch_fl.plugins.spec import (
    AbiRuntime,
    BackendStrategies,
    Communicator,
    CompilePolicy,
    DelegateRuntime,
    Detection,
    HostRuntime,
    Identity,
    Profiler,
    Routes,
    TritonTarget,
    hookimpl,
)

WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Identity("Upper", (1, 0)), "lower-case"),
    (lambda: Identity("7up", (1, 0)), "beginning with a letter"),
    (lambda: Identity("with-dash", (1, 0)), "lower-case"),
    (lambda: Identity("boxing", (1, 0)), "a word of routes files"),
    (lambda: Identity("cpu", (1, 0)), "a word of routes files"),
    (lambda: Identity("x", "1.0"), "two numbers"),  # type: ignore[arg-type]
    (lambda: Identity("x", (1, True)), "two numbers"),
    (lambda: Identity("x", (1, -1)), "two numbers"),
    (lambda: Identity("x", (1, 0), supersedes="y"), "tuple"),  # type: ignore[arg-type]
    (lambda: Identity("x", (1, 0), supersedes=("No!",)), "'No!'"),
    (lambda: Identity("x", (1, 0), supersedes=("x",)), "itself"),
    (lambda: Identity("x", (1, 0), priority=1001), "from -1000 to 1000"),
    (lambda: Detection(found=False, exact=True), "exact without found"),
    (lambda: Detection(found=1), "True or False"),  # type: ignore[arg-type]
    (lambda: Detection(found=True, devices=-1), "devices"),
    (lambda: DelegateRuntime(""), "device_type"),
    (lambda: DelegateRuntime("cuda", 1), "True or False"),  # type: ignore[arg-type]
    (lambda: AbiRuntime("libx.so"), "absolute path"),
    (lambda: Routes(defaults="a.conf"), "Path"),  # type: ignore[arg-type]
    (lambda: Routes(profiles={"a/b": Path("x")}), "without '/'"),
    (lambda: HostRuntime(devices=65), "from 1 to 64"),
    (lambda: HostRuntime(devices=True), "from 1 to 64"),
    (lambda: HostRuntime(memory_limit=-1), "bytes"),
    (lambda: TritonTarget(""), "backend"),
    (lambda: TritonTarget("cuda", warp_size=-1), "warp_size"),
    (lambda: TritonTarget("cuda", arch=0), "arch"),
    (lambda: TritonTarget("cuda", arch=""), "arch"),
    (lambda: TritonTarget("cuda", compile_threads=0), "1 or more"),
    (lambda: TritonTarget("cuda", cuda_like=1), "True or False"),  # type: ignore[arg-type]
    (lambda: TritonTarget("cuda", install=None), "text"),  # type: ignore[arg-type]
    (lambda: TritonTarget("cuda", options=[("x", 1)]), "mapping"),  # type: ignore[arg-type]
    (lambda: TritonTarget("cuda", settings={1: True}), "mapping"),  # type: ignore[dict-item]
    (lambda: TritonTarget("cuda", properties={"major": "9"}), "numbers"),  # type: ignore[dict-item]
    (lambda: TritonTarget("cuda", raw_stream="stream"), "package.module:attribute"),
    (lambda: TritonTarget("cuda", guards="a:b"), "tuple"),  # type: ignore[arg-type]
    (lambda: TritonTarget("cuda", guards=("no reference",)), "package.module:attribute"),
    (lambda: CompilePolicy("linear", "torch_fl_x"), "package.module:attribute"),
    (lambda: CompilePolicy("", "torch_fl_x:y"), "a word for reports"),
    (lambda: BackendStrategies("x:registry", "", {}), "a word of its own"),
    (lambda: BackendStrategies("x:registry", "npu", {}, like="npu"), "a word of its own"),
    (lambda: BackendStrategies("registry", "flagos", {}), "package.module:attribute"),
    (lambda: BackendStrategies("x:registry", "flagos", {"f": 1}), "a function"),  # type: ignore[dict-item]
    (lambda: BackendStrategies("x:y", "flagos", {}, environment={"A": 1}), "text"),  # type: ignore[dict-item]
    (lambda: Communicator("xccl", ":x"), "package.module:attribute"),
    (lambda: Profiler("x", "a:b c"), "package.module:attribute"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_a_value_that_cannot_be_right_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        make()


def test_values_cannot_be_changed() -> None:
    identity = Identity("x", (1, 0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        identity.name = "y"  # type: ignore[misc]


def test_the_spec_has_what_it_says() -> None:
    for name in spec.__all__:
        assert getattr(spec, name) is not None
    with pytest.raises(AttributeError, match="Telepathy"):
        spec.Telepathy  # noqa: B018


def test_every_hook_can_be_adapted() -> None:
    assert adapting.parameters()["torch_fl_detect"] == ("machine",)
    for hook in adapting.parameters():
        adapting.adapt(hook, lambda: None)


def _loaded(**hooks: Callable[..., object]) -> LoadedPlugin:
    plugin = SimpleNamespace(**{name: hookimpl(function) for name, function in hooks.items()})
    attached, _ = attach("the plugin 'x'", plugin)
    return LoadedPlugin("x", None, None, Identity("x", (1, 0)), None, attached)


def test_what_a_plugin_does_not_have_is_none() -> None:
    plugin = _loaded()
    assert plugin.routes() is None
    assert plugin.target_module() is None
    assert plugin.triton_target() is None
    assert plugin.communicator() is None
    assert plugin.profiler() is None
    assert plugin.compile_policies() == ()
    assert plugin.environment() == {}


def test_hooks_return_what_they_promise() -> None:
    policy = CompilePolicy("linear", "torch_fl_x.policies:linear")
    plugin = _loaded(
        torch_fl_routes=lambda: Routes(Path("/x/routes.conf"), {"fast": Path("/x/fast.conf")}),
        torch_fl_target_module=lambda: "torch.cuda",
        torch_fl_triton_target=lambda: TritonTarget("cuda", guards=("torch_fl_x:guard",)),
        torch_fl_compile_policies=lambda: [policy],
        torch_fl_communicator=lambda: Communicator("xccl", "torch_fl_x.collectives:make"),
        torch_fl_profiler=lambda: Profiler("x", "torch_fl_x.profiler:Profiler"),
        torch_fl_environment=lambda: {"driver": "5.1"},
    )
    routes = plugin.routes()
    assert routes is not None
    assert routes.profiles == {"fast": Path("/x/fast.conf")}
    assert plugin.target_module() == "torch.cuda"
    assert plugin.triton_target() == TritonTarget("cuda", guards=("torch_fl_x:guard",))
    assert plugin.compile_policies() == (policy,)
    assert plugin.environment() == {"driver": "5.1"}


@pytest.mark.parametrize(
    ("hooks", "method", "message"),
    [
        ({"torch_fl_routes": lambda: "a.conf"}, "routes", "type str, but must return Routes"),
        ({"torch_fl_routes": lambda: None}, "routes", "returned None, but must return Routes"),
        ({"torch_fl_target_module": lambda: 1 / 0}, "target_module", "ZeroDivisionError"),
        ({"torch_fl_compile_policies": lambda: ["x"]}, "compile_policies", "CompilePolicy"),
        ({"torch_fl_environment": lambda: {"a": 1}}, "environment", "text to text"),
        ({"torch_fl_profiler": lambda: exit(1)}, "profiler", "SystemExit"),
    ],
)
def test_a_hook_that_breaks_its_promise_is_named(
    hooks: dict[str, Callable[..., object]], method: str, message: str
) -> None:
    with pytest.raises(PluginError, match=re.escape(message)) as caught:
        getattr(_loaded(**hooks), method)()
    assert next(iter(hooks)) in str(caught.value)
    assert "the plugin 'x'" in str(caught.value)


def test_methods_of_an_object_are_hooks_and_may_have_another_name() -> None:
    class Plugin:
        @hookimpl
        def torch_fl_target_module(self) -> str:
            return "torch.cuda"

        @hookimpl(specname="torch_fl_environment")
        def lines(self) -> dict[str, str]:
            return {"a": "b"}

    attached, warnings = attach("it", Plugin())
    assert warnings == ()
    assert attached.call("torch_fl_target_module", str) == "torch.cuda"
    assert attached.call("torch_fl_environment", dict) == {"a": "b"}


def test_a_known_parameter_with_a_default_is_still_passed() -> None:
    plugin = _loaded(torch_fl_detect=lambda machine=None: Detection(found=machine == "here"))
    found = plugin.hooks.call("torch_fl_detect", Detection, machine="here")
    assert found == Detection(found=True)


# -- the time limit


def test_a_call_in_time_returns_or_raises() -> None:
    assert time_limit.call(lambda: 7, 5) == 7
    with pytest.raises(ZeroDivisionError):
        time_limit.call(lambda: 1 / 0, 5)
    assert not [thread for thread in threading.enumerate() if "torch_fl" in thread.name]


def test_a_call_that_hangs_is_left_with_its_place() -> None:
    gate = threading.Event()
    start = time.monotonic()
    with pytest.raises(time_limit.TimeLimitError, match=r"threading\.py"):
        time_limit.call(gate.wait, 0.1)
    assert time.monotonic() - start < 5
    gate.set()
