"""Owns: programs that read, write, sort and count by index."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..inputs import distinct, integers, loss_of, normal, on_device, trained
from ..registry import Results, program


@program
def embeddings(device: str) -> Results:
    """Embeddings with padding, limits of norms, and gradients scaled by frequency."""
    indices = integers(device, 12, 5, 9)
    results: Results = {}
    for name, how in {
        "plain": {},
        "padding": {"padding_idx": 3},
        "by frequency": {"scale_grad_by_freq": True},
        "limited": {"max_norm": 0.3},
        "sparse": {"sparse": True},
    }.items():
        layer = on_device(nn.Embedding(12, 7, **how), device)  # type: ignore[arg-type]
        results |= trained(layer, indices, prefix=f"{name}: ")
        results[f"{name}: weight"] = layer.weight.detach()
    for dtype in (torch.float16, torch.bfloat16):
        layer = on_device(nn.Embedding(12, 7), device).to(dtype)
        results |= trained(layer, indices.int(), prefix=f"{dtype}: ")
    return results


@program
def embedding_bags(device: str) -> Results:
    """Bags: sums, means, largest values, with weights, offsets and empty bags."""
    indices, offsets = integers(device, 12, 20), torch.tensor([0, 4, 4, 11], device=device)
    results: Results = {}
    for mode in ("sum", "mean", "max"):
        layer = on_device(nn.EmbeddingBag(12, 7, mode=mode), device)
        results |= trained(layer, indices, offsets, prefix=f"{mode}: ")
        results |= trained(layer, indices.view(4, 5), prefix=f"{mode} rows: ")
    layer = on_device(nn.EmbeddingBag(12, 7, mode="sum", include_last_offset=True), device)
    last = torch.tensor([0, 4, 4, 20], device=device)
    weights = normal(device, 20, grad=True)
    results |= trained(layer, indices, last, per_sample_weights=weights, prefix="weights: ")
    assert weights.grad is not None
    return results | {"weights": weights.grad}


@program
def written_by_index(device: str) -> Results:
    """Scattering, adding and reducing where indices repeat."""
    base, source = normal(device, 8, 9), normal(device, 8, 9, seed=2)
    places, rows = integers(device, 8, 8, 9), integers(device, 8, 8, seed=3)
    at = (rows, integers(device, 9, 8, seed=4))
    results: Results = {
        "scatter_add": base.scatter_add(0, places, source),
        "index_add": base.index_add(0, rows, source, alpha=0.5),
        "index_put, accumulated": base.index_put(at, source[0, :8], accumulate=True),
        "integers": integers(device, 50, 8, 9).scatter_add(0, places, places),
        "half": base.half().index_add(0, rows, source.half()),
    }
    for how in ("sum", "prod", "mean", "amax", "amin"):
        for own in (False, True):
            reduced = base.scatter_reduce(0, places, source, how, include_self=own)
            results[f"{how} {own}"] = reduced
    for how in ("prod", "mean", "amax", "amin"):
        results[f"index {how}"] = base.index_reduce(0, rows, source, how)
    each_once = torch.randperm(8, generator=torch.Generator().manual_seed(1)).to(device)
    results["scatter"] = base.scatter(0, each_once.unsqueeze(1).expand(8, 9), source)
    results["index_copy"] = base.index_copy(0, each_once, source)
    results["index_fill"] = base.index_fill(1, rows, -1.5)
    results["put"] = base.put(each_once, source[0, :8])
    results["masked_scatter"] = base.masked_scatter(base > 0, source)
    results["masked_fill"] = base.masked_fill(base > 0, 7)
    return results


@program
def read_by_index(device: str) -> Results:
    """Reading by index and mask, and the gradients of it, where indices repeat."""
    rows, columns = integers(device, 8, 6, seed=3), integers(device, 9, 6, seed=4)
    places = integers(device, 8, 5, 9)
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "rows": lambda x: x[rows],
        "points": lambda x: x[rows, columns],
        "outer": lambda x: x[rows[:, None], columns],
        "mixed": lambda x: x[rows, 2:7],
        "mask": lambda x: x[x > 0],
        "negative": lambda x: x[-rows - 1],
        "gather": lambda x: x.gather(0, places),
        "take_along_dim": lambda x: torch.take_along_dim(x, x.argsort(0), 0),
        "take": lambda x: x.take(rows * 9),
        "select": lambda x: x.index_select(1, columns),
        "masked_select": lambda x: torch.masked_select(x, x < 0.5),
        "where": lambda x: torch.where(x > 0, x, x * 0.1),
        "rolled": lambda x: x.roll((1, -2), (0, 1)).flip(0),
        "triangle": lambda x: x.tril(-1) + x.triu(2),
        "diagonal": lambda x: torch.diag_embed(x.diagonal(1)),
        "repeated": lambda x: (
            x.repeat_interleave(rows.abs()[:3] + 1, dim=0, output_size=None)
            if len(x) == 3
            else x[:3].repeat_interleave(rows[:3] + 1, dim=0)
        ),
    }
    results: Results = {}
    for name, call in calls.items():
        x = normal(device, 8, 9, grad=True)
        output = call(x)
        loss_of(output).backward()
        assert x.grad is not None
        results |= {name: output.detach(), f"{name}: grad": x.grad}
    return results


@program
def sorting(device: str) -> Results:
    """Sorting and selecting, with equal values where their order is promised."""
    x = distinct(device, 7, 300)
    ties = integers(device, 5, 7, 300)
    results: Results = {}
    for descending in (False, True):
        for name, values in (("distinct", x), ("equal", ties), ("half", ties.half())):
            sorted_, places = values.sort(dim=1, descending=descending, stable=True)
            results[f"{name} {descending}"] = sorted_
            results[f"{name} {descending} places"] = places
        for k in (1, 5, 40):
            values, places = x.topk(k, largest=descending)
            results |= {f"top {k} {descending}": values, f"at {k} {descending}": places}
    values, places = x.kthvalue(9)
    results |= {"kth": values, "kth at": places, "median": x.median(), "mode": ties.mode()[0]}
    results |= {"quantile": torch.quantile(x, 0.3, dim=1), "nanmedian": x.nanmedian(1)[0]}
    x[2, 5] = float("nan")
    results |= {"with nan": x.sort(1)[0], "columns": x.sort(0)[1], "max": x.max(1)[0]}
    leaf = distinct(device, 6, 20).requires_grad_()
    loss_of(leaf.sort(1)[0], leaf.topk(3)[0], leaf.max(0)[0], leaf.amin(1)).backward()
    assert leaf.grad is not None
    return results | {"grad": leaf.grad}


@program
def counting(device: str) -> Results:
    """Different values, histograms, places in sorted lists, running sums."""
    x = integers(device, 9, 6, 40)
    values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    rows, row_of, row_counts = x[:, :2].unique(dim=0, return_inverse=True, return_counts=True)
    runs, _, lengths = torch.unique_consecutive(x.flatten(), True, True)
    numbers = normal(device, 500)
    edges = torch.linspace(-2, 2, 9, device=device)
    results: Results = {
        "values": values, "inverse": inverse, "counts": counts, "rows": rows, "row of": row_of,
        "row counts": row_counts, "runs": runs, "lengths": lengths,
        "bincount": torch.bincount(x.flatten(), minlength=12),
        "weighted": torch.bincount(x.flatten(), normal(device, 240).double()),
        "histogram": torch.histc(numbers, 10, -2, 2),
        "places": torch.searchsorted(edges, numbers),
        "buckets": torch.bucketize(numbers, edges, right=True),
        "not zero": (x > 6).nonzero(),
        "number of those": torch.count_nonzero(x, 1),
        "one hot": F.one_hot(x, 9),
        "among": torch.isin(x, torch.tensor([2, 5], device=device)),
        "triangle": torch.tril_indices(5, 4, device=device),
        "all pairs": torch.combinations(x[0, :6]),
    }  # fmt: skip
    for dtype in (torch.float32, torch.float64, torch.float16, torch.int64):
        y = normal(device, 5, 700).to(dtype)
        results |= {f"sum {dtype}": y.cumsum(1), f"largest {dtype}": y.cummax(1)[0]}
        results[f"differences {dtype}"] = y.diff(dim=0)
    results["logarithms"] = numbers.logcumsumexp(0)
    results["products"] = numbers.cumprod(0)
    return results


@program
def reductions(device: str) -> Results:
    """Reductions over many widths, dimensions, dtypes and layouts."""
    results: Results = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.complex64):
        for shape in ((3, 5000), (4097, 3), (2, 33, 65), (1, 1), (0, 4)):
            x = normal(device, *shape, scale=3.0).to(dtype)
            made = {"all": x.sum(), "first": x.sum(0), "last": x.sum(-1), "strided": x.mT.sum(-1)}
            made["products"] = (x * 0 + 1).prod(0)
            if dtype.is_floating_point:
                made |= {"mean": x.mean(-1), "variance": x.var(0), "norm": x.norm(dim=-1)}
                made |= {"lse": x.logsumexp(-1), "softmax": x.softmax(0)}
            if not dtype.is_complex:
                made["any"] = x.bool().any(-1)
                if x.numel():
                    made |= {"largest": x.amax(-1), "at": x.argmax(0), "total": x.max()}
            results |= {f"{dtype} {shape} {name}": value for name, value in made.items()}
    return results
