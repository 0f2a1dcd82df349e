"""Owns: tests that attention on a runtime that stands on another device of PyTorch takes what that
device would take. Its fused implementations are written here, in Python: what they are given, and
the gradients, are compared with the CPU's math path.
"""

from __future__ import annotations

import math

import pytest
import torch
from functorch.compile import make_boxed_func
from parity import uneven
from pretend_device.processes import on_pretend_device
from torch._dynamo.backends.common import aot_autograd
from torch.nn import functional
from torch.nn.attention import SDPBackend

Tensor = torch.Tensor


class Target:
    """The pretend device's attention: `choice` is what it takes, `ran` is what it was given."""

    def __init__(self) -> None:
        self.choice = SDPBackend.MATH
        self.ran: list[tuple[str, tuple[int, ...], bool]] = []
        self.mask: Tensor | None = None
        self._library = library = torch.library.Library("aten", "IMPL")
        for name in ("flash", "efficient", "cudnn"):
            operator = f"_scaled_dot_product_{name}_attention"
            library.impl(operator, getattr(self, name), "HPU")
            library.impl(f"{operator}_backward", getattr(self, f"{name}_backward"), "HPU")
        library.impl("_fused_sdp_choice", lambda *_, **__: int(self.choice.value), "HPU")

    def _forward(self, name: str, q, k, v, mask, causal, scale, lse: bool):
        assert {t.device.type for t in (q, k, v)} == {"hpu"}
        self.ran.append((name, tuple(q.shape), lse))
        self.mask = mask
        probabilities = self._probabilities(q, k, mask, causal, scale)
        return probabilities @ v, torch.zeros(q.shape[:-1], device=q.device)

    @staticmethod
    def _probabilities(q, k, mask, causal, scale) -> Tensor:
        scores = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
        if causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(hidden, -math.inf)
        return (scores if mask is None else scores + mask).softmax(-1)

    def _backward(self, grad, q, k, v, mask, causal, scale):
        scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
        p = self._probabilities(q, k, mask, causal, scale)
        dp = grad @ v.mT
        ds = p * (dp - (dp * p).sum(-1, keepdim=True))
        return ds @ k * scale, ds.mT @ q * scale, p.mT @ grad, ds

    def flash(self, q, k, v, dropout_p=0.0, causal=False, debug=False, *, scale=None):
        out, lse = self._forward("flash", q, k, v, None, causal, scale, lse=True)
        state = torch.zeros(2, dtype=torch.int64, device=q.device)
        none = torch.empty(0, device=q.device)
        return out, lse, none, none, q.shape[2], k.shape[2], state, state, none

    def flash_backward(self, grad, q, k, v, out, lse, cq, ck, mq, mk, p, causal, *_, scale=None):
        return self._backward(grad, q, k, v, None, causal, scale)[:3]

    def efficient(self, q, k, v, bias, lse, dropout_p=0.0, causal=False, *, scale=None):
        out, sums = self._forward("efficient", q, k, v, bias, causal, scale, lse)
        state = torch.zeros((), dtype=torch.int64)
        return out, sums, state, state

    def efficient_backward(self, grad, q, k, v, bias, *rest, scale=None):
        wanted, causal = (*rest, False)[5:7]  # after out, lse, seed, offset, dropout_p
        gradients = self._backward(grad, q, k, v, bias, causal, scale)
        return *gradients[:3], gradients[3] if wanted[3] else None

    def cudnn(self, q, k, v, bias, lse, dropout_p=0.0, causal=False, debug=False, *, scale=None):
        out, sums = self._forward("cudnn", q, k, v, bias, causal, scale, lse)
        state = torch.zeros((), dtype=torch.int64, device=q.device)
        none = torch.empty(0, device=q.device)
        return out, sums, none, none, q.shape[2], k.shape[2], state, state, none

    def cudnn_backward(self, grad, q, k, v, *rest, scale=None):
        bias, causal = rest[4], rest[10]  # after out, lse, seed, offset; and the lengths, dropout_p
        return self._backward(grad, q, k, v, bias, causal, scale)[:3]


def _compare(target: Target, width: int, mask: Tensor | None, **how: object) -> None:
    """Forward and backward against the CPU."""
    shapes = [(2, 3, 5, width), (2, 3, 7, width), (2, 3, 7, width)]
    results = []
    for device in ("cpu", "flagos:1"):
        q, k, v = (
            (uneven(shape) + i / 3).to(device).requires_grad_() for i, shape in enumerate(shapes)
        )
        target.ran.clear()
        given = None if mask is None else mask.to(device)
        y = functional.scaled_dot_product_attention(q, k, v, given, **how)
        y.square().sum().backward()
        assert y.device.type == q.grad.device.type == torch.device(device).type
        results.append([t.detach().cpu() for t in (y, q.grad, k.grad, v.grad)])
    torch.testing.assert_close(results[1], results[0])


