"""Owns: tests of randomness: seeds, states, and that the numbers are those of the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from children import output_of_child
from torch.nn import functional

import torch_fl  # noqa: F401  (makes the device)

if TYPE_CHECKING:
    from collections.abc import Callable

flagos = torch.flagos
N = 600  # more than any kernel handles at once, and no multiple of a vector


def _half(device: str) -> torch.Tensor:
    return torch.full((N,), 0.5, device=device)


def _lstm(device: str) -> torch.Tensor:
    weights = torch.Generator().manual_seed(1)
    lstm = torch.nn.LSTM(8, 8, num_layers=2, dropout=0.5)
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=weights))
    torch.manual_seed(99)  # making the parameters took numbers from the CPU alone
    output, _ = lstm.to(device)(torch.ones(5, 3, 8, device=device))
    return output.detach()


def _attention(device: str) -> torch.Tensor:
    query = torch.linspace(-1, 1, 2 * 4 * 16 * 8, device=device).view(2, 4, 16, 8)
    return functional.scaled_dot_product_attention(query, query, query, dropout_p=0.5)


# Each maps a device to a tensor that depends on the random numbers drawn there.
RANDOM: dict[str, Callable[[str], torch.Tensor]] = {
    "rand": lambda d: torch.rand(N, device=d),
    "rand_like": lambda d: torch.rand_like(_half(d)),
    "rand out": lambda d: torch.rand(N, out=torch.empty(N, device=d)),
    "rand double": lambda d: torch.rand(N, dtype=torch.float64, device=d),
    "randn": lambda d: torch.randn(N, device=d),
    "randn few": lambda d: torch.randn(7, device=d),
    "randn bfloat16": lambda d: torch.randn(N, dtype=torch.bfloat16, device=d),
    "randn complex": lambda d: torch.randn(N, dtype=torch.complex64, device=d),
    "randn transposed": lambda d: torch.empty(20, 30, device=d).t().normal_(),
    "randint": lambda d: torch.randint(0, 1000, (N,), device=d),
    "randint_like": lambda d: torch.randint_like(_half(d), 0, 1000),
    "randperm": lambda d: torch.randperm(N, device=d),
    "bernoulli": lambda d: torch.bernoulli(_half(d)),
    "bernoulli_": lambda d: torch.empty(N, device=d).bernoulli_(0.3),
    "normal tensors": lambda d: torch.normal(_half(d), _half(d)),
    "normal_": lambda d: torch.empty(N, device=d).normal_(1, 2),
    "uniform_": lambda d: torch.empty(N, device=d).uniform_(-1, 1),
    "random_": lambda d: torch.empty(N, device=d).random_(0, 500),
    "exponential_": lambda d: torch.empty(N, device=d).exponential_(),
    "cauchy_": lambda d: torch.empty(N, device=d).cauchy_(),
    "log_normal_": lambda d: torch.empty(N, device=d).log_normal_(),
    "geometric_": lambda d: torch.empty(N, device=d).geometric_(0.2),
    "poisson": lambda d: torch.poisson(_half(d) * 20),
    "binomial": lambda d: torch.binomial(_half(d) * 40, _half(d)),
    "multinomial": lambda d: torch.multinomial(_half(d), 50),
    "multinomial replaced": lambda d: torch.multinomial(_half(d), 300, replacement=True),
    "standard gamma": lambda d: torch._standard_gamma(_half(d)),
    "dirichlet": lambda d: torch._sample_dirichlet(_half(d).view(20, 30)),
    "native_dropout": lambda d: torch.native_dropout(_half(d), 0.5, True)[1],
    "dropout": lambda d: functional.dropout(_half(d), 0.5),
    "dropout odd p": lambda d: functional.dropout(_half(d), 0.3),
    "dropout_": lambda d: functional.dropout(_half(d), 0.5, inplace=True),
    "alpha_dropout": lambda d: functional.alpha_dropout(_half(d), 0.5, training=True),
    "dropout2d": lambda d: functional.dropout2d(_half(d).view(2, 30, 2, 5), 0.5),
    "feature_alpha_dropout": lambda d: functional.feature_alpha_dropout(
        _half(d).view(2, 30, 10), 0.5, training=True
    ),
    "rrelu": lambda d: functional.rrelu(-_half(d), training=True),
    "gumbel_softmax": lambda d: functional.gumbel_softmax(_half(d).view(20, 30)),
    "fractional_max_pool2d": lambda d: functional.fractional_max_pool2d(
        torch.arange(2.0 * 12 * 12, device=d).view(1, 2, 12, 12), 3, output_ratio=(0.5, 0.5)
    ),
    "trunc_normal_": lambda d: torch.nn.init.trunc_normal_(torch.empty(N, device=d)),
    "attention with dropout": _attention,
    "lstm with dropout": _lstm,
}

WITH_GENERATOR: dict[str, Callable[[str, torch.Generator], torch.Tensor]] = {
    "rand": lambda d, g: torch.rand(N, generator=g, device=d),
    "randn": lambda d, g: torch.randn(N, generator=g, device=d),
    "randint": lambda d, g: torch.randint(0, 9, (N,), generator=g, device=d),
    "randperm": lambda d, g: torch.randperm(N, generator=g, device=d),
    "normal_": lambda d, g: torch.empty(N, device=d).normal_(generator=g),
    "uniform_": lambda d, g: torch.empty(N, device=d).uniform_(generator=g),
    "bernoulli": lambda d, g: torch.bernoulli(_half(d), generator=g),
    "bernoulli_ p": lambda d, g: torch.empty(N, device=d).bernoulli_(0.3, generator=g),
    "multinomial": lambda d, g: torch.multinomial(_half(d), 50, generator=g),
    "poisson": lambda d, g: torch.poisson(_half(d), generator=g),
    "normal tensors": lambda d, g: torch.normal(_half(d), _half(d), generator=g),
}


@pytest.mark.parametrize("name", RANDOM)
def test_numbers_are_those_of_the_cpu_for_the_same_seed(name: str) -> None:
    draw = RANDOM[name]
    torch.manual_seed(99)
    expected = [draw("cpu"), draw("cpu")]
    torch.manual_seed(99)
    torch.rand(13)  # what the CPU draws in between must not matter
    first = draw("flagos")
    if "lstm" not in name:  # that one seeds itself
        torch.rand(13)
    actual = [first, draw("flagos")]
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.device.type == "flagos"
        if "lstm" in name:  # the CPU's own LSTM is one fused kernel; the masks are the same
            torch.testing.assert_close(ours.cpu(), theirs)
        else:
            assert torch.equal(ours.cpu(), theirs), f"{name} differs from the CPU"
    if "lstm" not in name:
        assert not torch.equal(actual[0].cpu(), actual[1].cpu())
        torch.manual_seed(100)
        assert not torch.equal(draw("flagos").cpu(), expected[0]), "the seed has no effect"


@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_a_generator_gives_the_numbers_of_a_cpu_generator(name: str) -> None:
    draw = WITH_GENERATOR[name]
    ours, theirs = torch.Generator("flagos").manual_seed(5), torch.Generator().manual_seed(5)
    before = flagos.get_rng_state()
    for _ in range(2):
        assert torch.equal(draw("flagos", ours).cpu(), draw("cpu", theirs))
    assert torch.equal(flagos.get_rng_state(), before), "the default generator was used as well"


@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_a_generator_of_another_device_is_refused(name: str) -> None:
    message = "Expected a 'flagos' device type for generator but found 'cpu'"
    with pytest.raises(RuntimeError, match=message):
        WITH_GENERATOR[name]("flagos", torch.Generator())
    # In the other direction the generator's device takes part in the choice of the kernel, as on
    # CUDA, so that either the generator or the tensor is what does not fit.
    with pytest.raises(RuntimeError, match="flagos"):
        WITH_GENERATOR[name]("cpu", torch.Generator("flagos"))


@pytest.mark.parametrize("name", ["rand", "dropout", "randperm", "multinomial"])
def test_neither_device_draws_from_the_other(name: str) -> None:
    for busy, quiet in (("flagos", "cpu"), ("cpu", "flagos")):
        torch.manual_seed(5)
        expected = torch.rand(4, device=quiet)
        torch.manual_seed(5)
        RANDOM[name](busy)
        assert torch.equal(torch.rand(4, device=quiet), expected)


def test_state_round_trip() -> None:
    flagos.manual_seed(7)
    state = flagos.get_rng_state()
    assert state.dtype == torch.uint8
    assert state.device.type == "cpu"
    assert state.dim() == 1
    first, second = torch.rand(5, device="flagos"), torch.randn(5, device="flagos")
    middle = flagos.get_rng_state()
    assert not torch.equal(state, middle)
    third = torch.randn(3, device="flagos")
    for device in ("flagos", 0, None, torch.device("flagos", 0)):
        flagos.set_rng_state(state, device)
        assert torch.equal(flagos.get_rng_state(device), state)
        assert torch.equal(torch.rand(5, device="flagos"), first)
        assert torch.equal(torch.randn(5, device="flagos"), second)
        assert torch.equal(torch.randn(3, device="flagos"), third)
    flagos.set_rng_state(middle)
    assert torch.equal(torch.randn(3, device="flagos"), third)
    flagos.set_rng_state_all(flagos.get_rng_state_all())
    assert len(flagos.get_rng_state_all()) == flagos.device_count()


def test_what_is_no_state_is_refused_and_changes_nothing() -> None:
    before = flagos.get_rng_state()
    for wrong in (torch.zeros(3, dtype=torch.uint8), torch.zeros(16), before.to("flagos")):
        with pytest.raises((RuntimeError, TypeError)):
            flagos.set_rng_state(wrong)
    with pytest.raises(RuntimeError, match=f"index {flagos.device_count()}"):
        flagos.set_rng_state(before, flagos.device_count())
    with pytest.raises(ValueError, match="Expected a flagos device"):
        flagos.get_rng_state("cpu")
    assert torch.equal(flagos.get_rng_state(), before)


def test_seeds() -> None:
    flagos.manual_seed(11)
    expected = torch.rand(3, device="flagos")
    assert flagos.initial_seed() == 11
    flagos.manual_seed_all(11)
    assert torch.equal(torch.rand(3, device="flagos"), expected)
    torch.manual_seed(11)
    assert torch.equal(torch.rand(3, device="flagos"), expected)
    flagos.manual_seed(-1)
    assert flagos.initial_seed() == 2**64 - 1
    for wrong in (2**64, -(2**63) - 1):
        with pytest.raises(RuntimeError, match="seed"):
            flagos.manual_seed(wrong)
        with pytest.raises(RuntimeError, match="seed"):
            flagos.manual_seed_all(wrong)
    for unforeseen in (flagos.seed, flagos.seed_all):
        unforeseen()
        first = flagos.initial_seed()
        unforeseen()
        assert flagos.initial_seed() != first


# torch 2.12 and newer take None for the accelerator.
_FORK_RNG = ["flagos", None] if torch.__version__ >= "2.12" else ["flagos"]


@pytest.mark.parametrize("device_type", _FORK_RNG)
def test_fork_rng_restores_the_device(device_type: str | None) -> None:
    torch.manual_seed(3)
    before, on_cpu = flagos.get_rng_state(), torch.get_rng_state()
    drawn = []
    for _ in range(2):
        with torch.random.fork_rng(device_type=device_type):
            drawn.append(torch.randn(2, device="flagos"))
            torch.manual_seed(99)
            torch.rand(5)
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(flagos.get_rng_state(), before)
    assert torch.equal(torch.get_rng_state(), on_cpu)
    with torch.random.fork_rng(enabled=False, device_type=device_type):
        torch.rand(1, device="flagos")
    assert not torch.equal(flagos.get_rng_state(), before)


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation_draws_the_same_mask(reentrant: bool) -> None:
    x = torch.ones(2000, device="flagos", requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(functional.dropout, x, 0.5, use_reentrant=reentrant)
    torch.rand(50, device="flagos")
    after = flagos.get_rng_state()
    y.sum().backward()
    assert torch.equal(y != 0, x.grad != 0)
    assert torch.equal(flagos.get_rng_state(), after)


def test_default_generators() -> None:
    generators = flagos.default_generators
    assert len(generators) == flagos.device_count()
    assert generators[0].device == torch.device("flagos", 0)
    assert generators[-1].device.index == flagos.device_count() - 1
    assert [generator.device for generator in generators] == [g.device for g in generators[:]]
    with pytest.raises(IndexError):
        generators[flagos.device_count()]
    flagos.manual_seed(21)
    assert generators[0].initial_seed() == 21
    assert flagos._get_generator(torch.device("flagos")).initial_seed() == 21
    expected = torch.rand(3, device="flagos")
    generators[0].manual_seed(21)
    assert torch.equal(torch.rand(3, device="flagos"), expected)
    generators[0].manual_seed(21)
    with_it = torch.rand(3, device="flagos", generator=generators[0])
    assert torch.equal(with_it, expected)


def test_a_generator_has_its_own_state() -> None:
    generator = torch.Generator("flagos").manual_seed(2)
    assert generator.device.type == "flagos"
    state = generator.get_state()
    first = torch.rand(4, device="flagos", generator=generator)
    copy = generator.clone_state()
    second = torch.rand(4, device="flagos", generator=generator)
    assert torch.equal(torch.rand(4, device="flagos", generator=copy), second)
    generator.set_state(state)
    assert torch.equal(torch.rand(4, device="flagos", generator=generator), first)
    assert generator.initial_seed() == 2


def test_seeds_before_the_start_count_from_the_last_one_on() -> None:
    output_of_child(
        """
        import torch, torch_fl
        flagos = torch.flagos
        def after(*seeding):
            for call, *arguments in seeding:
                call(*arguments)
            return [generator.initial_seed() for generator in flagos.default_generators]
        waiting = ((torch.manual_seed, 1), (flagos.manual_seed, 2), (flagos.manual_seed_all, 3),
                   (flagos.manual_seed, 4), (flagos.manual_seed, 5))
        assert not flagos.is_initialized()
        for call, seed in waiting:
            call(seed)
        assert not flagos.is_initialized()
        early = [generator.initial_seed() for generator in flagos.default_generators]
        assert early == after(*waiting) == [5, 3], early
        with flagos.device(1):
            flagos.manual_seed(8)
            assert flagos.initial_seed() == 8
        assert after((flagos.manual_seed, 7)) == [7, 8]
        """,
        FLAGOS_HOST_DEVICES="2",
    )


def test_an_unseeded_process_starts_like_the_cpu_and_a_tensor_sees_the_waiting_seed() -> None:
    output_of_child(
        """
        import torch, torch_fl
        assert torch.flagos.initial_seed() == torch.initial_seed()
        """
    )
    output_of_child(
        """
        import torch, torch_fl
        torch.manual_seed(4)
        assert torch.equal(torch.rand(9, device="flagos").cpu(), torch.rand(9))
        """
    )


def test_every_device_has_its_own_stream_of_numbers() -> None:
    output_of_child(
        """
        import torch, torch_fl
        flagos = torch.flagos
        torch.manual_seed(1)
        here = torch.rand(4, device="flagos:0")
        assert torch.equal(torch.rand(4, device="flagos:1").cpu(), here.cpu())
        state = flagos.get_rng_state(0)
        torch.rand(9, device="flagos:1")
        assert torch.equal(flagos.get_rng_state("flagos:0"), state)
        assert not torch.equal(flagos.get_rng_state(1), state)
        states = flagos.get_rng_state_all()
        draws = [torch.rand(2, device=f"flagos:{i}").cpu() for i in (0, 1)]
        flagos.set_rng_state_all(states)
        for i in (0, 1):
            assert torch.equal(torch.rand(2, device=f"flagos:{i}").cpu(), draws[i])
        generator = torch.Generator("flagos:1")
        assert generator.device.index == 1
        flagos.seed_all()
        assert len({g.initial_seed() for g in flagos.default_generators}) == 1
        """,
        FLAGOS_HOST_DEVICES="2",
    )
