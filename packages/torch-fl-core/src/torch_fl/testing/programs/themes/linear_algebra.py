"""Owns: programs with products of matrices and torch.linalg."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..inputs import leaves_of, loss_of, needs_kernel, normal, on_device, trained
from ..registry import Results, program

_DTYPES = (torch.float32, torch.float64, torch.complex64)


def _matrix(device: str, *shape: int, dtype: torch.dtype, seed: int = 1) -> Tensor:
    return normal(device, *shape, dtype=dtype, seed=seed)


def _through(function: Callable[..., Any], *inputs: Tensor) -> Results:
    """What a function gives, and its gradients."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    outputs = list(leaves_of(function(*leaves)))
    results: Results = {f"{index}": output.detach() for index, output in enumerate(outputs)}
    if any(output.requires_grad for output in outputs):
        loss_of(*(output for output in outputs if output.requires_grad)).backward()
        grads = enumerate(leaf.grad for leaf in leaves)
        results |= {f"grad {i}": "none" if grad is None else grad for i, grad in grads}
    return results


def _all(functions: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]]) -> Results:
    results: Results = {}
    for name, (function, inputs) in functions.items():
        results |= {f"{name}: {key}": value for key, value in _through(function, *inputs).items()}
    return results


@program
def products(device: str) -> Results:
    """Products of matrices and vectors in many shapes, layouts and dtypes."""
    results: Results = {}
    for dtype in (*_DTYPES, torch.float16, torch.bfloat16):
        a, b = _matrix(device, 13, 33, dtype=dtype), _matrix(device, 33, 7, dtype=dtype, seed=2)
        batch, other = a.repeat(3, 1, 1), b.repeat(3, 1, 1) * 0.5
        c = _matrix(device, 13, 7, dtype=dtype, seed=3)
        made = _all(
            {
                "mm": (torch.mm, (a, b)),
                "transposed": (lambda a, b: b.mT @ a.mT, (a, b)),
                "strided": (lambda a, b: a[:, ::2] @ b[::2], (a, b)),
                "mv": (torch.mv, (a, b[:, 0])),
                "dot": (torch.dot, (a[0], b[:, 0])),
                "bmm": (torch.bmm, (batch, other)),
                "broadcast": (torch.matmul, (batch, b)),
                "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), (c, a, b)),
                "row": (lambda a, b, c: torch.addmm(c[0], a, b), (a, b, c)),
                "baddbmm": (lambda x, y, c: torch.baddbmm(c, x, y, beta=0.3), (batch, other, c)),
                "einsum": (lambda x, y: torch.einsum("bij,bjk->kbi", x, y), (batch, other)),
                "outer": (torch.outer, (a[0], b[0])),
                "nothing": (torch.mm, (a[:, :0], b[:0])),
            }
        )
        results |= {f"{dtype} {name}": value for name, value in made.items()}
    return results


@program
def linear_layers(device: str) -> Results:
    """Linear and bilinear layers, with epilogues that libraries fuse."""
    results: Results = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        layers: dict[str, nn.Module] = {
            "linear": nn.Linear(64, 48),
            "no bias": nn.Linear(64, 48, bias=False),
            "gelu": nn.Sequential(nn.Linear(64, 64), nn.GELU("tanh"), nn.Linear(64, 8)),
            "relu": nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)),
        }
        for name, layer in layers.items():
            for shape in ((5, 64), (2, 3, 64), (64,), (0, 64)):
                x = normal(device, *shape, dtype=dtype, grad=True)
                made = trained(on_device(layer, device).to(dtype), x)
                results |= {f"{dtype} {name} {shape}: {k}": v for k, v in made.items()}
    pair = on_device(nn.Bilinear(5, 6, 4), device)
    return results | trained(pair, normal(device, 3, 5, grad=True), normal(device, 3, 6, seed=2))


@program
def decompositions(device: str) -> Results:
    """Cholesky, QR, singular values, eigenvalues of symmetric matrices, LU; one and several."""
    results: Results = {}
    for dtype in _DTYPES:
        for shape in ((6, 6), (3, 5, 5)):
            a = _matrix(device, *shape, dtype=dtype)
            positive = a @ a.mH + torch.eye(shape[-1], dtype=dtype, device=device) * shape[-1]
            made = _all(
                {
                    "cholesky": (torch.linalg.cholesky, (positive,)),
                    "inverse of cholesky": (_through_cholesky, (positive,)),
                    "qr": (torch.linalg.qr, (a,)),
                    "singular values": (torch.linalg.svdvals, (a,)),
                    "eigenvalues": (torch.linalg.eigvalsh, (positive,)),
                    "lu": (torch.linalg.lu, (a,)),
                    "ldl": (lambda a: torch.linalg.ldl_factor(a.detach()), (positive,)),
                }
            )
            with torch.no_grad():
                made["factors"], made["pivots"] = torch.linalg.lu_factor(a)
                u, s, vh = torch.linalg.svd(a)
                made |= {"u": u, "s": s, "vh": vh}
                made["vectors"] = torch.linalg.eigh(positive)[1]
                made["householder"] = torch.geqrf(a)[0]
            results |= {f"{dtype} {shape} {name}": value for name, value in made.items()}
    return results


