"""Owns: tests of attention: the implementation that the CPU would choose, and its values.

The choice matters: the composition of matrix products that is PyTorch's default for an unknown
device needs memory for every pair of positions and rounds otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from parity import assert_close, assert_same, both, leaf, through, uneven, with_gradients
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attend
from torch.utils._python_dispatch import TorchDispatchMode

import torch_fl  # noqa: F401  (makes the device)
from torch_fl import routing

if TYPE_CHECKING:
    from collections.abc import Callable

FUSED = "_scaled_dot_product_flash_attention_for_cpu"
MATH = "_scaled_dot_product_attention_math"


class Calls(TorchDispatchMode):
    """Names of the operators called inside, without overloads."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def _heads(*shape: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Query, key and value of one shape, none equal to another."""
    return [leaf(*shape, dtype=dtype), *[_more(*shape, dtype=dtype, by=by) for by in (2, 3)]]


def _more(*shape: int, dtype: torch.dtype = torch.float32, by: int = 2) -> torch.Tensor:
    return (uneven(shape, torch.float64) * by).cos().to(dtype).requires_grad_()


def _bool_mask(*shape: int) -> torch.Tensor:
    mask = uneven(shape) > -0.3
    mask[..., 0] = True
    return mask


Q = (2, 4, 6, 8)
CASES: dict[str, tuple[Callable[..., torch.Tensor], Callable[[], list[torch.Tensor]]]] = {
    "plain": (attend, lambda: _heads(*Q)),
    "causal": (lambda q, k, v: attend(q, k, v, is_causal=True), lambda: _heads(*Q)),
    "scale": (lambda q, k, v: attend(q, k, v, scale=0.3), lambda: _heads(*Q)),
    "bool mask": (attend, lambda: [*_heads(*Q), _bool_mask(2, 1, 6, 6)]),
    "float mask": (attend, lambda: [*_heads(*Q), uneven((6, 6))]),
    "float mask, broadcast": (attend, lambda: [*_heads(*Q), uneven((2, 1, 1, 6))]),
    "mask with a gradient": (attend, lambda: [*_heads(*Q), leaf(6, 6)]),
    "infinite mask": (
        attend,
        lambda: [*_heads(*Q), torch.full((6, 6), -torch.inf).triu(1)],
    ),
    "row without keys": (
        attend,
        lambda: [*_heads(*Q), _bool_mask(6, 6) & (torch.arange(6) > 0)[:, None]],
    ),
    "grouped": (
        lambda q, k, v: attend(q, k, v, enable_gqa=True),
        lambda: [leaf(*Q), _more(2, 2, 6, 8), _more(2, 2, 6, 8, by=3)],
    ),
    "grouped and causal": (
        lambda q, k, v: attend(q, k, v, enable_gqa=True, is_causal=True),
        lambda: [leaf(*Q), _more(2, 1, 6, 8), _more(2, 1, 6, 8, by=3)],
    ),
    "other lengths": (attend, lambda: [leaf(2, 4, 3, 8), *_heads(*Q)[1:]]),
    "wide values": (attend, lambda: [*_heads(*Q)[:2], leaf(2, 4, 6, 12)]),
    "3-d": (attend, lambda: _heads(*Q[1:])),
    "5-d": (attend, lambda: _heads(2, *Q)),
    "bfloat16": (attend, lambda: _heads(*Q, dtype=torch.bfloat16)),
    "bfloat16, causal": (
        lambda q, k, v: attend(q, k, v, is_causal=True),
        lambda: _heads(*Q, dtype=torch.bfloat16),
    ),
    "float16": (attend, lambda: _heads(*Q, dtype=torch.float16)),
    "float64": (attend, lambda: _heads(*Q, dtype=torch.float64)),
    "transposed heads": (
        lambda q, k, v: attend(*[x.transpose(1, 2) for x in (q, k, v)]),
        lambda: _heads(2, 6, 4, 8),
    ),
    "one packed projection": (
        lambda x: attend(*[y.unflatten(-1, (4, 8)).transpose(1, 2) for y in x.chunk(3, -1)]),
        lambda: [leaf(2, 6, 96)],
    ),
    "dropout": (lambda q, k, v: attend(q, k, v, dropout_p=0.4), lambda: _heads(*Q)),
    "dropout, causal": (
        lambda q, k, v: attend(q, k, v, dropout_p=0.4, is_causal=True),
        lambda: _heads(*Q),
    ),
    "no queries": (attend, lambda: [leaf(2, 4, 0, 8), *_heads(*Q)[1:]]),
    "long": (attend, lambda: _heads(1, 2, 200, 16)),
}


