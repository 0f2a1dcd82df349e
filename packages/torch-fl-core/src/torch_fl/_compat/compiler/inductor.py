"""Owns: where torch_fl enters Inductor with graphs that are renamed: the one file that knows how it
compiles them.

Reason: Inductor compiles for devices by name, in some hundred places: a device from outside gets
the generic path of each. Instead, a graph of flagos tensors is renamed to the device that flagos
stands on after autograd has been traced, compiled there with all that Inductor has for that device,
and called through a boundary that renames tensors. Eight functions are wrapped for it, none
replaced:

- `compile_fx.compile_fx`: for tensors of devices known by name, the processes that compile kernels
  are started with the first graph, while it is traced. Those that start with the first kernel are
  too late for a whole model: its kernels are compiled one after the other.
- `compile_fx._compile_fx_inner`: each graph comes here, whoever asked for it.
- `compile_fx.fx_codegen_and_compile`: what it makes is marked, so that caches keep the mark.
- `output_code.CompiledFxGraph.post_compile`: each compiled graph, new or from a cache, comes here
  before its first call; one that is marked gets the boundary.
- `compile_fx._recursive_joint_graph_passes`: passes that ask for the device by name.
- `compile_fx.min_cut_rematerialization_partition`: so does what cuts a graph in a forward and a
  backward pass, where both draw the same random numbers.
- `compile_fx.fw_compiler_freezing`, `freezing.replace_params_with_constants`: constants of a frozen
  graph are tensors, not inputs, and are packed for the target's kernels before the graph is
  compiled.

Dated 2026-11, torch 2.11 to 2.14. Held by tests/compile/test_compile_contracts.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch.fx import GraphModule

from torch_fl._compat.importing import when_imported

__all__ = ["MARK", "Regions", "backend", "install", "load_operators"]

MARK = "_torch_fl_region"
"""The attribute by which a compiled graph says that it is called through a boundary."""


class Region(Protocol):
    """A graph that has been renamed."""

    inputs: list[Any]
    mark: dict[str, Any] | None

    def compiling(self) -> AbstractContextManager[object]:
        """In force while the graph is compiled."""


class Regions(Protocol):
    """What the compiler backend does with graphs; torch_fl.compile.regions has it."""

    def has_workers(self) -> bool:
        """Whether other processes compile kernels for flagos."""

    def enter(self, graph: GraphModule, inputs: Sequence[Any]) -> Region | None:
        """Renames a graph in place; None for one without flagos."""

    def bounded(self, call: Callable[..., Any], mark: dict[str, Any] | None) -> Callable[..., Any]:
        """`call`, made for the target's tensors, for flagos tensors."""

    def freezing(
        self, graph: GraphModule, inputs: Sequence[Any]
    ) -> AbstractContextManager[Sequence[Any]]:
        """Renames a graph whose parameters are made constants inside, and which is compiled then.
        Gives its inputs by their new names."""

    def constants(self, parameters: Sequence[Any]) -> list[Any]:
        """What parameters are as constants of a graph that is frozen."""

    def renamed(self, graph: GraphModule) -> AbstractContextManager[list[GraphModule]]:
        """For passes: the graph is the target's inside, and flagos' again afterwards. So are those
        that are added to the list that it gives."""


def install(regions: Callable[[], Regions]) -> None:
    """Wraps Inductor's functions when it is imported. `regions` is asked at the first graph."""
    when_imported("torch._inductor.compile_fx", functools.partial(_change, regions))
    # What was compiled in another process is loaded without the compiler.
    when_imported("torch._inductor.output_code", functools.partial(_bound, regions))


def backend(mode: str | None, options: Mapping[str, Any] | None) -> Any:
    """What `torch.compile` makes of `backend="inductor"`: a graph and its inputs go in."""
    return torch._TorchCompileInductorWrapper(mode, options, dynamic=None)


def load_operators() -> None:
    """Makes Inductor's own operators, `prims::inductor_seeds` and others."""
    import torch._inductor.inductor_prims  # noqa: F401


