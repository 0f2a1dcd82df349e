"""Owns: calls with random operators, shapes, dtypes, values and devices, right and wrong, as
hypothesis strategies; and what a call does on a device."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

D = "flagos"
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.uint8, torch.bool, torch.complex64,
]  # fmt: skip
SIZES = st.lists(st.integers(0, 4), max_size=4)
INTS = st.integers(-3, 4)


@dataclass(frozen=True)
class Plan:
    """A tensor to be made: on the device under test, or on another one where that is wrong.

    `layout`: "plain", "transposed", "strided", "expanded" or "offset".
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str
    seed: int
    elsewhere: bool

    def make(self, device: str) -> torch.Tensor:
        place = "meta" if self.elsewhere else device
        count = torch.Size(self.shape).numel()
        numbers = torch.sin(torch.arange(count, dtype=torch.float64) + self.seed) * 3
        plain = numbers.reshape(self.shape).to(self.dtype)
        # Made on the host and moved with its strides, so that both devices have the same tensor.
        if self.layout == "transposed" and plain.dim() > 1:
            return plain.transpose(0, -1).contiguous().to(place).transpose(0, -1)
        if self.layout == "strided" and plain.dim() > 0:
            return plain.repeat_interleave(2, dim=0).to(place)[::2]
        if self.layout == "expanded" and plain.dim() > 0 and plain.shape[0] > 0:
            return plain[:1].clone().to(place).expand(plain.shape)
        if self.layout == "offset":
            return (
                torch.cat([plain.reshape(-1)[:1], plain.reshape(-1)])
                .to(place)[min(1, count) :]
                .view(self.shape)
            )
        return plain.to(place)


@st.composite
def tensors(draw: st.DrawFn) -> Plan:
    return Plan(
        shape=tuple(draw(SIZES)),
        dtype=draw(st.sampled_from(DTYPES)),
        layout=draw(
            st.sampled_from(["plain"] * 3 + ["transposed", "strided", "expanded", "offset"])
        ),
        seed=draw(st.integers(0, 50)),
        elsewhere=draw(st.integers(0, 40)) == 40,
    )


NUMBERS = st.one_of(
    st.integers(-4, 4), st.sampled_from([0.5, -2.0, float("nan"), float("inf"), 1e30, 2**40, True])
)
DIMS = st.one_of(st.none(), INTS, st.lists(INTS, max_size=3).map(tuple))
T = tensors()
LISTS = st.lists(T, max_size=3)