@on_pretend_device
def test_attention_takes_what_the_target_takes() -> None:
    target = Target()
    for width in (8, 5):  # heads are padded to multiples of 8, and scaled as they were
        target.choice = SDPBackend.FLASH_ATTENTION
        _compare(target, width, None)
        assert target.ran == [("flash", (2, 3, 5, 8), True)]
        _compare(target, width, None, is_causal=True, scale=0.3)
    booleans = uneven((2, 1, 5, 7)) > 0
    booleans[..., 0] = True
    for mask in (None, booleans, uneven((5, 7)), booleans[0, 0]):
        for name in ("efficient", "cudnn"):
            target.choice = getattr(SDPBackend, f"{name.upper()}_ATTENTION")
            _compare(target, 5, mask)
            assert target.ran == [(name, (2, 3, 5, 5), True)]
        target.choice = SDPBackend.MATH
        _compare(target, 5, mask)
        assert target.ran == []
    target.choice = SDPBackend.EFFICIENT_ATTENTION
    _compare(target, 5, booleans)
    assert target.mask.shape == (2, 3, 5, 7)
    assert target.mask.stride(-2) == 8
    for mask, strides in (
        (uneven((5, 8))[:, :7], (0, 0, 8, 1)),  # rows that begin where they should stay
        (uneven((5, 9))[:, :7], (0, 0, 8, 1)),
        (uneven((7, 5)).mT, (0, 0, 8, 1)),  # a row that is no row
        (uneven((1, 7)), (0, 0, 0, 1)),
    ):
        _compare(target, 5, mask)
        assert target.mask.stride() == strides, mask.stride()
    with torch.no_grad():
        x = torch.ones(1, 2, 3, 4, device="flagos")
        functional.scaled_dot_product_attention(x, x, x)
    assert target.ran[-1] == ("efficient", (1, 2, 3, 4), False)  # no sums where nobody goes back


@on_pretend_device
def test_gradients_reach_a_masks_bias() -> None:
    target = Target()
    target.choice = SDPBackend.EFFICIENT_ATTENTION
    grads = []
    for device in ("cpu", "flagos"):
        bias = uneven((5, 7)).to(device).requires_grad_()
        q, k = uneven((2, 3, 5, 8)).to(device), uneven((2, 3, 7, 8)).to(device)
        functional.scaled_dot_product_attention(q, k, k, bias).square().sum().backward()
        grads.append(bias.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0])
    assert target.ran


@on_pretend_device
def test_malformed_calls_have_the_errors_of_every_device() -> None:
    target = Target()
    target.choice = SDPBackend.FLASH_ATTENTION
    attend = functional.scaled_dot_product_attention
    x = torch.ones(1, 2, 3, 8, device="flagos")
    with pytest.raises(RuntimeError, match="same dtype"):
        attend(x, x.double(), x)
    with pytest.raises(RuntimeError, match=r"at least 2 dimensional|at least 2D"):
        attend(x[0, 0, 0], x, x)
    with pytest.raises(RuntimeError, match="attn_mask dtype"):
        attend(x, x, x, torch.ones(3, 3, device="flagos", dtype=torch.int64))
    with pytest.raises(RuntimeError, match=r"same device.*flagos:0|flagos:1"):
        attend(x, x.to("flagos:1"), x)
    assert not target.ran
    assert attend(x, x, x).shape == x.shape
    assert target.ran


@on_pretend_device
def test_transforms_of_functions_have_the_cpus_results() -> None:
    target = Target()

    def loss(t: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(t, t, t).square().sum()

    x = uneven((4, 2, 3, 8))
    for choice in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):
        target.choice = getattr(SDPBackend, choice)
        for transform in (torch.vmap, torch.func.grad, torch.func.vjp):
            if transform is torch.func.vjp:
                want, got = (transform(loss, t)[1](t.new_ones(()))[0] for t in (x, x.to("flagos")))
            else:
                want, got = transform(loss)(x), transform(loss)(x.to("flagos"))
            torch.testing.assert_close(got.cpu(), want)
    assert {name for name, *_ in target.ran} == {"flash", "efficient"}


class Traced:
    """The operators of each graph that is compiled with `backend`, by their names."""

    def __init__(self) -> None:
        self.graphs: list[list[str]] = []
        self.backend = aot_autograd(fw_compiler=self._keep, bw_compiler=self._keep)

    def _keep(self, graph, inputs):
        self.graphs.append([str(n.target) for n in graph.graph.nodes if n.op == "call_function"])
        return make_boxed_func(graph.forward)


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v)


@on_pretend_device
def test_compiled_attention_takes_what_the_target_takes() -> None:
    """Tracers' tensors have no memory that could be shown to the target."""
    target = Target()
    for choice in ("flash", "efficient", "cudnn"):
        target.choice = getattr(SDPBackend, f"{choice.upper()}_ATTENTION")
        for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            torch._dynamo.reset()
            traced = Traced()
            with mode():
                q = torch.ones(2, 3, 5, 8, device="flagos", requires_grad=mode is torch.enable_grad)
                torch.compile(_attend, backend=traced.backend)(q, q, q)
            first, *_ = traced.graphs
            assert f"aten._scaled_dot_product_{choice}_attention.default" in first, first
            assert not any("bmm" in name for name in first)
    target.choice = SDPBackend.MATH
    torch._dynamo.reset()
    traced = Traced()
    torch.compile(_attend, backend=traced.backend)(q, q, q)
    assert any("bmm" in name for name in traced.graphs[0])


@on_pretend_device
def test_the_choice_keeps_lengths_symbolic() -> None:
    target = Target()
    target.choice = SDPBackend.EFFICIENT_ATTENTION
    traced = Traced()
    compiled = torch.compile(
        lambda q, mask: functional.scaled_dot_product_attention(q, q, q, mask),
        backend=traced.backend,
        dynamic=True,
    )
    for length in (5, 7, 19):
        q = uneven((2, 3, length, 8))
        mask = uneven((length, length))
        expected = functional.scaled_dot_product_attention(q, q, q, mask)
        torch.testing.assert_close(compiled(q.to("flagos"), mask.to("flagos")).cpu(), expected)
    assert len(traced.graphs) == 1
