"""Owns: tests of torch.autocast("flagos") and GradScaler: the policy of every operator in PyTorch's
lists, nesting and scope, the cache, custom functions, and the loop that skips infinite steps."""

from __future__ import annotations

import math
import re
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from parity import assert_close, uneven
from torch import nn
from torch.nn import functional
from torch.testing._internal.autocast_test_lists import AutocastTestLists
from torch.utils.checkpoint import checkpoint

import torch_fl  # noqa: F401  (makes the device)

D = "flagos"
LOW = [torch.float16, torch.bfloat16]
LISTS = AutocastTestLists(torch.device(D))
ELSEWHERE = ("cudnn_",)


def _policies() -> dict[str, list[str]]:
    """Operators by policy, with overloads, as the installed header lists them."""
    header = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
    text = header.read_text()
    found: dict[str, list[str]] = {}
    for policy in ("LOWER_PRECISION_FP", "FP32", "FP32_SET_OPT_DTYPE", "PROMOTE"):
        body = re.search(rf"#define AT_FORALL_{policy}\(_\)((?:.*\\\n)*.*\n)", text)
        assert body is not None, f"the header has no list {policy}"
        entries = re.findall(r"_\((\w+)(?:, (\w+))?\)", body[1])
        found[policy] = [f"{name}.{overload}".rstrip(".") for name, overload in entries]
    return found


POLICIES = _policies()


def test_every_operator_of_the_lists_has_a_policy_of_its_own() -> None:
    assert sum(map(len, POLICIES.values())) > 80
    registered = torch._C._dispatch_has_kernel_for_dispatch_key
    missing = [
        name
        for names in POLICIES.values()
        for name in names
        if not registered(f"aten::{name}", "AutocastPrivateUse1")
    ]
    assert missing == []
    assert registered("aten::norm.Scalar", "AutocastPrivateUse1")
    assert registered("aten::binary_cross_entropy", "AutocastPrivateUse1")


def _entries(*names: str) -> list[Any]:
    """(module, operator, arguments, keywords) of PyTorch's own samples, as test parameters."""
    modules = {"torch": torch, "nn": torch._C._nn, "linalg": torch._C._linalg}
    found = []
    for name in names:
        for entry in getattr(LISTS, name):
            operator, arguments = entry[0], entry[1]
            if isinstance(arguments, str) or operator.startswith(ELSEWHERE):
                continue  # einsum has its equation where the others have arguments
            keywords = entry[2] if len(entry) > 2 and isinstance(entry[2], dict) else {}
            module = modules.get(name.split("_")[0])
            found.append(pytest.param(module, operator, arguments, keywords, id=operator))
    return found


def _call(module: Any, operator: str, arguments: Any, keywords: Any) -> Any:
    if module is None:
        return getattr(arguments[0], operator)(*arguments[1:], **keywords)
    return getattr(module, operator)(*arguments, **keywords)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, (tuple, list)):
        return type(value)(_cast(x, dtype) for x in value)
    return value


def _first(result: Any) -> torch.Tensor:
    return result[0] if isinstance(result, (tuple, list)) else result


def _runs_as(dtype: torch.dtype, low: torch.dtype, call: tuple[Any, ...]) -> None:
    """The call gives, bit for bit, what it gives with its inputs cast to `dtype` by hand."""
    module, operator, arguments, keywords = call
    with torch.autocast(D, dtype=low):
        actual = _first(_call(module, operator, arguments, keywords))
        assert torch.is_autocast_enabled(D)
    expected = _first(_call(module, operator, _cast(arguments, dtype), keywords))
    assert actual.dtype == expected.dtype == dtype
    assert actual.device.type == "flagos"
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.filterwarnings("ignore:.*chain_matmul is deprecated:UserWarning")
@pytest.mark.parametrize("low", LOW, ids=str)
@pytest.mark.parametrize(
    ("module", "operator", "arguments", "keywords"),
    _entries("torch_fp16", "nn_fp16", "linalg_fp16", "methods_fp16"),
)
def test_lower_precision(
    module: Any, operator: str, arguments: Any, keywords: Any, low: torch.dtype
) -> None:
    _runs_as(low, low, (module, operator, arguments, keywords))


@pytest.mark.parametrize(
    ("module", "operator", "arguments", "keywords"),
    _entries("torch_fp32", "nn_fp32", "methods_fp32"),
)
def test_single_precision(module: Any, operator: str, arguments: Any, keywords: Any) -> None:
    _runs_as(torch.float32, torch.float16, (module, operator, arguments, keywords))


@pytest.mark.filterwarnings("ignore:Using torch.cross without specifying the dim:UserWarning")
@pytest.mark.parametrize(
    ("module", "operator", "arguments", "keywords"), _entries("torch_need_autocast_promote")
)
def test_promotion(module: Any, operator: str, arguments: Any, keywords: Any) -> None:
    _runs_as(torch.float32, torch.float16, (module, operator, arguments, keywords))


