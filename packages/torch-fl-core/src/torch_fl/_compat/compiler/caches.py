"""Owns: the keys of the compiler's caches, and the decompositions that graphs of flagos are traced
with.

Reason: PyTorch lets a program tell its entries from others' by
`torch.compiler.config.cache_key_tag`, which is one value for the whole process; a graph of flagos
adds its own to it for the time in which it is looked for and compiled. The outer cache (of
AOTAutograd) is asked before there is a graph to rename, so Inductor's entry, `compile_fx`, is
wrapped. In the same time operators that must stay calls are not decomposed: `select_decomp_table`
leaves them out. Dated 2026-11, torch 2.11 to 2.14. Held by tests/compile/test_compile_caches.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch_fl._compat.importing import when_imported

__all__ = ["Keys", "install", "tagged"]


class Keys(Protocol):
    """What torch_fl.compile.cache_key knows."""

    def concerns(self, model: Any, inputs: Sequence[Any]) -> bool:
        """Whether a graph, before autograd, is one of flagos."""

    def tagged(self) -> AbstractContextManager[object]:
        """Adds to the keys of what is compiled inside."""

    def calls(self) -> Collection[str]:
        """Operators that are not decomposed, such as "aten::gelu"."""


def install(keys: Callable[[], Keys]) -> None:
    """Wraps Inductor's entry when it is imported."""
    when_imported("torch._inductor.compile_fx", functools.partial(_change, keys))


def tagged(tag: str) -> AbstractContextManager[object]:
    """Within it, entries are written and looked for under `tag` too."""
    from torch.compiler import config as untyped

    config: Any = untyped  # its functions are put into the module when it is imported
    before = config.cache_key_tag
    if tag not in before.split(";"):
        before = f"{before};{tag}" if before else tag
    patched: AbstractContextManager[object] = config.patch(cache_key_tag=before)
    return patched


def _change(keys: Callable[[], Keys], module: Any) -> None:
    from torch._inductor import decomposition

    compile_fx = module.compile_fx
    left_out: list[Collection[str]] = []

    @functools.wraps(compile_fx)
    def compile_fx_tagged(model_: Any, example_inputs_: Any, *args: Any, **kwargs: Any) -> Any:
        if not keys().concerns(model_, example_inputs_):
            return compile_fx(model_, example_inputs_, *args, **kwargs)
        left_out.append(keys().calls())
        try:
            with keys().tagged():
                return compile_fx(model_, example_inputs_, *args, **kwargs)
        finally:
            left_out.pop()

    select = module.select_decomp_table

    @functools.wraps(select)
    def select_decomp_table() -> dict[Any, Callable[..., Any]]:
        table: dict[Any, Callable[..., Any]] = select()
        calls = left_out[-1] if left_out else ()
        if not calls:
            return table
        return {
            operator: function
            for operator, function in table.items()
            if not (hasattr(operator, "name") and operator.name() in calls)
        }

    module.compile_fx = compile_fx_tagged
    # In both places: cache keys name the function by where it is.
    module.select_decomp_table = decomposition.select_decomp_table = select_decomp_table
