"""Owns: tests of higher-order operators, users' operators and routes under the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from against_cpu import FLAGOS, compiled, same
from children import output_of_child
from torch._inductor.utils import run_and_get_code
from torch.nn import functional as F

from torch_fl import routing

pytestmark = pytest.mark.usefixtures("fresh_compiler")


# -- higher-order operators


def _cond(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin() * x, lambda x: x.cos(), (x,))


def _while_loop(x: torch.Tensor) -> torch.Tensor:
    from torch._higher_order_ops.while_loop import while_loop

    def more(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return i < 5

    def step(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, x * 1.5

    start = torch.zeros((), dtype=torch.int64, device=x.device)
    return while_loop(more, step, (start, x))[1]


def _scan(x: torch.Tensor) -> torch.Tensor:
    from torch._higher_order_ops.scan import scan

    start = torch.zeros(3, device=x.device)
    return scan(lambda total, x: (total + x, total * x), start, x)[1]


def _associative_scan(x: torch.Tensor) -> torch.Tensor:
    from torch._higher_order_ops.associative_scan import associative_scan

    return associative_scan(lambda a, b: a + b, x, dim=0, combine_mode="generic")


@torch.compiler.nested_compile_region
def _region(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def _invoke_subgraph(x: torch.Tensor) -> torch.Tensor:
    return _region(_region(x)) * 2


@pytest.mark.parametrize(
    "function",
    [
        _cond,
        _while_loop,
        _invoke_subgraph,
        pytest.param(_scan, marks=pytest.mark.slow),
        pytest.param(_associative_scan, marks=pytest.mark.slow),
    ],
)
def test_higher_order_operators(function: Callable[..., torch.Tensor]) -> None:
    learns = function in (_cond, _invoke_subgraph)
    run = compiled(function, fullgraph=True)
    for sign in (1, -1):
        theirs = torch.rand(4, 3) * sign
        ours = theirs.to(FLAGOS).requires_grad_(learns)
        theirs.requires_grad_(learns)
        want = function(theirs)
        got = run(ours)
        same(got.detach(), want.detach())
        if learns:
            want.sum().backward()
            got.sum().backward()
            same(ours.grad, theirs.grad)


def test_flex_attention() -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def bias(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return score + (i - j) * 0.01

    def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
        return i >= j

    q = torch.randn(1, 2, 128, 16)
    ours, key, value = (q.clone().to(FLAGOS) for _ in range(3))  # (2.11 wants three)
    mask = create_block_mask(causal, None, None, 128, 128, device=FLAGOS)
    run = compiled(flex_attention, fullgraph=True)
    with torch.no_grad():
        got = run(ours, key, value, score_mod=bias, block_mask=mask)
    i = torch.arange(128)
    scores = q @ q.transpose(-1, -2) / 4 + (i[:, None] - i) * 0.01
    scores = scores.masked_fill(i[:, None] < i, -torch.inf)
    torch.testing.assert_close(got.cpu(), scores.softmax(-1) @ q, rtol=1e-3, atol=1e-3)


# -- users' operators, and routes


def test_users_operators_run_where_they_run_eagerly() -> None:
    seen: list[str] = []

    @torch.library.custom_op("torch_fl_test::everywhere", mutates_args=())
    def everywhere(x: torch.Tensor) -> torch.Tensor:
        seen.append(f"everywhere {x.device.type}")
        return x * 2

    @torch.library.custom_op("torch_fl_test::on_cpu", mutates_args=(), device_types="cpu")
    def on_cpu(x: torch.Tensor) -> torch.Tensor:
        seen.append(f"on_cpu {x.device.type}")
        return x * 3

    @torch.library.custom_op("torch_fl_test::add_", mutates_args={"x"}, device_types=FLAGOS)
    def add_(x: torch.Tensor, k: float) -> None:
        seen.append(f"add_ {x.device.type}")
        x.add_(k)

    everywhere.register_fake(torch.empty_like)
    on_cpu.register_fake(torch.empty_like)
    add_.register_fake(lambda x, k: None)
    everywhere.register_autograd(lambda context, gradient: gradient * 2)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        add_(y, 2.0)
        return on_cpu(everywhere(y))

    x = torch.zeros(3, device=FLAGOS)
    want = function(x)
    eagerly = seen.copy()
    seen.clear()
    assert torch.equal(compiled(function, fullgraph=True)(x), want)
    assert seen == eagerly == ["add_ flagos", "everywhere flagos", "on_cpu cpu"]
    x.requires_grad_()
    compiled(lambda x: everywhere(x).sin().sum(), fullgraph=True)(x).backward()
    same(x.grad, torch.full((3,), 2.0))


def test_routed_operators_stay_calls() -> None:
    calls: list[str] = []

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        calls.append("mm")
        return torch.full((a.shape[0], b.shape[1]), 7.0, device=a.device)

    def bent(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
        calls.append("gelu")  # PyTorch decomposes it, unless it is routed
        return x + 100

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.gelu((a @ b).relu() + 1)

    a, b = torch.randn(3, 4, device=FLAGOS), torch.randn(4, 5, device=FLAGOS)
    routing.set({"mm": product, "gelu": bent, "add": "cpu"})
    try:
        got = compiled(function)(a, b)
    finally:
        routing.reset()
    assert got.tolist() == [[108.0] * 5] * 3
    assert calls == ["mm", "gelu"]
    torch._dynamo.reset()
    same(compiled(function)(a, b), function(a.cpu(), b.cpu()))
    assert calls == ["mm", "gelu"]


def test_default_routes_leave_operators_to_the_compiler(tmp_path: Any) -> None:
    routes = tmp_path / "routes.conf"
    routes.write_text("default = cpu, boxing\nsin = boxing\nmul* = cpu\n")
    said = output_of_child(
        """
        import torch, torch_fl
        from torch_fl.compile import routed
        print(sorted(name for name in routed.names() if "." not in name or "Tensor" in name))
        """,
        FLAGOS_BACKEND_CONFIG=str(routes),
    )
    assert "aten::mul.Tensor" in said
    assert "aten::sin" not in said
    assert "aten::add.Tensor" not in said


def test_attention_is_the_compilers_own_where_nothing_is_dropped() -> None:
    """It is among the operators that draw random numbers; those are called as flagos' own."""
    q = torch.randn(2, 4, 16, 8)
    mask = torch.ones(16, 16, dtype=torch.bool).tril()
    attend = F.scaled_dot_product_attention
    ours = q.to(FLAGOS)
    run = compiled(lambda q, mask: attend(q, q, q, mask))
    result, (code,) = run_and_get_code(run, ours, mask.to(FLAGOS))
    same(result, attend(q, q, q, mask))
    assert "_scaled_dot_product_flash_attention_for_cpu.default" in code
    assert "torch_fl_eager" not in code
    torch.manual_seed(0)
    drops = compiled(lambda q: attend(q, q, q, dropout_p=0.5))
    assert not torch.equal(drops(ours), drops(ours))