def test_promotion_stays_low_when_all_is_low() -> None:
    x = torch.ones(3, device=D, dtype=torch.float16)
    with torch.autocast(D, dtype=torch.float16):
        assert torch.addcmul(x, x, x).dtype == torch.float16
        assert torch.dot(x, x).dtype == torch.float16


def test_double_is_left_alone() -> None:
    x = torch.ones(3, 3, device=D, dtype=torch.float64)
    with torch.autocast(D, dtype=torch.float16):
        assert (x @ x).dtype == torch.float64
        assert x.exp().dtype == torch.float64
        assert (x.long() + x.long()).dtype == torch.int64


def test_attention_and_einsum() -> None:
    q = torch.ones(2, 2, 5, 4, device=D)
    with torch.autocast(D, dtype=torch.bfloat16):
        assert functional.scaled_dot_product_attention(q, q, q).dtype == torch.bfloat16
        assert torch.einsum("bhij,bhkj->bhik", q, q).dtype == torch.bfloat16
        assert functional.softmax(q.half(), -1).dtype == torch.float32
        assert functional.softmax(q.half(), -1, dtype=torch.float16).dtype == torch.float16
        assert q.half().sum(dtype=torch.float64).dtype == torch.float64
        assert nn.LSTM(4, 3).to(D)(q[0])[0].shape == (2, 5, 3)


def test_what_is_unsafe_is_refused() -> None:
    p = torch.full((3,), 0.5, device=D, requires_grad=True)
    with torch.autocast(D, dtype=torch.float16):
        for loss in (functional.binary_cross_entropy, nn.BCELoss()):
            with pytest.raises(RuntimeError, match="unsafe to autocast"):
                loss(p, p.detach())
        functional.binary_cross_entropy_with_logits(p, p.detach()).backward()
        with torch.autocast(D, enabled=False):
            functional.binary_cross_entropy(p, p.detach()).backward()
    assert p.grad is not None


def _product(device: str = D) -> torch.dtype:
    return (torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)).dtype


def test_nesting() -> None:
    assert _product() == torch.float32
    with torch.autocast(D, dtype=torch.float16):
        assert _product() == torch.float16
        with torch.autocast(D, dtype=torch.bfloat16):
            assert _product() == torch.bfloat16
            with torch.autocast(D, enabled=False):
                assert _product() == torch.float32
                with torch.autocast(D):
                    assert _product() == torch.get_autocast_dtype(D)
            assert _product() == torch.bfloat16
        assert _product() == torch.float16
        with pytest.raises(ZeroDivisionError), torch.autocast(D, dtype=torch.bfloat16):
            _ = 1 / 0
        assert _product() == torch.float16
    assert _product() == torch.float32
    assert not torch.is_autocast_enabled(D)
    again = torch.autocast(D, dtype=torch.bfloat16)
    for _ in range(2):
        with again:
            assert _product() == torch.bfloat16


def test_decorators_and_the_devices_own_form() -> None:
    @torch.autocast(D, dtype=torch.bfloat16)
    def decorated() -> torch.dtype:
        return _product()

    assert decorated() == torch.bfloat16
    assert _product() == torch.float32
    with torch.flagos.amp.autocast(dtype=torch.float16):
        assert _product() == torch.float16
    assert torch.amp.autocast_mode.is_autocast_available(D)


def test_a_dtype_that_is_not_supported_switches_it_off_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="autocast"), torch.autocast(D, dtype=torch.int32):
        assert _product() == torch.float32


def test_the_regions_of_two_devices_do_not_touch_each_other() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert _product("cpu") == torch.bfloat16
        assert _product(D) == torch.float32
        with torch.autocast(D, dtype=torch.float16):
            assert _product("cpu") == torch.bfloat16
            assert _product(D) == torch.float16
            assert torch.ones(2, 2, device=D).half().exp().dtype == torch.float32
        x = torch.ones(3, 3, device=D, requires_grad=True)
        y = (x @ x).sum()
    y.backward()
    assert x.grad.dtype == torch.float32
    with torch.autocast(D, dtype=torch.float16):
        assert _product("cpu") == torch.float32
        # A kernel of the CPU inside boxing must not be cast by the CPU's region either.
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = functional.conv2d(
                torch.ones(1, 1, 4, 4, device=D), torch.ones(1, 1, 2, 2, device=D)
            )
        assert out.dtype == torch.float16


