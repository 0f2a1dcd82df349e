"""Owns: tests of routes in force: what runs, by which layer, for which thread and dtype."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

import torch_fl
from torch_fl import _C, routing

X = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


@pytest.fixture(autouse=True)
def own_routes() -> Iterator[None]:
    routing.reset()
    yield
    routing.reset()


def ran(function: object) -> dict[str, str]:
    """The routes of the operators that a function runs."""
    with routing.report() as report:
        function()  # type: ignore[operator]
    return {row.operator: row.route for row in report.rows}


def x(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return X.to("flagos", dtype)


@pytest.mark.parametrize("route", ["boxing", "composite", "cpu", "host"])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("mm", lambda a: torch.mm(a, a)),
        ("add.Tensor", lambda a: torch.add(a, a, alpha=2)),
        ("relu", torch.relu),
        ("sum.dim_IntList", lambda a: a.sum(1)),
        ("cat", lambda a: torch.cat([a, a])),
        ("native_layer_norm", lambda a: torch.native_layer_norm(a, [2], None, None, 1e-5)),
        ("index.Tensor", lambda a: a[torch.tensor([1, 0], device=a.device)]),
        ("_foreach_mul.Scalar", lambda a: torch._foreach_mul([a, a], 2.0)),
        ("linalg_inv_ex", torch.linalg.inv_ex),
        ("sort.stable", lambda a: torch.sort(a, stable=True)),
    ],
)
def test_every_route_gives_the_same(name: str, call: object, route: str) -> None:
    facts = torch_fl.routing.engine.ENGINE.facts()[f"aten::{name}"]
    overload = name if "." in name else f"{name}.default"
    if route == "composite" and not facts.composite:
        with pytest.raises(routing.RouteError, match="PyTorch does not compose it"):
            routing.set(overload, route)
        return
    expected = torch.utils._pytree.tree_leaves(call(X))  # type: ignore[operator]
    routing.set(overload, route)
    results: list[object] = []
    routes = ran(lambda: results.append(call(x())))  # type: ignore[operator]
    assert routes[f"aten::{name}"] == ("boxing" if route == "host" else route)
    for result, wanted in zip(torch.utils._pytree.tree_leaves(results), expected, strict=True):
        assert result.device.type == "flagos"
        torch.testing.assert_close(result.cpu(), wanted)


@pytest.mark.parametrize("route", ["boxing", "composite", "cpu"])
def test_in_place_and_out_write_what_the_caller_holds(route: str) -> None:
    for name in ("add_.Tensor", "add.out"):
        routing.set(name, route if name != "add.out" or route != "composite" else "cpu")
    a = x()
    version, data = a._version, a.data_ptr()
    assert a.add_(1) is a
    assert (a.data_ptr(), a._version) == (data, version + 1)
    assert torch.equal(a.cpu(), X + 1)
    out = torch.empty(0, device="flagos")
    assert torch.add(a, a, out=out) is out
    assert torch.equal(out.cpu(), (X + 1) * 2)


@pytest.mark.parametrize("route", ["composite", "cpu"])
def test_autograd_goes_on_above_every_route(route: str) -> None:
    with routing.use({"mm": route, "relu": route}):
        w = x().requires_grad_()
        torch.relu(w @ w).sum().backward()
    v = X.clone().requires_grad_()
    torch.relu(v @ v).sum().backward()
    assert torch.equal(w.grad.cpu(), v.grad)


# -- layers and conditions


def test_a_dtype_condition_holds_for_its_dtype_alone() -> None:
    routing.set("add.Tensor[int64, bool]", "cpu")
    assert ran(lambda: x() + x())["aten::add.Tensor"] == "boxing"
    assert ran(lambda: x(torch.int64) + x(torch.int64))["aten::add.Tensor"] == "cpu"
    assert routing.explain("add.Tensor", torch.int64).route == "cpu"
    assert routing.explain("add.Tensor", torch.float32).route == "boxing"


def test_the_dtype_of_a_factory_is_its_argument() -> None:
    routing.set("arange.start_out[int64]", "cpu")
    routing.set("linspace[float64]", "cpu")
    make = lambda dtype: torch.linspace(0, 1, 3, dtype=dtype, device="flagos")  # noqa: E731
    assert ran(lambda: make(torch.float64))["aten::linspace"] == "cpu"
    assert "cpu" not in ran(lambda: make(torch.float32)).values()


def test_what_is_set_later_wins_and_can_be_taken_back() -> None:
    routing.set("mm", "cpu")
    routing.set("*mm", "composite")
    assert routing.explain("mm.default").route == "cpu", "a name is more specific than a wildcard"
    routing.set("mm", "boxing")
    assert routing.explain("mm.default").route == "boxing"
    routing.set("mm", None)
    assert routing.explain("mm.default").route == "composite"
    routing.set("*mm", None)
    assert routing.explain("mm.default")[0].layer is None


def test_default_is_for_all_that_nothing_names() -> None:
    routing.set({"default": "cpu", "mm": "boxing"})
    routes = ran(lambda: torch.relu(x() @ x()))
    assert routes["aten::mm"] == "boxing"
    assert routes["aten::relu"] == "cpu"
    assert routes["aten::copy_"] == "boxing", "copies are the device's own"


def test_a_wildcard_takes_what_it_can_get() -> None:
    routing.set("_foreach_*", "composite")
    a = x()
    assert ran(lambda: torch._foreach_add([a], 1.0))["aten::_foreach_add.Scalar"] == "composite"
    assert ran(lambda: torch._foreach_add_([a], 1.0))["aten::_foreach_add_.Scalar"] == "composite"


@pytest.mark.parametrize(
    ("pattern", "chain", "message"),
    [
        ("mmm", "cpu", "did you mean 'mm'"),
        ("mm", "cpx", "did you mean 'cpu'"),
        ("mm", "cpu, cpu", "already named"),
        ("mm", "", "expected boxing"),
        ("mm[int65]", "cpu", "did you mean 'int6'"),
        ("linear", "cpu", "would lose autograd"),
        ("empty.memory_format", "cpu", "device's own"),
        ("view", "cpu", "device's own"),
        ("mm", "native", "brings no kernels"),
        ("mm", "flaggems", "does not run Triton"),
        ("mm = cpu\nadd", "cpu", "control character"),
    ],
)
def test_a_mistake_changes_nothing(pattern: str, chain: str, message: str) -> None:
    routing.set("relu", "cpu")
    with pytest.raises(routing.RouteError, match=message):
        routing.set({"mul.Tensor": "cpu", pattern: chain})
    assert routing.explain("mul.Tensor").route == "boxing"
    assert routing.explain("relu.default").route == "cpu"
    with pytest.raises(routing.RouteError, match=message), routing.use({pattern: chain}):
        pass


# -- chains and Python kernels


def test_a_later_route_runs_where_a_kernel_refuses() -> None:
    calls = []

    def only_small(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        calls.append(a.shape)
        return NotImplemented if a.shape[0] > 2 else torch.full_like(a, 7)

    routing.set("mm", [only_small, "cpu"])
    assert (x() @ x()).cpu().unique().tolist() == [7]
    big = torch.ones(3, 3, device="flagos")
    with routing.report() as report:
        assert (big @ big).cpu().unique().tolist() == [3]
    assert [row.operator for row in report.fallbacks] == ["aten::mm"]
    assert len(calls) == 2


def test_a_chain_that_ends_in_a_refusal_says_so() -> None:
    routing.set("relu", lambda a: NotImplemented)
    with pytest.raises(NotImplementedError, match=r"no route of 'aten::relu'.*cpu"):
        torch.relu(x())
    assert torch.equal((x() + 1).cpu(), X + 1)


def test_what_a_kernel_raises_reaches_the_caller() -> None:
    def broken(a: torch.Tensor) -> torch.Tensor:
        raise KeyError("mine")

    routing.set("relu", [broken, "boxing"])
    with pytest.raises(KeyError, match="mine"):
        torch.relu(x())


def test_a_kernels_limit_excludes_other_dtypes() -> None:
    kernel = routing.Kernel(lambda a: a * 0 + 5, dtypes=frozenset({torch.float32}))
    routing.register("mine", {"relu": kernel})
    routing.set("relu", "mine, boxing")
    assert torch.relu(x()).cpu().unique().tolist() == [5]
    assert torch.equal(torch.relu(x(torch.float64)).cpu(), X.double())
    assert routing.explain("relu.default", torch.float64).route == "boxing"
    assert routing.explain("relu.default", torch.float32)[0].chain == ("mine", "boxing")


def test_a_kernel_sees_flagos_tensors_and_may_write() -> None:
    seen = []

    def add_one(a: torch.Tensor, other: object, *, alpha: object = 1) -> torch.Tensor:
        seen.append(a.device.type)
        return a.copy_(a * 10)

    routing.set("add_.Tensor", add_one)
    a = x()
    assert a.add_(a) is a
    assert torch.equal(a.cpu(), X * 10)
    assert seen == ["flagos"]


def test_a_kernel_for_the_target_sees_the_targets_tensors() -> None:
    seen = []

    def twice(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        seen.extend([a.device.type, b.device.type])
        return NotImplemented if a.dtype == torch.int64 else (a @ b) * 2

    def scale(a: torch.Tensor, other: object) -> torch.Tensor:
        return a.numpy().__imul__(10) is None or a

    on_target = {
        "mm": routing.Kernel(twice, on_target=True),
        "mul_.Tensor": routing.Kernel(scale, on_target=True),
    }
    routing.register("of_target", on_target)
    routing.set({"mm": "of_target, boxing", "mul_.Tensor": "of_target"})
    a = x().requires_grad_()
    y = a @ x()
    assert y.device == torch.device("flagos", 0)
    assert torch.equal(y.cpu(), X @ X * 2)
    assert seen == ["cpu", "cpu"]
    y.sum().backward()
    assert a.grad is not None, "autograd is above, and its backward takes the route too"
    assert torch.equal(x(torch.int64) @ x(torch.int64), (x() @ x()).long() // 2)
    b = x()
    version = b._version
    assert b.mul_(b) is b
    assert torch.equal(b.cpu(), X * 10)
    assert b._version == version + 1
    c = x()
    saved = torch.ones(2, 2, device="flagos", requires_grad=True) * c
    c.mul_(c)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        saved.sum().backward()
    with pytest.raises(RuntimeError, match="same device"):
        x() @ X


def test_what_a_kernel_for_the_target_returns_is_checked() -> None:
    wrong = routing.Kernel(lambda a: torch.empty(1, device="flagos"), on_target=True)
    routing.register("wrong", {"relu": wrong})
    routing.set("relu", "wrong")
    with pytest.raises(RuntimeError, match="a cpu tensor, but returned a flagos"):
        torch.relu(x())


def test_a_kernels_type_error_is_not_dropped_by_an_operator_expression() -> None:
    def wrong(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.no_such_argument(1, 2, 3) if a.dim() == 1 else len(3)  # type: ignore[arg-type]

    routing.set("mm", wrong)
    with pytest.raises(RuntimeError, match=r"'wrong' of 'aten::mm' raised TypeError: .*len"):
        x() @ x()


def test_registering_again_changes_what_is_in_force() -> None:
    routing.register("later", {"mm": lambda a, b: a * 2})
    routing.set({"mm.default": "later", "abs": "later, boxing"})
    assert torch.equal((x() @ x()).cpu(), X * 2)
    routing.register("later", {"mm": lambda a, b: a * 3, "abs": lambda a: a * 5})
    assert torch.equal((x() @ x()).cpu(), X * 3)
    assert torch.equal(x().abs().cpu(), X * 5)
    assert routing.explain("abs.default").route == "later"


def test_setting_for_some_dtypes_and_for_all() -> None:
    def routes() -> list[str]:
        dtypes = (torch.int64, torch.bool, torch.float32)
        return [routing.explain("add.Tensor", dtype).route for dtype in dtypes]

    for mapping in (
        {"add.Tensor[int64]": "cpu", "add.Tensor": "composite"},
        {"add.Tensor": "composite", "add.Tensor[int64]": "cpu"},
    ):
        routing.set(mapping)
        assert routes() == ["cpu", "composite", "composite"]
        routing.reset()
    routing.set("add.Tensor[int64, bool]", "cpu")
    routing.set("add.Tensor", "composite")
    assert routes() == ["cpu", "cpu", "composite"]
    routing.set("add.Tensor[int64]", None)
    assert routes() == ["composite", "cpu", "composite"]
    routing.set("add.Tensor", None)
    assert routes() == ["boxing"] * 3
    with pytest.raises(routing.RouteError, match="'aten::mm' and 'mm' are the same"):
        routing.set({"mm": "cpu", "aten::mm": "composite"})


def test_boxing_of_what_the_target_composes_is_its_composition() -> None:
    routing.set("default", "boxing, cpu")
    with routing.report() as report:
        assert torch.ones(2, 2, device="flagos").mean().item() == 1
    assert not report.fallbacks


CPU = torch.ones(2, 2)
MIXED = {
    "a scalar may come first": lambda a: torch.add(torch.tensor(1.0), a),
    "another device behind": lambda a: a + CPU,
    "another device before": lambda a: CPU + a,
    "in place, from elsewhere": lambda a: torch.ones(2, 2).add_(a),
    "out elsewhere": lambda a: torch.add(a, a, out=torch.ones(2, 2)),
    "a list": lambda a: torch.cat([a, CPU]),
    "mm": lambda a: a @ CPU,
    "a list for each": lambda a: torch._foreach_add([a, CPU], 1)[1].cpu(),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("route", ["cpu", "a kernel"])
def test_other_routes_apply_the_rules_about_devices(name: str, route: str) -> None:
    def outcome() -> object:
        try:
            result = MIXED[name](x())
        except RuntimeError as error:
            return str(error)
        return result.device, result.tolist()

    expected = outcome()
    calls: list[object] = []

    def never(*args: object, **kwargs: object) -> object:
        calls.append(args)
        return NotImplemented

    chain = "cpu" if route == "cpu" else [never, "boxing"]
    with routing.use(dict.fromkeys(("add", "add_", "cat", "mm", "_foreach_add"), chain)):
        assert outcome() == expected
    assert not (calls and isinstance(expected, str))


def test_registering_refuses_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="no operator"):
        routing.register("mine2", {"no_such_op": torch.relu})
    with pytest.raises(ValueError, match="route that every backend"):
        routing.register("cpu", {"relu": torch.relu})
    with pytest.raises(TypeError, match="must be a function"):
        routing.register("mine3", {"relu": 3})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("operator", "kernel", "said"),
    [
        ("relu", lambda a: a.cpu(), "a flagos tensor, but returned a cpu tensor"),
        ("relu", lambda a: None, "a flagos tensor, but returned None"),
        ("relu", lambda a: (a, a), "a flagos tensor"),
        ("relu_", lambda a: a + 1, "its argument 'self', which it writes"),
        ("sort", lambda a, *rest: a, "2 results, but returned 1"),
    ],
)
def test_what_a_kernel_returns_is_checked(operator: str, kernel: object, said: str) -> None:
    routing.set(f"{operator}.default", kernel)
    with pytest.raises(RuntimeError, match=said):
        getattr(torch, operator)(x(), *([0, False] if operator == "sort" else []))


def test_a_function_is_not_for_overloads_with_other_arguments() -> None:
    routing.set("mm", lambda a, b: a * 0)
    assert torch.mm(x(), x()).cpu().tolist() == [[0, 0], [0, 0]]
    out = torch.empty(0, device="flagos")
    torch.mm(x(), x(), out=out)
    assert torch.equal(out.cpu(), X @ X)


@pytest.mark.parametrize(
    "pattern", ["default[float32]", "*[float32]", "*::*[float32]", "mm[float32]"]
)
def test_a_dtype_condition_may_match_operators_that_nothing_can_run(pattern: str) -> None:
    routing.set(pattern, "cpu")
    assert ran(lambda: x() @ x())["aten::mm"] == "cpu"
    assert ran(lambda: x(torch.float64) @ x(torch.float64))["aten::mm"] == "boxing"


def test_the_backends_own_word_cannot_be_a_provider() -> None:
    with pytest.raises(ValueError, match="backend's own word"):
        routing.register("host", {"relu": torch.relu})
    routing.set("mul.Tensor", "host")


def test_a_composition_that_only_refuses_is_none() -> None:
    routing.set("default", "composite, boxing")
    convolution = torch.nn.Conv2d(1, 1, 2).to("flagos")
    convolution(torch.randn(1, 1, 4, 4, device="flagos")).sum().backward()


def test_random_numbers_stay_the_devices_under_a_wildcard() -> None:
    torch.manual_seed(3)
    expected = [torch.randn(3, device="flagos"), torch.randperm(5, device="flagos")]
    routing.set("*", "cpu")
    torch.manual_seed(3)
    got = [torch.randn(3, device="flagos"), torch.randperm(5, device="flagos")]
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize(
    "call",
    [
        lambda: routing.set(None, "cpu"),
        lambda: routing.set("mm", [3]),
        lambda: routing.set("mm", 3),
        lambda: routing.set({"mm": "cpu"}, "boxing"),
        lambda: routing.use({"mm": None}).__enter__(),
        lambda: routing.use({"mm": routing.Kernel(torch.relu)}).__enter__(),
        lambda: routing.use("mm"),
        lambda: routing.explain(None),
        lambda: routing.explain("mm", "float32"),
        lambda: routing.Kernel(torch.relu, "float32"),
        lambda: routing.Kernel(torch.relu, frozenset({"float32"})),
        lambda: routing.Kernel(3),
    ],
)
def test_arguments_of_a_wrong_type_are_refused(call: object) -> None:
    with pytest.raises(TypeError, match=r"but (got|is)"):
        call()  # type: ignore[operator]


def test_an_operator_of_somebody_else_can_be_routed() -> None:
    library = torch.library.Library("routes_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda a: a + a, "CPU")
    twice = torch.ops.routes_test.twice
    assert torch.equal(twice(x()).cpu(), X * 2)
    assert ran(lambda: twice(x()))["routes_test::twice"] == "boxing"
    routing.set("routes_test::twice", "cpu")
    assert ran(lambda: twice(x()))["routes_test::twice"] == "cpu"
    routing.set("routes_test::twice", lambda a: a * 3)
    assert torch.equal(twice(x()).cpu(), X * 3)
    routing.reset()
    assert torch.equal(twice(x()).cpu(), X * 2)


# -- scopes


def test_a_scope_is_for_its_thread_and_can_be_nested() -> None:
    a = x()
    elsewhere: list[dict[str, str]] = []
    with routing.use({"relu": "cpu", "mm": "composite"}):
        assert ran(lambda: torch.relu(a))["aten::relu"] == "cpu"
        with routing.use({"relu": "boxing"}):
            assert ran(lambda: torch.relu(a))["aten::relu"] == "boxing"
            assert ran(lambda: a @ a)["aten::mm"] == "composite"
            assert routing.explain("relu.default").route == "boxing"
        assert ran(lambda: torch.relu(a))["aten::relu"] == "cpu"
        thread = threading.Thread(target=lambda: elsewhere.append(ran(lambda: torch.relu(a))))
        thread.start()
        thread.join()
    assert elsewhere[0]["aten::relu"] == "boxing"
    assert ran(lambda: torch.relu(a))["aten::relu"] == "boxing"


def test_a_scope_follows_into_autograds_threads() -> None:
    w = x().requires_grad_()
    loss = (w @ w).sum()
    with torch.autograd.set_multithreading_enabled(True), routing.use({"mm": "cpu"}):
        assert ran(loss.backward)["aten::mm"] == "cpu"


def test_a_scope_ends_when_its_block_raises() -> None:
    with pytest.raises(KeyError), routing.use({"relu": "cpu"}):
        raise KeyError
    assert routing.explain("relu.default").route == "boxing"
    assert ran(lambda: torch.relu(x()))["aten::relu"] == "boxing"


def test_a_scope_survives_a_profiler_that_outlives_it() -> None:
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with routing.use({"relu": "cpu"}):
        profiler.start()
        torch.relu(x())
    assert ran(lambda: torch.relu(x()))["aten::relu"] == "boxing"
    profiler.stop()
    assert any("relu" in event.key for event in profiler.key_averages())
    with routing.use({"relu": "cpu"}):
        assert ran(lambda: torch.relu(x()))["aten::relu"] == "cpu"


def test_a_scope_is_a_decorator_and_can_be_used_again() -> None:
    scope = routing.use({"relu": "cpu"})

    @scope
    def decorated() -> dict[str, str]:
        return ran(lambda: torch.relu(x()))

    assert decorated()["aten::relu"] == "cpu"
    with scope, scope:
        assert routing.explain("relu.default").route == "cpu"
    assert decorated()["aten::relu"] == "cpu"
    assert routing.explain("relu.default").route == "boxing"


def test_blocks_may_end_in_any_order() -> None:
    first, second = routing.use({"relu": "cpu"}), routing.use({"relu": "composite, cpu"})
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert routing.explain("relu.default")[0].layer == "use"
    second.__exit__(None, None, None)
    assert routing.explain("relu.default")[0].layer is None
    assert ran(lambda: torch.relu(x()))["aten::relu"] == "boxing"
    with pytest.raises(RuntimeError, match="not entered in this thread"):
        second.__exit__(None, None, None)


def test_a_block_that_threads_share_ends_for_each_alone() -> None:
    scope = routing.use({"relu": "cpu"})
    inside, go_on = threading.Event(), threading.Event()
    seen: list[str] = []

    def other() -> None:
        with scope:
            inside.set()
            go_on.wait(10)
            seen.append(ran(lambda: torch.relu(x()))["aten::relu"])
        seen.append(ran(lambda: torch.relu(x()))["aten::relu"])

    thread = threading.Thread(target=other)
    with scope:
        thread.start()
        inside.wait(10)
    assert ran(lambda: torch.relu(x()))["aten::relu"] == "boxing"
    go_on.set()
    thread.join()
    assert seen == ["cpu", "boxing"]


def test_a_closed_scope_no_longer_answers_for_others() -> None:
    scope = _C.open_scope([("aten::relu", (((("cpu", "cpu", None),),), ()))])
    _C.close_scope(scope)
    _C.close_scope(scope)
    assert ran(lambda: torch.relu(x()))["aten::relu"] == "boxing"


# -- counting


def test_fallbacks_are_counted_with_their_bytes_also_outside_of_reports() -> None:
    def moved() -> int:
        return {row.operator: row.bytes_moved for row in routing.fallbacks()}.get("aten::tanh", 0)

    before = moved()
    routing.set("tanh", "cpu")
    torch.tanh(x())
    assert moved() - before == 2 * X.nbytes, "there and back"
    with routing.report() as report:
        torch.tanh(x())
    assert report.bytes_moved == 2 * X.nbytes


def test_random_numbers_on_the_cpu_route_are_the_devices() -> None:
    torch.manual_seed(5)
    expected = torch.empty(4, device="flagos").normal_()
    generator = torch.Generator("flagos").manual_seed(9)
    given = torch.empty(4, device="flagos").normal_(generator=generator)
    with routing.use({"normal_": "cpu"}):
        torch.manual_seed(5)
        assert torch.equal(torch.empty(4, device="flagos").normal_(), expected)
        generator.manual_seed(9)
        again = torch.empty(4, device="flagos").normal_(generator=generator)
    assert torch.equal(again, given)


def test_a_refusal_outside_of_a_chain_is_forgotten() -> None:
    """A carrier that somebody calls as a function refuses too: the next call's error is its own."""

    def refuses(a: torch.Tensor) -> torch.Tensor:
        return NotImplemented  # type: ignore[no-any-return]

    def fails(a: torch.Tensor) -> torch.Tensor:
        _C.refuse_call()
        raise ValueError("a real error")

    def fails_alone(a: torch.Tensor) -> torch.Tensor:
        raise ValueError("a real error")

    routing.register("hasty", {"aten::sin": refuses, "aten::erf": fails_alone, "aten::cos": fails})
    with routing.use({"sin": "hasty, boxing"}):
        assert torch.equal(torch.sin(x()).cpu(), torch.sin(X))
    _C.refuse_call()
    with routing.use({"erf": "hasty, boxing"}), pytest.raises(ValueError, match="a real error"):
        torch.erf(x())
