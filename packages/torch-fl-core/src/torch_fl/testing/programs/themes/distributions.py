"""Owns: programs that draw weights and samples of distributions."""

from __future__ import annotations

from functools import partial

import torch
from torch import distributions, nn

from ..inputs import each, loss_of, normal
from ..registry import Results, program


@program
def weights(device: str) -> Results:
    """Modules that are built on the device, and torch.nn.init."""
    torch.manual_seed(20)
    results: Results = {}
    layers = {
        "linear": nn.Linear(30, 20, device=device),
        "convolution": nn.Conv2d(4, 8, 3, device=device),
        "embedding": nn.Embedding(30, 8, device=device),
        "recurrent": nn.LSTM(5, 6, device=device),
        "attention": nn.MultiheadAttention(16, 4, device=device),
    }
    for name, layer in layers.items():
        results |= {f"{name} {key}": value.detach() for key, value in layer.named_parameters()}
    for function in (
        nn.init.orthogonal_, nn.init.kaiming_normal_, nn.init.xavier_uniform_,
        nn.init.trunc_normal_,
    ):  # fmt: skip
        results[function.__name__] = function(torch.empty(20, 30, device=device))
    return results


@program
def sampled_distributions(device: str) -> Results:
    """torch.distributions: samples, reparametrized ones with gradients, densities."""
    rate = (normal(device, 60).abs() + 0.2).requires_grad_()
    made: dict[str, distributions.Distribution] = {
        "normal": distributions.Normal(rate, rate + 1),
        "gamma": distributions.Gamma(rate, rate),
        "beta": distributions.Beta(rate, rate + 0.5),
        "dirichlet": distributions.Dirichlet(rate),
        "student": distributions.StudentT(rate + 2),
        "laplace": distributions.Laplace(rate, rate),
        "categorical": distributions.Categorical(rate),
        "poisson": distributions.Poisson(rate),
        "von mises": distributions.VonMises(rate, rate),
        "multivariate": distributions.MultivariateNormal(
            rate[:4], torch.eye(4, device=device) * 1.5
        ),
    }

    def show(made: distributions.Distribution) -> Results:
        rate.grad = None
        sample = made.rsample((3,)) if made.has_rsample else made.sample((3,))
        loss_of(made.log_prob(sample.detach()), sample).backward()
        return {"sample": sample.detach(), "grad": "none" if rate.grad is None else rate.grad}

    torch.manual_seed(21)
    return each((name, partial(show, one)) for name, one in made.items())