def test_boxed_compositions_are_not_cast_inside() -> None:
    """With only the CPU's region active, flagos operators compute in float32 throughout."""

    def run(x: torch.Tensor) -> Any:
        return (
            torch.linalg.multi_dot([x, x, x]), functional.linear(x, x), nn.functional.gelu(x),
            torch.cdist(x, x), functional.scaled_dot_product_attention(x, x, x),
            torch.addbmm(x, x[None], x[None]), torch.linalg.matrix_exp(x),
        )  # fmt: skip

    x = uneven((4, 4)).to(D)
    plain = run(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = run(x)
    for a, b in zip(plain, inside, strict=True):
        assert b.dtype == torch.float32
        assert torch.equal(a, b)


def test_threads_and_backward_have_their_own_state() -> None:
    seen: list[Any] = []

    def work() -> None:
        seen.append(_product())

    x = torch.ones(2, 2, device=D, requires_grad=True)
    with torch.autocast(D, dtype=torch.float16):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        y = x @ x
    y.register_hook(lambda grad: seen.append((grad.dtype, torch.is_autocast_enabled(D))))
    y.float().sum().backward()
    assert seen == [torch.float32, (torch.float16, False)]
    assert x.grad.dtype == torch.float32


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation_runs_under_the_same_policy(reentrant: bool) -> None:
    seen: list[torch.dtype] = []

    def block(x: torch.Tensor) -> torch.Tensor:
        y = x @ x
        seen.append(y.dtype)
        return y.sin()  # saves y, so that the recomputation comes this far

    x = torch.ones(2, 2, device=D, requires_grad=True)
    with torch.autocast(D, dtype=torch.bfloat16):
        y = checkpoint(block, x, use_reentrant=reentrant)
    y.float().sum().backward()
    assert seen == [torch.bfloat16] * 2


def test_weights_are_cast_once_in_a_region() -> None:
    weight = torch.ones(200, 200, device=D, requires_grad=True)
    x = torch.ones(1, 200, device=D)
    with torch.autocast(D, dtype=torch.float16):
        first = functional.linear(x, weight)
        held = torch.flagos.memory_allocated()
        second = functional.linear(x, weight)
        assert torch.flagos.memory_allocated() - held < 200 * 200 * 2, "the weight was cast again"
    outside = torch.flagos.memory_allocated()
    assert first.grad_fn is not None
    (first + second).float().sum().backward()
    assert weight.grad.unique().tolist() == [2.0]
    del first, second
    assert outside < held, "the cache is emptied at the end of the region"
    weight.grad = None
    with torch.autocast(D, dtype=torch.float16, cache_enabled=False):
        functional.linear(x, weight)
        assert torch.is_autocast_cache_enabled() is False
    with torch.autocast(D, dtype=torch.float16):
        before = functional.linear(x, weight).sum().item()
        with torch.no_grad():
            weight.mul_(2)
    with torch.autocast(D, dtype=torch.float16):
        assert functional.linear(x, weight).sum().item() == 2 * before
        torch.clear_autocast_cache()


def test_custom_functions() -> None:
    seen: list[Any] = []

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=D)
        def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(a, b)
            seen.append((a.dtype, torch.is_autocast_enabled(D)))
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type=D)
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            a, b = ctx.saved_tensors
            seen.append((grad.dtype, torch.is_autocast_enabled(D)))
            return grad @ b.t(), a.t() @ grad

    class Single(Product):
        @staticmethod
        @torch.amp.custom_fwd(device_type=D, cast_inputs=torch.float32)
        def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(a, b)
            seen.append((a.dtype, torch.is_autocast_enabled(D)))
            return a @ b

    a = torch.ones(2, 2, device=D, requires_grad=True)
    with torch.autocast(D, dtype=torch.float16):
        y = Product.apply(a, a)
        assert y.dtype == torch.float16
    y.float().sum().backward()
    assert seen == [(torch.float32, True), (torch.float16, True)]
    assert a.grad.dtype == torch.float32
    seen.clear()
    half = torch.ones(2, 2, device=D, dtype=torch.float16, requires_grad=True)
    with torch.autocast(D, dtype=torch.float16):
        y = Single.apply(half, half)
        assert y.dtype == torch.float32
    y.sum().backward()
    assert seen == [(torch.float32, False), (torch.float32, False)]
    assert half.grad.dtype == torch.float16