def _out(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(out: torch.Tensor, *arguments: Any) -> Any:
        return function(*arguments, out=out)

    return call


# Operators with strategies for their arguments. Not among them: median, which on the CPU of torch
# 2.13 reads memory that nobody has written where the input is expanded.
CALLS: dict[str, tuple[Callable[..., Any], tuple[st.SearchStrategy[Any], ...]]] = {
    **{
        name: (getattr(torch, name), (T,))
        for name in ("abs", "neg", "exp", "sqrt", "sin", "sigmoid", "relu", "sign", "isnan",
                     "logical_not", "bitwise_not", "nonzero", "trace", "det", "unique", "t",
                     "flatten", "argsort", "round", "reciprocal", "real")
    },
    **{
        name: (getattr(torch, name), (T, st.one_of(T, NUMBERS)))
        for name in ("add", "sub", "mul", "div", "pow", "eq", "lt", "maximum", "fmod",
                     "floor_divide", "atan2", "logical_and", "bitwise_and", "remainder",
                     "ne", "copysign", "hypot", "dist")
    },
    **{
        name: (getattr(torch, name), (T, T))
        for name in ("mm", "bmm", "matmul", "mv", "dot", "outer", "kron", "cdist", "take",
                     "masked_select", "bucketize", "searchsorted", "isin", "cross", "inner")
    },
    **{
        name: (getattr(torch.Tensor, name), (T, st.one_of(T, NUMBERS)))
        for name in ("add_", "mul_", "div_", "copy_", "fill_", "clamp_min_", "pow_", "sub_",
                     "__iand__")
    },
    **{
        name: (getattr(torch, name), (T, INTS))
        for name in ("cumsum", "cumprod", "softmax", "log_softmax", "sort", "flip", "unsqueeze",
                     "diff", "tril", "diag", "logcumsumexp", "argmax", "topk", "chunk",
                     "unbind", "squeeze", "split", "matrix_power")
    },
    **{
        name: (getattr(torch, name), (T, DIMS))
        for name in ("sum", "mean", "amax", "prod", "any", "all", "std", "permute", "roll",
                     "count_nonzero")
    },
    **{
        name: (getattr(torch.Tensor, name), (T, SIZES))
        for name in ("view", "reshape", "expand", "repeat", "new_zeros")
    },
    "gather": (torch.gather, (T, INTS, T)),
    "scatter": (torch.scatter, (T, INTS, T, st.one_of(T, NUMBERS))),
    "index_select": (torch.index_select, (T, INTS, T)),
    "index_add": (torch.index_add, (T, INTS, T, T)),
    "masked_fill": (torch.masked_fill, (T, T, st.one_of(T, NUMBERS))),
    "where": (torch.where, (T, st.one_of(T, NUMBERS), st.one_of(T, NUMBERS))),
    "lerp": (torch.lerp, (T, T, st.one_of(T, NUMBERS))),
    "addmm": (torch.addmm, (T, T, T)),
    "addcmul": (torch.addcmul, (T, T, T)),
    "clamp": (torch.clamp, (T, st.one_of(st.none(), NUMBERS), st.one_of(st.none(), NUMBERS))),
    "cat": (torch.cat, (LISTS, INTS)),
    "stack": (torch.stack, (LISTS, INTS)),
    "foreach_add": (torch._foreach_add, (LISTS, st.one_of(NUMBERS, LISTS))),
    "foreach_mul_": (torch._foreach_mul_, (LISTS, NUMBERS)),
    "getitem": (torch.Tensor.__getitem__, (T, st.one_of(INTS, T, st.tuples(INTS, T)))),
    "setitem": (torch.Tensor.__setitem__, (T, st.one_of(INTS, T), st.one_of(T, NUMBERS))),
    "select": (torch.select, (T, INTS, INTS)),
    "narrow": (torch.narrow, (T, INTS, INTS, INTS)),
    "transpose": (torch.transpose, (T, INTS, INTS)),
    "unfold": (torch.Tensor.unfold, (T, INTS, INTS, INTS)),
    "as_strided": (torch.as_strided, (T, SIZES, SIZES, INTS)),
    "diagonal": (torch.diagonal, (T, INTS, INTS, INTS)),
    "repeat_interleave": (torch.repeat_interleave, (T, st.one_of(INTS, T))),
    "kthvalue": (torch.kthvalue, (T, INTS, INTS)),
    "to": (torch.Tensor.to, (T, st.sampled_from(DTYPES))),
    "view a dtype": (torch.Tensor.view, (T, st.sampled_from(DTYPES))),
    "add out": (_out(torch.add), (T, T, st.one_of(T, NUMBERS))),
    "mm out": (_out(torch.mm), (T, T, T)),
    "cumsum out": (_out(torch.cumsum), (T, T, INTS)),
    "linear": (torch.nn.functional.linear, (T, T, st.one_of(st.none(), T))),
    "conv1d": (torch.nn.functional.conv1d, (T, T, st.one_of(st.none(), T), INTS, INTS)),
    "conv2d": (torch.nn.functional.conv2d, (T, T, st.none(), st.integers(1, 2), INTS)),
    "max_pool1d": (torch.nn.functional.max_pool1d, (T, INTS, INTS, INTS)),
    "layer_norm": (torch.nn.functional.layer_norm, (T, SIZES)),
    "embedding": (torch.nn.functional.embedding, (T, T)),
    "cross_entropy": (torch.nn.functional.cross_entropy, (T, T)),
    "mse_loss": (torch.nn.functional.mse_loss, (T, T)),
    "gelu": (torch.nn.functional.gelu, (T,)),
    "pad": (torch.nn.functional.pad, (T, st.lists(INTS, max_size=4))),
    "attention": (torch.nn.functional.scaled_dot_product_attention, (T, T, T)),
    "inv": (torch.linalg.inv, (T,)),
    "solve": (torch.linalg.solve, (T, T)),
    "vector_norm": (torch.linalg.vector_norm, (T, NUMBERS, DIMS)),
}  # fmt: skip


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, tuple[Any, ...]]:
    """An operator's name in CALLS and arguments for it, in which tensors are plans."""
    name = draw(st.sampled_from(sorted(CALLS)))
    return name, tuple(draw(strategy) for strategy in CALLS[name][1])


