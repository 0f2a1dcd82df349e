"""Owns: finding in a script's text what a migration does not rewrite, before it runs.

It reads the script's own file only, not what that imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

__all__ = ["find"]

_COMPARED = (
    'the text of a device is compared with "cuda". A tensor\'s device says "flagos", so the '
    'comparison is false: ask tensor.is_cuda, or compare with torch.device("cuda").type.'
)
_EXTENSION = (
    "an extension written in CUDA is compiled. Its kernels need CUDA's memory: it has to be built "
    "for the accelerator at hand, or left out."
)
_NCCL = (
    "NCCL is CUDA's library of collectives and is not rewritten. Leave the backend out, then "
    "PyTorch takes the one of the accelerator."
)
_VERSION = "it says which CUDA PyTorch was built for, and is not rewritten."
_EXTENSIONS = ("CUDAExtension", "cuda_sources")


def find(source: str, filename: str) -> Iterator[tuple[str, str, str]]:
    """What is found: its name, advice, and the place as "file:line".

    A text that is not Python gives nothing: running it will say so.
    """
    try:
        tree = ast.parse(source, filename)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        for name, advice in _of(node):
            yield name, advice, f"{filename}:{getattr(node, 'lineno', 0)}"


def _of(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Compare():
            sides = [node.left, *node.comparators]
            if any(map(_says_cuda, sides)) and any(map(_is_text_of_device, sides)):
                yield "a device compared with 'cuda'", _COMPARED
        case ast.Attribute(attr="startswith", value=value) if _is_text_of_device(value):
            yield "a device compared with 'cuda'", _COMPARED
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in _EXTENSIONS:
            yield name, _EXTENSION
        case ast.keyword(arg="cuda_sources"):
            yield "cuda_sources", _EXTENSION
        case ast.Constant(value="nccl"):
            yield "the backend 'nccl'", _NCCL
        case ast.Attribute(attr="cuda", value=ast.Attribute(attr="version")):
            yield "torch.version.cuda", _VERSION


def _says_cuda(node: ast.AST) -> bool:
    """ "cuda" or "cuda:0", alone or in a tuple or list of texts."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(_says_cuda, node.elts))
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.partition(":")[0] == "cuda"
    )


def _is_text_of_device(node: ast.AST) -> bool:
    """`x.device.type`, `device.type`, `str(device)`, `str(x.device)`."""
    match node:
        case ast.Attribute(attr="type"):
            return True
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return "device" in name
        case ast.Call(func=ast.Name(id="str"), args=[ast.Attribute(attr="device")]):
            return True
    return False
