"""Owns: tests that random numbers of flagos are CUDA's: its generators, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

START = """
    import hashlib
    device = {device!r}
    if device == "flagos":
        import torch_fl
    module = torch.get_device_module(device)

    def digest(tensor):
        return hashlib.sha256(tensor.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:16]
"""
DRAWS = """
    F = torch.nn.functional
    half = dict(device=device, dtype=torch.bfloat16)

    def x(): return torch.full((1000, 77), 0.5, device=device)

    DRAWS = {
        "rand": lambda: torch.rand(1000, 77, device=device),
        "randn": lambda: torch.randn(1000, 77, device=device),
        "randn of one": lambda: torch.randn(1, device=device),
        "randn, half precision": lambda: torch.randn(1000, 77, **half).float(),
        "randn, complex": lambda: torch.randn(100, 7, device=device, dtype=torch.complex64),
        "rand_like": lambda: torch.rand_like(x()),
        "randint": lambda: torch.randint(-5, 1 << 40, (999,), device=device),
        "randperm": lambda: torch.randperm(10_000, device=device),
        "randperm, few": lambda: torch.randperm(7, device=device),
        "normal_": lambda: x().normal_(1, 2),
        "normal": lambda: torch.normal(x(), x()),
        "uniform_": lambda: x().uniform_(-1, 2),
        "random_": lambda: x().random_(),
        "bernoulli": lambda: torch.bernoulli(x()),
        "bernoulli_": lambda: x().bernoulli_(0.3),
        "exponential_": lambda: x().exponential_(),
        "cauchy_": lambda: x().cauchy_(),
        "geometric_": lambda: x().geometric_(0.2),
        "log_normal_": lambda: x().log_normal_(),
        "poisson": lambda: torch.poisson(x() * 9),
        "gamma": lambda: torch._standard_gamma(x() + 1),
        "multinomial": lambda: torch.multinomial(x(), 20),
        "multinomial, replacement": lambda: torch.multinomial(x(), 200, replacement=True),
        "multinomial, one": lambda: torch.multinomial(x(), 1),
        "dropout": lambda: F.dropout(x(), 0.3),
        "dropout in place": lambda: F.dropout(x(), 0.3, inplace=True),
        "dropout, not contiguous": lambda: F.dropout(x().t(), 0.3),
        "alpha_dropout": lambda: F.alpha_dropout(x(), 0.3, training=True),
        "feature_dropout": lambda: F.dropout2d(x().view(10, 10, 10, 77), 0.3),
        "rrelu": lambda: F.rrelu(-x(), training=True),
        "gumbel_softmax": lambda: F.gumbel_softmax(x()),
        "trunc_normal_": lambda: torch.nn.init.trunc_normal_(x()),
    }
    told = {}
    for name, draw in DRAWS.items():
        torch.manual_seed(1234)
        told[name] = [digest(draw()), digest(draw()), digest(module.get_rng_state())]
