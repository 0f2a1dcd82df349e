"""Owns: programs with Fourier transforms, and with sparse and nested tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..inputs import integers, loss_of, normal
from ..registry import Results, program


@program
def transforms(device: str) -> Results:
    """torch.fft in one and more dimensions, with lengths and norms, and back."""
    fft = torch.fft
    real, values = normal(device, 3, 12, 15), normal(device, 3, 12, 15, dtype=torch.complex64)
    calls: dict[str, tuple[Callable[..., Any], Tensor]] = {
        "fft": (fft.fft, values),
        "real input": (fft.fft, real),
        "longer": (lambda x: fft.fft(x, n=20, norm="ortho"), values),
        "shorter": (lambda x: fft.ifft(x, n=7, dim=1, norm="forward"), values),
        "rfft": (fft.rfft, real),
        "irfft": (lambda x: fft.irfft(x, n=15), values),
        "hfft": (fft.hfft, values),
        "ihfft": (fft.ihfft, real),
        "fft2": (fft.fft2, values),
        "rfft2": (fft.rfft2, real),
        "irfftn": (lambda x: fft.irfftn(x, s=(12, 16)), values),
        "fftn": (lambda x: fft.fftn(x, dim=(0, 2)), values),
        "strided": (lambda x: fft.fft(x.transpose(0, 2)), values),
        "shifted": (lambda x: fft.fftshift(fft.fft2(x)), real),
        "convolved": (lambda x: fft.irfft(fft.rfft(x) * fft.rfft(x.roll(1, -1)), n=15), real),
        "double": (lambda x: fft.fftn(x.double()), real),
    }
    results: Results = {}
    for name, (function, x) in calls.items():
        leaf = x.detach().clone().requires_grad_()
        output = function(leaf)
        loss_of(output).backward()
        assert leaf.grad is not None
        results |= {name: output.detach(), f"{name}: grad": leaf.grad}
    frequencies = {"fftfreq": fft.fftfreq(9, 0.2, device=device)}
    return {**results, **frequencies, "rfftfreq": fft.rfftfreq(9, device=device)}


@program
def spectrograms(device: str) -> Results:
    """Short-time transforms and their inverse, and windows."""
    sound = normal(device, 2, 400, grad=True)
    window = torch.hann_window(64, device=device)
    spectrum = torch.stft(sound, 64, 16, window=window, return_complex=True)
    power = spectrum.abs().square()
    back = torch.istft(spectrum, 64, 16, window=window, length=400)
    loss_of(power, back).backward()
    assert sound.grad is not None
    windows = (torch.hamming_window, torch.blackman_window, torch.bartlett_window)
    results: Results = {made.__name__: made(33, device=device) for made in windows}
    results["kaiser_window"] = torch.kaiser_window(33, device=device)
    results |= {"spectrum": spectrum.detach(), "power": power.detach(), "back": back.detach()}
    return results | {"grad": sound.grad}


def _coo(device: str, grad: bool = False) -> Tensor:
    """A matrix of 8 by 9 with entries that stand twice."""
    places = torch.stack([integers(device, 8, 20), integers(device, 9, 20, seed=2)])
    values = normal(device, 20, seed=3)
    return torch.sparse_coo_tensor(places, values, (8, 9)).requires_grad_(grad)


@program
def coordinates(device: str) -> Results:
    """Sparse tensors in coordinates: arithmetic, products, reductions, conversions."""
    a, dense = _coo(device), normal(device, 9, 4, seed=4)
    whole = a.coalesce()
    results: Results = {
        "as it is": a,
        "coalesced": whole,
        "dense": a.to_dense(),
        "product": torch.sparse.mm(a, dense),
        "sparse product": torch.sparse.mm(whole, whole.t()),
        "sum": a + a * 2,
        "elementwise": whole * whole,
        "square root": whole.abs().sqrt(),
        "rows": torch.sparse.sum(a, 1),
        "softmax": torch.sparse.softmax(whole, 1),
        "logarithm of softmax": torch.sparse.log_softmax(whole, 1),
        "selected": whole.index_select(0, torch.tensor([1, 3, 1], device=device)),
        "joined": torch.cat([a, a], 1),
        "masked": normal(device, 8, 9).sparse_mask(whole),
        "from dense": F.relu(normal(device, 8, 9)).to_sparse(),
        "hybrid": normal(device, 6, 3).to_sparse(1),
        "compressed": a.to_sparse_csr(),
        "added product": torch.addmm(normal(device, 8, 4), a, dense, beta=0.5),
        "transposed": a.t().coalesce(),
    }
    return results


@program
def sparse_gradients(device: str) -> Results:
    """Gradients through sparse products, and gradients that are sparse."""
    a, dense = _coo(device, grad=True), normal(device, 9, 4, seed=4, grad=True)
    torch.sparse.mm(a, dense).sin().sum().backward()
    assert a.grad is not None
    assert dense.grad is not None
    results: Results = {"of the matrix": a.grad, "of the factor": dense.grad}
    weight = normal(device, 10, 3, grad=True)
    F.embedding(integers(device, 10, 7), weight, sparse=True).cos().sum().backward()
    assert weight.grad is not None
    results |= {"of an embedding": weight.grad, "coalesced": weight.grad.coalesce()}
    places = integers(device, 10, 5, seed=6).unsqueeze(0)
    values = normal(device, 5, 3, grad=True)
    torch.sparse_coo_tensor(places, values, (10, 3)).to_dense().sin().sum().backward()
    assert values.grad is not None
    return results | {"of the values": values.grad}


@program
def compressed(device: str) -> Results:
    """Compressed rows, columns and blocks: conversions and products."""
    dense = F.relu(normal(device, 8, 12))
    rows = dense.to_sparse_csr()
    factor = normal(device, 12, 5, seed=4)
    results: Results = {
        "rows": rows,
        "columns": dense.to_sparse_csc(),
        "blocks": dense.to_sparse_bsr((2, 3)),
        "dense again": rows.to_dense(),
        "coordinates": rows.to_sparse_coo(),
        "product": rows @ factor,
        "vector": rows @ factor[:, 0],
        "added": torch.addmm(normal(device, 8, 5), rows, factor, alpha=0.5),
        "scaled": rows * 3,
        "sine": rows.sin(),
        "sampled": torch.sparse.sampled_addmm(rows, normal(device, 8, 5), factor.mT.contiguous()),
    }
    return results


@program
def compressed_gradients(device: str) -> Results:
    """Gradients through products with compressed rows."""
    rows = F.relu(normal(device, 8, 12)).to_sparse_csr()
    factor = normal(device, 12, 5, seed=4, grad=True)
    (rows @ factor).cos().sum().backward()
    assert factor.grad is not None
    return {"grad": factor.grad}


@program
def nested(device: str) -> Results:
    """Jagged tensors: rows of several lengths through layers, attention and back."""
    rows = [normal(device, length, 16, seed=length) for length in (5, 2, 9)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged, device=device, requires_grad=True)
    weight = normal(device, 16, 16, seed=20, scale=0.3, grad=True)
    y = F.layer_norm(F.linear(x, weight).relu(), (16,))
    heads = y.unflatten(-1, [2, 8]).transpose(1, 2)
    seen = F.scaled_dot_product_attention(heads, heads, heads)
    out = seen.transpose(1, 2).flatten(-2)
    loss_of(out.values()).backward()
    assert x.grad is not None
    assert weight.grad is not None
    return {
        "layers": y.detach(),
        "attention": out.detach(),
        "sums": out.detach().sum(1),
        "padded": torch.nested.to_padded_tensor(x.detach(), -1.0),
        "grad": x.grad,
        "grad of the weight": weight.grad,
    }