def _model() -> tuple[nn.Module, torch.optim.Optimizer]:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    for parameter in net.parameters():
        parameter.data = uneven(parameter.shape) / 2
    return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def test_scaled_training_follows_the_cpu() -> None:
    def train(x: torch.Tensor, y: torch.Tensor) -> Any:
        net, _ = _model()
        net = net.to(x.device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        kind = x.device.type
        scaler = torch.amp.GradScaler(kind, init_scale=2.0**10, growth_interval=4)
        losses, scales = [], []
        for _ in range(10):
            optimizer.zero_grad()
            with torch.autocast(kind, dtype=torch.bfloat16):
                loss = functional.mse_loss(net(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
            scales.append(scaler.get_scale())
        assert losses[-1] < losses[0]
        return losses, scales

    assert_close(train, uneven((6, 4)), uneven((6, 2)))


@pytest.mark.parametrize("unscale", [True, False])
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_an_infinite_step_is_skipped(bad: float, unscale: bool) -> None:
    net, optimizer = _model()
    net = net.to(D)
    optimizer = torch.optim.AdamW(net.parameters())
    scaler = torch.amp.GradScaler(D, init_scale=2.0**8, growth_interval=2)
    assert scaler.get_scale() == 2.0**8
    scales = []
    for step in range(5):
        optimizer.zero_grad()
        before = [x.detach().clone() for x in net.parameters()]
        with torch.autocast(D, dtype=torch.float16):
            loss = net(torch.ones(3, 4, device=D)).float().sum()
        scaler.scale(loss).backward()
        if step == 1:
            net[0].weight.grad[0, 0] = bad
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        changed = any(not torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
        assert changed is (step != 1)
    assert scales == [2.0**8, 2.0**7, 2.0**7, 2.0**8, 2.0**8]
    assert scaler._scale.device.type == "flagos"


def test_the_scalers_own_ways() -> None:
    _, optimizer = _model()
    scaler = torch.flagos.amp.GradScaler(init_scale=4.0)
    assert isinstance(scaler, torch.amp.GradScaler)
    assert scaler.is_enabled()
    assert scaler.scale(torch.ones((), device=D)).item() == 4.0
    assert [x.item() for x in scaler.scale([torch.ones((), device=D)] * 2)] == [4.0] * 2
    state = scaler.state_dict()
    other = torch.amp.GradScaler(D)
    other.load_state_dict(state)
    assert other.get_scale() == 4.0
    scaler.update(8.0)
    assert scaler.get_scale() == 8.0
    scaler.update(torch.full((), 2.0, device=D))
    assert scaler.get_scale() == 2.0
    off = torch.amp.GradScaler(D, enabled=False)
    loss = torch.ones((), device=D)
    assert off.scale(loss) is loss
    with pytest.raises(AssertionError):
        scaler.step(optimizer)  # nothing was scaled or unscaled for it


def test_fused_optimizers_take_the_scale_themselves() -> None:
    def run(x: torch.Tensor) -> Any:
        kind = x.device.type
        net = nn.Linear(4, 2)
        for parameter in net.parameters():
            parameter.data = uneven(parameter.shape)
        net = net.to(x.device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, fused=True)
        scaler = torch.amp.GradScaler(kind, init_scale=16.0)
        for bad in (False, True, False):
            optimizer.zero_grad()
            scaler.scale(net(x).square().sum()).backward()
            if bad:
                net.weight.grad.fill_(math.inf)
            scaler.step(optimizer)
            scaler.update()
        return [y.detach().clone() for y in net.parameters()], scaler.get_scale()

    assert_close(run, uneven((3, 4)))


# -- layers with a fast path


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_fused_layers_leave_their_way_under_autocast(dtype: torch.dtype) -> None:
    """In evaluation without gradients PyTorch's attention layers have a way below autocast."""
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(16, 2, batch_first=True).to(D).eval()
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0).to(D)
    net = nn.Sequential(nn.Linear(16, 16), nn.TransformerEncoder(layer, 2)).to(D).eval()
    x = uneven((2, 5, 16)).to(D)
    plain = net(x)
    with torch.autocast(D, dtype=dtype):
        with torch.no_grad():
            assert attention(x, x, x, need_weights=False)[0].dtype is dtype
            fused = net(x)
        composed = net(x)
    assert torch.equal(fused, composed)
    assert not torch.equal(fused, plain)
    torch.testing.assert_close(fused, plain, rtol=0.1, atol=0.1)


def test_the_switch_of_the_fast_path_stays_the_users() -> None:
    mha = torch.backends.mha
    assert mha.get_fastpath_enabled()
    with torch.autocast("cpu"):
        assert mha.get_fastpath_enabled()
    with torch.autocast(D):
        assert not mha.get_fastpath_enabled()
        with torch.autocast(D, enabled=False):
            assert mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        assert not mha.get_fastpath_enabled()
    finally:
        mha.set_fastpath_enabled(True)


@pytest.mark.filterwarnings("ignore")
def test_scripted_and_compiled_layers() -> None:
    attention = nn.MultiheadAttention(16, 2, batch_first=True).to(D).eval()
    x = uneven((2, 5, 16)).to(D)
    scripted = torch.jit.script(attention)
    compiled = torch.compile(attention, backend="eager")
    with torch.no_grad():
        plain = attention(x, x, x)[0]
        for layer in (scripted, compiled):
            torch.testing.assert_close(layer(x, x, x)[0], plain)
        with torch.autocast(D, dtype=torch.bfloat16):
            assert compiled(x, x, x)[0].dtype is torch.bfloat16