@pytest.mark.parametrize("gradient", [True, False], ids=["gradient", "no gradient"])
@pytest.mark.parametrize("name", CASES)
def test_attention(name: str, gradient: bool) -> None:
    """Values are those of the CPU, and so is the choice of the implementation."""
    function, make = CASES[name]
    names: list[list[str]] = []

    def run(*given: torch.Tensor) -> Any:
        with Calls() as calls:
            result = (with_gradients(function) if gradient else function)(*given)
        names.append(sorted(x for x in calls.names if "attention" in x or x == "bmm"))
        return result

    with torch.set_grad_enabled(gradient):
        assert_same(run, *make(), exact=name != "row without keys")
    assert names[0] == names[1]


def _ran(name: str) -> set[str]:
    function, make = CASES[name]
    given = [x.detach().to("flagos") for x in make()]
    with routing.report() as report:
        function(*given)
    assert report.fallbacks == ()
    return {row.operator.removeprefix("aten::") for row in report.rows}


@pytest.mark.parametrize("name", [x for x in CASES if "dropout" not in x and x != "no queries"])
def test_the_fused_kernel_runs_wherever_it_can(name: str) -> None:
    cannot = name in {"3-d", "5-d", "wide values"}
    assert (FUSED in _ran(name)) is not cannot


def test_a_mask_that_needs_a_gradient_gets_one() -> None:
    q, k, v, mask = (x.detach().to("flagos") for x in (*_heads(*Q), uneven((6, 6))))
    mask.requires_grad_()
    attend(q, k, v, mask).sum().backward()
    assert mask.grad is not None
    assert mask.grad.shape == (6, 6)
    assert mask.grad.device.type == "flagos"


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], ids=str)
def test_the_choice_can_be_forced(backend: SDPBackend) -> None:
    function, make = CASES["causal"]

    def run(*given: torch.Tensor) -> Any:
        with sdpa_kernel(backend), Calls() as calls:
            result = with_gradients(function)(*given)
        return result, [x for x in calls.names if "attention" in x]

    assert_same(run, *make())
    with sdpa_kernel(backend):
        assert (FUSED in _ran("causal")) is (backend == SDPBackend.FLASH_ATTENTION)


@pytest.mark.filterwarnings("ignore:.*attention:UserWarning")
def test_what_is_forced_but_impossible_is_refused() -> None:
    q, k, v = (x.detach().to("flagos") for x in _heads(*Q))
    with (
        sdpa_kernel(SDPBackend.FLASH_ATTENTION),
        pytest.warns(UserWarning, match="dropout"),
        pytest.raises(RuntimeError, match="No available kernel"),
    ):
        attend(q, k, v, dropout_p=0.5)


@pytest.mark.parametrize("name", [x for x in CASES if "dropout" not in x])
def test_fused_sdp_choice_answers_as_on_the_cpu(name: str) -> None:
    given = CASES[name][1]()
    if len(given) < 3:
        return
    expected, actual = both(lambda *x: torch._fused_sdp_choice(*x), *given)
    assert actual.result == expected.result


def test_tensors_of_two_devices_are_refused() -> None:
    q, k, v = _heads(*Q)
    with pytest.raises(RuntimeError):
        attend(q.to("flagos"), k, v)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # forward mode's
