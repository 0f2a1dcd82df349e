"""Owns: tests that generators of a runtime on another device of PyTorch are that device's. What the
target is: test_delegate.py.
"""

from __future__ import annotations

import pytest
import torch
from pretend_device.processes import on_pretend_device

pretend = torch.ops.pretend

DRAWS = {
    "uniform_": lambda x, **how: x.uniform_(-1, 2, **how),
    "normal_": lambda x, **how: x.normal_(1, 2, **how),
    "bernoulli_": lambda x, **how: x.bernoulli_(0.3, **how),
    "random_": lambda x, **how: x.random_(1000, **how),
    "exponential_": lambda x, **how: x.exponential_(**how),
    "multinomial": lambda x, **how: torch.multinomial(x.abs() + 1, 3, **how),
    "rand": lambda x, **how: torch.rand(7, device=x.device, **how),
    "randn": lambda x, **how: torch.randn(7, device=x.device, **how),
    "randint": lambda x, **how: torch.randint(99, (7,), device=x.device, **how),
}


@on_pretend_device
def test_default_generators_are_the_targets() -> None:
    ours, theirs = torch.flagos.default_generators[1], pretend.default_generator(1)
    ours.manual_seed(5)
    assert theirs.initial_seed() == 5
    theirs.manual_seed(6)
    assert ours.initial_seed() == torch.flagos.default_generators[1].initial_seed() == 6
    torch.rand(3, device="flagos:1")
    assert torch.equal(ours.get_state(), theirs.get_state())
    drawn = torch.rand(3, device="hpu:1").cpu()
    theirs.manual_seed(6)
    assert torch.rand(6, device="flagos:1").cpu()[3:].tolist() == drawn.tolist()
    assert ours.device == torch.device("flagos:1")
    other = torch.flagos.default_generators[0]
    other.manual_seed(7)
    assert ours.initial_seed() == 6


@on_pretend_device
def test_numbers_are_the_targets_bit_for_bit() -> None:
    for name, draw in DRAWS.items():
        drawn = {}
        for device in ("hpu:1", "flagos:1"):
            torch.manual_seed(11)
            pretend.default_generator(1).manual_seed(11)
            x = torch.ones(9, device=device)
            drawn[device] = [draw(x).cpu()]
            torch.rand(4)  # the CPU's stream is another one
            drawn[device].append(draw(x).cpu())
        for ours, theirs in zip(drawn["flagos:1"], drawn["hpu:1"], strict=True):
            assert torch.equal(ours, theirs), name


@on_pretend_device
def test_a_seed_from_before_the_start_is_kept() -> None:
    torch.manual_seed(123)
    assert pretend.told("initialize") == 0
    torch.ones(2).to("flagos:1")
    assert [pretend.default_generator(i).initial_seed() for i in (0, 1)] == [123, 123]
    torch.manual_seed(124)
    assert [pretend.default_generator(i).initial_seed() for i in (0, 1)] == [124, 124]


@on_pretend_device
def test_a_generator_of_ones_own() -> None:
    ours, theirs = torch.Generator("flagos:1"), torch.Generator("hpu:1")
    before = torch.flagos.get_rng_state(1)
    for name, draw in DRAWS.items():
        ours.manual_seed(9)
        theirs.manual_seed(9)
        for _ in range(2):
            a = draw(torch.ones(5, device="flagos:1"), generator=ours).cpu()
            b = draw(torch.ones(5, device="hpu:1"), generator=theirs).cpu()
            assert torch.equal(a, b), name
    assert torch.equal(before, torch.flagos.get_rng_state(1)), "the default one did not move"
    state = ours.get_state()
    assert torch.equal(state, theirs.get_state())
    again = torch.Generator("flagos:1")
    again.set_state(state)
    drawn = [
        torch.rand(3, device="flagos:1", generator=generator).tolist()
        for generator in (ours, again)
    ]
    assert drawn[0] == drawn[1]


@on_pretend_device
def test_states_are_shared_and_copied_as_the_target_does() -> None:
    generator = torch.Generator("flagos:1").manual_seed(1)
    shared, copied = generator.graphsafe_get_state(), generator.clone_state()
    first = torch.rand(3, device="flagos:1", generator=generator).tolist()
    assert torch.rand(3, device="flagos:1", generator=copied).tolist() == first
    assert torch.equal(shared.get_state(), generator.get_state())
    generator.graphsafe_set_state(torch.Generator("flagos:1").manual_seed(1))
    assert torch.rand(3, device="flagos:1", generator=generator).tolist() == first
    with torch.random.fork_rng([0, 1], device_type="flagos"):
        torch.manual_seed(50)
    assert pretend.default_generator(1).initial_seed() != 50


@on_pretend_device
def test_a_generator_of_another_device_is_refused() -> None:
    x = torch.ones(3, device="flagos:1")
    for generator, name in ((torch.Generator("hpu:1"), "hpu"), (torch.Generator(), "cpu")):
        for draw in DRAWS.values():
            with pytest.raises(
                RuntimeError,
                match=f"Expected a 'flagos' device type for generator but found '{name}'",
            ):
                draw(x, generator=generator)
    with pytest.raises(RuntimeError, match="'flagos:1' generator device but found 'flagos:0'"):
        x.uniform_(generator=torch.Generator("flagos:0"))
    with pytest.raises(RuntimeError, match="generator"):
        torch.ones(3, device="hpu:1").uniform_(generator=torch.Generator("flagos:1"))