"""
TRAINING = """
    torch.manual_seed(7)
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.Dropout(0.4), torch.nn.ReLU(), torch.nn.Linear(256, 8)
    ).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(5):
        loss = net(torch.randn(32, 64, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    told = [loss.item(), digest(net[0].weight), digest(module.get_rng_state())]
"""
GRAPH = """
    torch.manual_seed(11)
    warm = module.Stream()
    warm.wait_stream(module.current_stream())
    with module.stream(warm):
        torch.nn.functional.dropout(torch.randn(50, device=device)), torch.rand(50, device=device)
    module.current_stream().wait_stream(warm)
    graph = module.CUDAGraph()
    with module.graph(graph):
        drawn = torch.randn(50, device=device)
        other = torch.nn.functional.dropout(torch.rand(50, device=device))
    module.synchronize()  # a capture sets the graph's offset to 0 on its own stream, a replay here
    told = []
    for turn in range(5):
        if turn >= 3:
            torch.manual_seed(11)
        graph.replay()
        between = torch.rand(5, device=device)
        told.append([drawn.tolist(), other.tolist(), between.tolist()])
"""
OWN_GENERATOR = """
    own = torch.Generator(device).manual_seed(5)
    torch.randn(50, device=device, generator=own)
    graph = module.CUDAGraph()
    graph.register_generator_state(own)
    with module.graph(graph):
        drawn = torch.randn(50, device=device, generator=own)
    module.synchronize()
    told = []
    for turn in range(3):
        graph.replay()
        told.append(drawn.tolist())
    told.append(torch.randn(5, device=device, generator=own).tolist())
"""


def _both(said: Callable[..., Any], code: str) -> Any:
    """What the code tells, which must be the same on flagos and on CUDA used natively."""
    told = [
        said(START.replace("{device!r}", repr(device)) + code + "    print(json.dumps(told))\n")
        for device in ("flagos", "cuda")
    ]
    assert told[0] == told[1]
    return told[0]


def test_numbers_are_cudas_bit_for_bit(said: Any) -> None:
    told = _both(said, DRAWS)
    same = [name for name, (first, second, _) in told.items() if first == second]
    assert same == [], "a second draw gives other numbers"


def test_training_with_dropout_is_cudas_bit_for_bit(said: Any) -> None:
    _both(said, TRAINING)


def test_replays_draw_what_cudas_replays_draw(said: Any) -> None:
    told = _both(said, GRAPH)
    assert len({str(each) for each in told[:4]}) == 4, "each replay draws other numbers"
    assert told[3] == told[4], "a seed counts for replays too"


def test_replays_draw_from_a_generator_of_ones_own(said: Any) -> None:
    told = _both(said, OWN_GENERATOR)
    assert len({str(each) for each in told}) == 4


# -- one generator under two names


def _seeds() -> tuple[int, int]:
    return torch.flagos.initial_seed(), torch.cuda.initial_seed()


def test_either_name_seeds_both() -> None:
    for seed, plant in enumerate(
        (
            torch.manual_seed,
            torch.flagos.manual_seed,
            torch.cuda.manual_seed,
            torch.flagos.manual_seed_all,
            torch.cuda.manual_seed_all,
        ),
        start=100,
    ):
        plant(seed)
        assert _seeds() == (seed, seed)
        ours = torch.randn(9, device="flagos").tolist()
        plant(seed)
        assert torch.randn(9, device="cuda").tolist() == ours
    for plant in (torch.flagos.seed, torch.cuda.seed_all):
        before = _seeds()
        plant()
        assert _seeds()[0] == _seeds()[1] != before[0]


def test_draws_under_either_name_go_on_with_one_stream() -> None:
    torch.manual_seed(3)
    expected = torch.stack([torch.rand(5, device="cuda") for _ in range(4)]).tolist()
    torch.manual_seed(3)
    drawn = [torch.rand(5, device=device) for device in ("flagos", "cuda", "cuda", "flagos")]
    assert [x.tolist() for x in drawn] == expected
    assert torch.equal(torch.flagos.get_rng_state(), torch.cuda.get_rng_state())


@pytest.mark.parametrize("names", [("flagos", "cuda"), ("cuda", "flagos")])
def test_a_state_of_one_name_is_set_under_the_other(names: tuple[str, str]) -> None:
    taken, given = (torch.get_device_module(name) for name in names)
    state = taken.get_rng_state()
    drawn = torch.randn(33, device=names[0]).tolist()
    torch.randn(1000, device="flagos")
    given.set_rng_state(state)
    assert torch.equal(taken.get_rng_state(), state)
    assert torch.randn(33, device=names[1]).tolist() == drawn
    given.set_rng_state_all(taken.get_rng_state_all())
    assert taken.initial_seed() == given.initial_seed()


@pytest.mark.parametrize("name", ["flagos", "cuda"])
def test_a_forked_state_is_put_back_under_both_names(name: str) -> None:
    torch.manual_seed(21)
    torch.rand(3, device="flagos")
    before = torch.cuda.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type=name):
        torch.manual_seed(22)
        torch.rand(3, device="flagos")
        assert not torch.equal(torch.cuda.get_rng_state(), before)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert torch.equal(torch.flagos.get_rng_state(), before)


def test_generators_of_ones_own_draw_alike() -> None:
    ours = torch.Generator(device="flagos").manual_seed(9)
    theirs = torch.Generator(device="cuda").manual_seed(9)
    default = torch.cuda.get_rng_state()
    for _ in range(2):
        for draw in (
            lambda device, g: torch.randn(100, device=device, generator=g),
            lambda device, g: torch.randint(10**6, (100,), device=device, generator=g),
            lambda device, g: torch.randperm(10_000, device=device, generator=g),
            lambda device, g: torch.ones(99, device=device).bernoulli_(0.4, generator=g),
            lambda device, g: torch.ones(99, device=device).multinomial(9, generator=g),
        ):
            assert draw("flagos", ours).tolist() == draw("cuda", theirs).tolist()
    assert torch.equal(ours.get_state(), theirs.get_state())
    assert torch.equal(torch.cuda.get_rng_state(), default), "the default one has not moved"
    again = torch.Generator(device="flagos")
    again.set_state(theirs.get_state())
    assert torch.equal(
        torch.rand(5, device="flagos", generator=again).cpu(),
        torch.rand(5, device="cuda", generator=theirs).cpu(),
    )