def test_attention_gradcheck() -> None:
    given = [
        x.detach().to("flagos").requires_grad_() for x in _heads(1, 2, 3, 4, dtype=torch.float64)
    ]
    assert torch.autograd.gradcheck(attend, given)
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.autograd.gradcheck(attend, given, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(attend, given)


def _filled(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        parameter.data = uneven(parameter.shape) / 3
    return module


PADDING = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 1, 1, 1]]).bool()
MULTIHEAD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "no weights": ({}, {"need_weights": False}),
    "weights per head": ({}, {"average_attn_weights": False}),
    "biasless": ({"bias": False}, {}),
    "extra keys": ({"add_bias_kv": True, "add_zero_attn": True}, {}),
    "own sizes": ({"kdim": 8, "vdim": 8}, {}),
    "padding": ({}, {"key_padding_mask": PADDING}),
    "mask": ({}, {"attn_mask": torch.ones(5, 5).triu(1).bool()}),
    "causal": (
        {},
        {"attn_mask": torch.ones(5, 5).triu(1).bool(), "is_causal": True, "need_weights": False},
    ),
    "mask and padding": (
        {},
        {"attn_mask": torch.ones(5, 5).triu(1).bool(), "key_padding_mask": PADDING},
    ),
}


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", MULTIHEAD)
def test_multihead_attention(name: str, training: bool) -> None:
    """In eval mode without gradients PyTorch takes its fast path, one operator for all."""
    options, call = MULTIHEAD[name]
    module = _filled(nn.MultiheadAttention(8, 2, batch_first=True, **options)).train(training)

    def run(x: torch.Tensor, masks: dict[str, Any]) -> Any:
        mine = nn.MultiheadAttention(8, 2, batch_first=True, **options)
        mine.load_state_dict(module.state_dict())
        return mine.to(x.device).train(training)(x, x, x, **masks)

    with torch.set_grad_enabled(training):
        assert_same(run, leaf(3, 5, 8), call)


def test_the_fast_path_of_multihead_attention_is_taken() -> None:
    module = _filled(nn.MultiheadAttention(8, 2, batch_first=True)).eval().to("flagos")
    x = uneven((3, 5, 8)).to("flagos")
    with torch.no_grad(), routing.report() as report:
        module(x, x, x)
    assert "aten::_native_multi_head_attention" in {row.operator for row in report.rows}


def _encoder(**options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, **options)
    return _filled(nn.TransformerEncoder(layer, 2, enable_nested_tensor=not options))


@pytest.mark.parametrize(
    "options",
    [{}, {"norm_first": True}, {"activation": "gelu"}, {"bias": False}],
    ids=["plain", "norm first", "gelu", "biasless"],
)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_encoder(training: bool, options: dict[str, Any]) -> None:
    with torch.set_grad_enabled(training):
        assert_same(through(_encoder(**options).train(training)), leaf(3, 5, 8))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_encoder_with_padding(training: bool) -> None:
    """In eval mode PyTorch packs the unpadded positions and fills the rest with zeros."""

    def run(x: torch.Tensor, padding: torch.Tensor) -> Any:
        mine = _encoder().train(training).to(x.device)
        output = mine(x, src_key_padding_mask=padding)
        assert output.shape == x.shape
        return output.masked_fill(padding[..., None], 0)

    with torch.set_grad_enabled(training):
        assert_close(run, uneven((3, 5, 8)), PADDING)


def test_transformer() -> None:
    module = _filled(nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True))
    target_mask = nn.Transformer.generate_square_subsequent_mask(4)
    with torch.no_grad():
        assert_same(lambda x, y, mask: _run(module, x, y, mask), uneven((2, 5, 8)),
                    uneven((2, 4, 8)), target_mask)  # fmt: skip


def _run(module: nn.Module, x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    mine = nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True)
    mine.load_state_dict(module.state_dict())
    return mine.to(x.device)(x, y, tgt_mask=mask, tgt_is_causal=True)


def test_decoder_forward_and_backward() -> None:
    layer = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True)
    assert_same(through(_filled(nn.TransformerDecoder(layer, 2))), leaf(2, 4, 8), leaf(2, 5, 8))