def _through_cholesky(a: Tensor) -> Tensor:
    return torch.cholesky_inverse(torch.linalg.cholesky(a))


@program
def solving(device: str) -> Results:
    """Systems of equations, inverses, least squares, determinants, powers, exponentials."""
    results: Results = {}
    for dtype in _DTYPES:
        for shape in ((6, 6), (3, 5, 5)):
            a = _matrix(device, *shape, dtype=dtype)
            b = _matrix(device, *shape[:-1], 2, dtype=dtype, seed=2)
            made = _all(
                {
                    "solve": (torch.linalg.solve, (a, b)),
                    "triangular": (
                        lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
                        (a, b),
                    ),
                    "inverse": (torch.linalg.inv, (a,)),
                    "least squares": (lambda a, b: torch.linalg.lstsq(a, b).solution, (a, b)),
                    "determinant": (torch.linalg.det, (a,)),
                    "its logarithm": (torch.linalg.slogdet, (a,)),
                    "power": (lambda a: torch.linalg.matrix_power(a, -3), (a,)),
                    "exponential": (torch.linalg.matrix_exp, (a * 0.3,)),
                }
            )
            results |= {f"{dtype} {shape} {name}": value for name, value in made.items()}
    return results


@program
def eigenvalues(device: str) -> Results:
    """Eigenvalues of matrices that are not symmetric."""
    results: Results = {}
    with needs_kernel("library for eigenvalues", "MAGMA", "magma", "cuSOLVER"):
        for dtype in (torch.float32, torch.float64, torch.complex64):
            a = _matrix(device, 6, 6, dtype=dtype)
            results[f"{dtype} values"] = torch.linalg.eigvals(a)
            values, vectors = torch.linalg.eig(a)
            results |= {f"{dtype} of vectors": values, f"{dtype} vectors": vectors}
    return results


@program
def measures(device: str) -> Results:
    """Norms of vectors and matrices, ranks, condition numbers, distances."""
    a, b = normal(device, 7, 5), normal(device, 4, 5, seed=2)
    linalg = torch.linalg
    orders: list[Any] = ["fro", "nuc", 1, 2, -2, float("inf")]
    made: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
        f"norm {order}": (lambda a, order=order: linalg.matrix_norm(a, order), (a,))
        for order in orders
    }
    for power in (0.5, 1, 2, 3, float("inf"), float("-inf")):
        made[f"vector {power}"] = (lambda a, p=power: linalg.vector_norm(a, p, dim=1), (a,))
        if power > 0:
            made[f"distance {power}"] = (lambda a, b, p=power: torch.cdist(a, b, p), (a, b))
    results = _all(
        {
            **made,
            "condition": (linalg.cond, (a,)),
            "pseudoinverse": (linalg.pinv, (a,)),
            "all": (linalg.norm, (a,)),
            "renormed": (lambda a: torch.renorm(a, 2, 0, 1.5), (a,)),
            "cross": (lambda a: linalg.cross(a[:, :3], a[:, 2:]), (a,)),
            "cosine": (lambda a: torch.cosine_similarity(a[:4], a[3:], dim=1), (a,)),
            "covariance": (torch.cov, (a,)),
        }
    )
    return results | {"rank": linalg.matrix_rank(a)}


@program
def refused(device: str) -> Results:
    """Errors of the library below: matrices that cannot be decomposed or inverted."""
    zero = torch.zeros(2, 3, 3, device=device)
    calls: dict[str, Callable[[], object]] = {
        "cholesky": lambda: torch.linalg.cholesky(zero - torch.eye(3, device=device)),
        "inverse": lambda: torch.linalg.inv(zero),
        "solve": lambda: torch.linalg.solve(zero, zero),
        "shapes": lambda: zero[0] @ zero[0, :2],
        "dtypes": lambda: zero @ zero.double(),
    }
    results: Results = {}
    for name, call in calls.items():
        try:
            call()
        except RuntimeError as error:
            results[name] = f"{type(error).__name__}: {error}"
        else:
            results[name] = "nothing is wrong"
    factor, info = torch.linalg.cholesky_ex(zero - torch.eye(3, device=device))
    return results | {"information": info, "shape of the factor": str(tuple(factor.shape))}