def _is_of_flagos(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "flagos"


def _change(regions: Callable[[], Regions], module: Any) -> None:
    from torch._inductor import async_compile, freezing, output_code

    # Compilations nest (subgraphs, autotuning), they do not run beside each other. None is for a
    # graph without flagos.
    current: list[Region | None] = []

    compile_whole = module.compile_fx

    @functools.wraps(compile_whole)
    def compile_with_workers(
        model_: Any, example_inputs_: Sequence[Any], *args: Any, **kwargs: Any
    ) -> Any:
        if regions().has_workers() and any(map(_is_of_flagos, example_inputs_)):
            async_compile.AsyncCompile.wakeup()
        return compile_whole(model_, example_inputs_, *args, **kwargs)

    compile_inner = module._compile_fx_inner

    @functools.wraps(compile_inner)
    def compile_renamed(
        gm: GraphModule, example_inputs: Sequence[Any], *args: Any, **kwargs: Any
    ) -> Any:
        region = regions().enter(gm, example_inputs)
        current.append(region)
        try:
            if region is None:
                return compile_inner(gm, example_inputs, *args, **kwargs)
            with region.compiling():
                code = compile_inner(gm, region.inputs, *args, **kwargs)
        finally:
            current.pop()
        if isinstance(code, output_code.OutputCode) or not callable(code):
            return code
        return regions().bounded(code, region.mark)  # a graph without operators: its own forward

    compile_marked = module.fx_codegen_and_compile

    @functools.wraps(compile_marked)
    def compile_and_mark(*args: Any, **kwargs: Any) -> Any:
        code = compile_marked(*args, **kwargs)
        region = current[-1] if current else None
        if region is not None and isinstance(code, output_code.CompiledFxGraph):
            setattr(code, MARK, region.mark)
        return code

    compile_frozen = module.fw_compiler_freezing

    @functools.wraps(compile_frozen)
    def compile_frozen_renamed(
        aot_autograd_model: GraphModule,
        aot_example_inputs: Sequence[Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        with regions().freezing(aot_autograd_model, aot_example_inputs) as inputs:
            return compile_frozen(aot_autograd_model, inputs, *args, **kwargs)

    make_constants = freezing.replace_params_with_constants

    @functools.wraps(make_constants)
    def make_constants_renamed(gm: GraphModule, flat_params: list[Any], fw_metadata: Any) -> Any:
        return make_constants(gm, regions().constants(flat_params), fw_metadata)

    joint_passes = module._recursive_joint_graph_passes

    @functools.wraps(joint_passes)
    def joint_passes_renamed(gm: GraphModule, *args: Any, **kwargs: Any) -> Any:
        with regions().renamed(gm):
            return joint_passes(gm, *args, **kwargs)

    partition = module.min_cut_rematerialization_partition

    @functools.wraps(partition)
    def partition_renamed(joint_module: GraphModule, *args: Any, **kwargs: Any) -> Any:
        with regions().renamed(joint_module) as graphs:
            parts = partition(joint_module, *args, **kwargs)
            graphs.extend(parts)
        return parts

    module.compile_fx = compile_with_workers
    module._compile_fx_inner = compile_renamed
    module.fx_codegen_and_compile = compile_and_mark
    module.fw_compiler_freezing = compile_frozen_renamed
    freezing.replace_params_with_constants = make_constants_renamed
    module._recursive_joint_graph_passes = joint_passes_renamed
    module.min_cut_rematerialization_partition = partition_renamed


def _bound(regions: Callable[[], Regions], output_code: Any) -> None:
    post_compile = output_code.CompiledFxGraph.post_compile

    @functools.wraps(post_compile)
    def post_compile_and_bound(self: Any, *args: Any, **kwargs: Any) -> None:
        post_compile(self, *args, **kwargs)
        mark = self.__dict__.get(MARK)
        if mark is not None:
            self.current_callable = regions().bounded(
                self.current_callable, {**mark, "written": sorted(self.mutated_input_idxs)}
            )

    output_code.CompiledFxGraph.post_compile = post_compile_and_bound
