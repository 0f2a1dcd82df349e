"""Owns: programs about random numbers: samplers, dropout, seeds, states, generators."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..inputs import loss_of, normal
from ..registry import Results, program

_N = 1003  # no multiple of a vector


@program
def samplers(device: str) -> Results:
    """Every function that makes random tensors, several times in a row."""
    half = torch.full((_N,), 0.3, device=device)
    results: Results = {}
    torch.manual_seed(3)
    for turn in range(2):
        made = {
            "rand": torch.rand(_N, device=device),
            "randn": torch.randn(_N, device=device),
            "randint": torch.randint(-5, 1000, (_N,), device=device),
            "large integers": torch.randint(2**40, (_N,), device=device),
            "randperm": torch.randperm(_N, device=device),
            "short permutation": torch.randperm(7, device=device),
            "rand_like": torch.rand_like(half),
            "randn_like": torch.randn_like(half.double()),
            "randint_like": torch.randint_like(half, 9),
            "normal": torch.normal(half, half + 1),
            "normal with one mean": torch.normal(2.0, half),
            "bernoulli": torch.bernoulli(half),
            "poisson": torch.poisson(half * 20),
            "binomial": torch.binomial(half * 0 + 40, half),
            "multinomial": torch.multinomial(half[:50], 20),
            "multinomial, replaced": torch.multinomial(half.repeat(3, 1), 40, replacement=True),
            "complex": torch.randn(_N, dtype=torch.complex64, device=device),
        }
        results |= {f"{turn} {name}": value for name, value in made.items()}
    return results


@program
def samplers_in_place(device: str) -> Results:
    """Every method that fills a tensor, in each dtype, also through gaps."""
    results: Results = {}
    torch.manual_seed(4)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x = torch.empty(_N, dtype=dtype, device=device)
        filled = {
            "uniform": x.clone().uniform_(-2, 3),
            "normal": x.clone().normal_(1, 2),
            "exponential": x.clone().exponential_(0.7),
            "cauchy": x.clone().cauchy_(1, 0.5),
            "log normal": x.clone().log_normal_(0.2, 0.4),
            "geometric": x.clone().geometric_(0.3),
            "bernoulli": x.clone().bernoulli_(0.2),
            "random": x.clone().random_(),
            "random in a range": x.clone().random_(3, 90),
            "through gaps": torch.zeros(20, 30, dtype=dtype, device=device),
        }
        filled["through gaps"][:, ::3].normal_()
        results |= {f"{dtype} {name}": value for name, value in filled.items()}
    for dtype in (torch.int64, torch.int32, torch.uint8, torch.bool):
        results[f"{dtype}"] = torch.empty(_N, dtype=dtype, device=device).random_()
    return results


@program
def amounts(device: str) -> Results:
    """Small and large tensors in turn: how far each call takes the generator on."""
    torch.manual_seed(5)
    results: Results = {}
    for count in (1, 3, 4, 256, 1025, 100_000, 700_001):
        results[f"rand {count}"] = torch.rand(count, device=device)[-1000:]
        results[f"randn {count}"] = torch.randn(count, device=device)[-1000:]
        x = torch.ones(count, device=device)
        results[f"dropout {count}"] = F.dropout(x, 0.3)[-1000:]
        results[f"permutation {count}"] = torch.randperm(count, device=device)[-1000:]
        results[f"afterwards {count}"] = torch.rand(2, device=device)
    return results


@program
def dropouts(device: str) -> Results:
    """Dropout of every kind, forward and backward."""
    layers: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
        "dropout": (nn.Dropout(0.3), (40, 50)),
        "nothing left": (nn.Dropout(1.0), (40, 50)),
        "nothing dropped": (nn.Dropout(0.0), (40, 50)),
        "1d": (nn.Dropout1d(0.4), (6, 20, 5)),
        "2d": (nn.Dropout2d(0.4), (6, 20, 5, 5)),
        "3d": (nn.Dropout3d(0.4), (3, 20, 2, 3, 3)),
        "alpha": (nn.AlphaDropout(0.3), (40, 50)),
        "feature alpha": (nn.FeatureAlphaDropout(0.3), (6, 20, 5, 5)),
        "rrelu": (nn.RReLU(), (40, 50)),
        "gumbel": (_Gumbel(), (40, 50)),
    }
    results: Results = {}
    torch.manual_seed(6)
    for name, (layer, shape) in layers.items():
        for dtype in (torch.float32, torch.float64):
            x = normal(device, *shape, dtype=dtype, grad=True)
            output = layer(x)
            loss_of(output).backward()
            assert x.grad is not None
            results |= {f"{name} {dtype}": output.detach(), f"{name} {dtype} grad": x.grad}
    for dtype in (torch.float16, torch.bfloat16):
        results[f"{dtype}"] = F.dropout(normal(device, 2001, dtype=dtype), 0.3)
    written = normal(device, 400)
    results["in place"] = F.dropout(written, 0.5, inplace=True)
    results["the input of that"] = written
    return results


class _Gumbel(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.gumbel_softmax(x, tau=0.7, hard=True)


@program
def seeds_and_states(device: str) -> Results:
    """Seeding, and taking a state back, in every way."""
    module: Any = torch if device == "cpu" else torch.get_device_module(device)

    def draw() -> Tensor:
        return torch.randn(9, device=device)

    results: Results = {}
    torch.manual_seed(11)
    results["seeded"] = draw()
    state = module.get_rng_state()
    results["state"] = state
    results["next"] = draw()
    module.set_rng_state(state)
    results["the same"] = draw()
    results["state afterwards"] = module.get_rng_state()
    module.manual_seed(12)
    results["seeded by the module"] = draw()
    results["initial seed"] = torch.tensor(module.initial_seed())
    torch.manual_seed(-13)
    results["a negative seed"] = draw()
    torch.manual_seed(2**63 + 5)
    results["a large seed"] = draw()
    return results


@program
def forked(device: str) -> Results:
    """fork_rng, nested, with draws inside that must leave no trace."""
    results: Results = {}
    torch.manual_seed(14)
    results["before"] = torch.rand(5, device=device)
    how: dict[str, Any] = {} if device == "cpu" else {"device_type": device}
    with torch.random.fork_rng(devices=[] if device == "cpu" else [0], **how):
        results["inside"] = torch.rand(5, device=device)
        torch.manual_seed(15)
        results["seeded inside"] = torch.rand(5, device=device)
        with torch.random.fork_rng(devices=[] if device == "cpu" else [0], **how):
            torch.rand(1000, device=device)
        results["after the inner one"] = torch.rand(5, device=device)
    results["after"] = torch.rand(5, device=device)
    return results


@program
def generators(device: str) -> Results:
    """Generators of the program's own: seeds, states, copies, and the default one untouched."""
    torch.manual_seed(16)
    one = torch.Generator(device).manual_seed(17)
    other = torch.Generator(device).manual_seed(17)
    made: dict[str, Tensor] = {}
    for turn in range(2):
        made[f"randn {turn}"] = torch.randn(_N, device=device, generator=one)
        made[f"permutation {turn}"] = torch.randperm(_N, device=device, generator=one)
        made[f"uniform {turn}"] = torch.empty(_N, device=device).uniform_(generator=one)
        chances = torch.full((_N,), 0.3, device=device)
        made[f"bernoulli {turn}"] = torch.bernoulli(chances, generator=one)
        made[f"multinomial {turn}"] = torch.multinomial(chances, 20, generator=one)
    state = one.get_state()
    made["state"] = state
    made["other"] = torch.randn(_N, device=device, generator=other)
    other.set_state(state)
    made["other, from there"] = torch.randn(_N, device=device, generator=other)
    made["copied"] = torch.randn(_N, device=device, generator=one.clone_state())
    made["weights"] = nn.init.trunc_normal_(torch.empty(30, 20, device=device), generator=one)
    made["default"] = torch.rand(5, device=device)
    seeds = {"seed": torch.tensor(one.initial_seed())}
    return {**made, **seeds}


@program(accelerator=True)
def streams_of_numbers(device: str) -> Results:
    """The CPU's numbers and the device's, which must not depend on each other."""
    torch.manual_seed(18)
    results: Results = {"device 1": torch.rand(5, device=device), "cpu 1": torch.rand(5)}
    torch.rand(100)
    results |= {"device 2": torch.rand(5, device=device), "cpu 2": torch.rand(5)}
    torch.get_device_module(device).manual_seed_all(19)
    return results | {"device 3": torch.rand(5, device=device), "cpu 3": torch.rand(5)}