@dataclass
class Done:
    """What a call did: its result and what became of its tensors; or the error."""

    result: Any = None
    arguments: Any = None
    error: str = ""
    text: str = ""


def _made(value: Any, device: str) -> Any:
    if isinstance(value, Plan):
        return value.make(device)
    if isinstance(value, (list, tuple)):
        return type(value)(_made(item, device) for item in value)
    return value


def goes_elsewhere(value: Any) -> bool:
    """Whether a tensor among arguments is on a device where it must not be."""
    if isinstance(value, (list, tuple)):
        return any(map(goes_elsewhere, value))
    return isinstance(value, Plan) and value.elsewhere


def perform(name: str, arguments: tuple[Any, ...], device: str) -> Done:
    made = _made(arguments, device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Done(CALLS[name][0](*made), made)
        except Exception as error:
            return Done(arguments=made, error=type(error).__name__, text=_plain(str(error)))


def _plain(text: str) -> str:
    text = text.partition("\nException raised from")[0]
    text = re.sub(
        r"\b(?:flagos|CPU)(\w+)Type\b", r"torch.\1Tensor", text
    )  # PyTorch's name of such a type
    text = re.sub(r"\bflagos(:0)?\b", "cpu", text)
    return text.replace("PrivateUse1", "CPU").replace("torch.cpu.", "torch.")


def differences(mine: Any, its: Any, where: str = "result") -> list[str]:
    """In what a tree of tensors and values on flagos differs from that on the CPU."""
    if isinstance(its, torch.Tensor):
        if not isinstance(mine, torch.Tensor):
            return [f"{where} is {type(mine).__name__}"]
        if its.device.type == "meta" or mine.device.type == "meta":
            return [] if its.device.type == mine.device.type else [f"{where} is on {mine.device}"]
        if mine.device.type != D:
            return [f"{where} is on {mine.device}"]
        for what in ("dtype", "shape"):
            if getattr(mine, what) != getattr(its, what):
                return [f"{where}: {what} {getattr(mine, what)}, not {getattr(its, what)}"]
        if mine.stride() != its.stride():
            return [f"{where}: strides {mine.stride()}, not {its.stride()}"]
        return [] if _equal(mine.cpu(), its) else [f"{where}: {mine.cpu()}, not {its}"]
    if isinstance(its, (list, tuple)):
        if not isinstance(mine, (list, tuple)) or len(mine) != len(its):
            return [f"{where} is {mine!r}"]
        pairs = enumerate(zip(mine, its, strict=True))
        return [line for index, pair in pairs for line in differences(*pair, f"{where}[{index}]")]
    return [] if repr(mine) == repr(its) else [f"{where}: {mine!r}, not {its!r}"]


def _equal(mine: torch.Tensor, its: torch.Tensor) -> bool:
    if its.is_complex():
        return _equal(
            torch.view_as_real(mine.resolve_conj()), torch.view_as_real(its.resolve_conj())
        )
    return (
        bool(torch.equal(mine.nan_to_num(7), its.nan_to_num(7)))
        and bool(torch.equal(mine.isnan(), its.isnan()))
        if its.is_floating_point()
        else bool(torch.equal(mine, its))
    )
