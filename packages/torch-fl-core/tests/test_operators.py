"""Owns: tests of single operators whose answer has many parts or many options, against the CPU.

The operator database covers each operator with its samples; here are the combinations that break
backends: index results, ragged inputs, complex numbers, and errors. Layers, attention, recurrent
cells, aliasing and autograd have files of their own (test_operators_*.py).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from parity import assert_same, leaf, uneven, with_gradients
from torch.nn import functional

import torch_fl  # noqa: F401  (makes the device)

if TYPE_CHECKING:
    from collections.abc import Callable

IDS = torch.tensor([3, 1, 4, 1, 5, 0, 2, 6])
OFFSETS = torch.tensor([0, 3, 3, 6])
ENDS = torch.tensor([0, 3, 3, 8])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize(
    "options",
    [{}, {"padding_idx": 1}, {"include_last_offset": True}, {"max_norm": 0.5}, {"scale_grad": 1}],
    ids=str,
)
def test_embedding_bag(mode: str, options: dict[str, Any]) -> None:
    call = {key: value for key, value in options.items() if key != "scale_grad"}
    if "scale_grad" in options:
        if mode == "max":
            pytest.skip("the CPU refuses it too")
        call["scale_grad_by_freq"] = True
    grad = "max_norm" not in options  # that one renormalises the weight in place

    def run(ids: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return functional.embedding_bag(ids, weight, offsets, mode=mode, **call)

    weight = leaf(7, 5) if grad else uneven((7, 5))
    offsets = ENDS if "include_last_offset" in options else OFFSETS
    assert_same(with_gradients(run) if grad else run, IDS, weight, offsets)


def test_embedding_bag_of_other_inputs() -> None:
    bag = functional.embedding_bag
    assert_same(with_gradients(bag), IDS.view(2, 4), leaf(7, 5))
    assert_same(with_gradients(bag), IDS.int(), leaf(7, 5), OFFSETS.int())
    weighted = with_gradients(
        lambda ids, w, offsets, scale: bag(ids, w, offsets, mode="sum", per_sample_weights=scale)
    )
    assert_same(weighted, IDS, leaf(7, 5), OFFSETS, leaf(8))
    sparse = with_gradients(lambda ids, w: bag(ids, w, mode="sum", sparse=True))
    assert_same(sparse, IDS.view(2, 4), leaf(7, 5))


CTC_LENGTHS = {
    "tensors": (torch.tensor([8, 7, 8]), torch.tensor([3, 2, 4])),
    "lists": ([8, 7, 8], [3, 2, 4]),
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("lengths", CTC_LENGTHS)
@pytest.mark.parametrize("infinite", [False, True])
def test_ctc_loss(lengths: str, reduction: str, infinite: bool) -> None:
    of_input, of_target = CTC_LENGTHS[lengths]

    def run(x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.ctc_loss(
            x.log_softmax(2),
            targets,
            list(of_input) if infinite else of_input,
            list(of_target) if infinite else of_target,
            reduction=reduction,
            zero_infinity=infinite,
        )

    targets = torch.tensor([[1, 2, 3, 0], [4, 1, 0, 0], [2, 2, 2, 2]])
    assert_same(with_gradients(run), leaf(8, 3, 5), targets)


def test_ctc_loss_with_flat_targets_and_lengths_on_the_device() -> None:
    def run(x: torch.Tensor, targets: torch.Tensor, *lengths: torch.Tensor) -> torch.Tensor:
        return functional.ctc_loss(x.log_softmax(2), targets, *lengths)

    flat = torch.tensor([1, 2, 3, 4, 1, 2, 2, 2, 2])
    lengths = CTC_LENGTHS["tensors"]
    assert_same(with_gradients(run), leaf(8, 3, 5), flat, *lengths)
    assert_same(with_gradients(run), leaf(8, 3, 5), flat.int(), *[x.int() for x in lengths])


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(mode: str, padding: str, aligned: bool) -> None:
    options = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    sample = with_gradients(lambda x, grid: functional.grid_sample(x, grid, **options))
    grid = (uneven((2, 4, 3, 2)) * 1.3).requires_grad_()
    assert_same(sample, leaf(2, 3, 5, 6), grid)
    if mode != "bicubic":
        assert_same(sample, leaf(2, 3, 5, 6, 4), leaf(2, 4, 3, 5, 3))


INTERPOLATIONS = [
    ("nearest", (2, 3, 5)),
    ("linear", (2, 3, 5)),
    ("nearest", (2, 3, 5, 6)),
    ("nearest-exact", (2, 3, 5, 6)),
    ("bilinear", (2, 3, 5, 6)),
    ("bicubic", (2, 3, 5, 6)),
    ("area", (2, 3, 5, 6)),
    ("nearest", (2, 3, 5, 6, 4)),
    ("trilinear", (2, 3, 5, 6, 4)),
]


@pytest.mark.parametrize(("mode", "shape"), INTERPOLATIONS, ids=str)
def test_interpolate(mode: str, shape: tuple[int, ...]) -> None:
    for size in ({"scale_factor": 1.7}, {"size": (3, 9, 7)[: len(shape) - 2]}):
        for options in ({}, {"align_corners": True}, {"antialias": True}):
            if "align_corners" in options and "linear" not in mode and mode != "bicubic":
                continue
            if "antialias" in options and mode not in ("bilinear", "bicubic"):
                continue
            assert_same(
                with_gradients(
                    lambda x, size=size, options=options: functional.interpolate(
                        x, mode=mode, **size, **options
                    )
                ),
                leaf(*shape),
            )


@pytest.mark.parametrize("flags", list(itertools.product([True, False], repeat=3)), ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool, torch.uint8], ids=str)
def test_unique(dtype: torch.dtype, flags: tuple[bool, ...]) -> None:
    ordered, inverse, counts = flags
    x = torch.tensor([[3, 1, 2], [1, 1, 0], [3, 1, 2], [0, 5, 5]]).to(dtype)
    for dim in (None, 0, 1):
        assert_same(lambda x, dim=dim: torch.unique(x, ordered, inverse, counts, dim=dim), x)
        assert_same(
            lambda x, dim=dim: torch.unique_consecutive(x, inverse, counts, dim=dim), x.sort(0)[0]
        )


REPEATED = torch.tensor([3.0, -1.0, torch.nan, 2.0, -1.0, torch.inf, 2.0, -0.0, 0.0, -torch.inf])


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int8])
def test_sorting(dtype: torch.dtype, descending: bool) -> None:
    x = REPEATED.nan_to_num(0, 9, -9).to(dtype) if dtype == torch.int8 else REPEATED.to(dtype)
    stable = {"descending": descending, "stable": True}
    matrix = torch.stack([x, x.flip(0), x.roll(3)])
    for dim in (0, 1):
        assert_same(lambda x, dim=dim: torch.sort(x, dim=dim, **stable), matrix)
        assert_same(lambda x, dim=dim: torch.argsort(x, dim=dim, **stable), matrix)
        assert_same(lambda x, dim=dim: torch.msort(x), matrix)
    assert_same(lambda x: torch.sort(x.t(), dim=0, **stable), matrix)
    assert_same(lambda x: torch.sort(x[:0], **stable), x)


@pytest.mark.parametrize("largest", [True, False])
def test_selection(largest: bool) -> None:
    x = leaf(4, 9)
    for k in (0, 1, 4, 9):
        for dim in (0, 1):
            if k <= x.shape[dim]:
                assert_same(
                    with_gradients(lambda x, k=k, d=dim: torch.topk(x, k, d, largest=largest)), x
                )
    assert_same(lambda x: torch.topk(x, 3, largest=largest, sorted=False)[0].sort()[0], x)
    assert_same(with_gradients(lambda x: torch.kthvalue(x, 3, 1, keepdim=largest)), x)
    assert_same(with_gradients(lambda x: torch.median(x, 1, keepdim=largest)), x)
    assert_same(with_gradients(lambda x: torch.nanmedian(x, 0)), x)
    assert_same(lambda x: torch.mode(x, 0), torch.tensor([[1, 2], [1, 3], [4, 3]]))
    assert_same(with_gradients(lambda x: torch.quantile(x, 0.3, dim=1)), x)
    assert_same(with_gradients(lambda x: (torch.cummax(x, 1), torch.cummin(x, 0))), x)


def test_selecting_more_than_there_is_is_refused() -> None:
    with pytest.raises(RuntimeError, match="out of range"):
        torch.topk(torch.ones(3, device="flagos"), 4)


HISTOGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "histc": (lambda x: torch.histc(x, 7, -1, 1), (uneven((50,)),)),
    "histc of itself": (lambda x: torch.histc(x, 7), (uneven((50,)),)),
    "histogram": (lambda x: torch.histogram(x, 5, range=(-1.0, 1.0)), (uneven((50,)),)),
    "histogram edges": (torch.histogram, (uneven((50,)), torch.tensor([-1.0, 0.0, 0.2, 1.0]))),
    "histogram weights": (
        lambda x, w: torch.histogram(x, 5, weight=w, density=True),
        (uneven((50,)), uneven((50,)).abs()),
    ),
    "histogramdd": (lambda x: torch.histogramdd(x, [3, 4])[0], (uneven((50, 2)),)),
    "bincount": (lambda x: torch.bincount(x, minlength=9), (IDS,)),
    "bincount weights": (torch.bincount, (IDS, uneven((8,)))),
    "bucketize": (torch.bucketize, (uneven((5, 4)), torch.tensor([-0.5, 0.0, 0.5]))),
    "searchsorted": (
        lambda s, x: torch.searchsorted(s, x, right=True, out_int32=True),
        (uneven((3, 9)).sort()[0], uneven((3, 4))),
    ),
    "isin": (torch.isin, (IDS, torch.tensor([1, 5]))),
    "nonzero": (lambda x: (torch.nonzero(x), torch.nonzero(x, as_tuple=True)), (IDS.view(2, 4),)),
    "argwhere": (torch.argwhere, (IDS.view(2, 4) > 2,)),
    "masked_select": (lambda x: x[x > 2], (IDS,)),
    "cartesian_prod": (torch.cartesian_prod, (IDS, OFFSETS)),
    "combinations": (lambda x: torch.combinations(x, 3), (OFFSETS,)),
    "tril_indices": (lambda d: torch.tril_indices(4, 3, device=d), ("cpu",)),
    "repeat_interleave": (torch.repeat_interleave, (IDS, IDS)),
    "block_diag": (torch.block_diag, (uneven((2, 3)), uneven((1, 2)))),
    "cov": (torch.cov, (uneven((3, 7)),)),
    "corrcoef": (torch.corrcoef, (uneven((3, 7)),)),
}


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_counting_and_searching(name: str) -> None:
    function, given = HISTOGRAMS[name]
    assert_same(function, *given)


@pytest.mark.parametrize("norm", ["forward", "backward", "ortho"])
@pytest.mark.parametrize("n", [None, 5, 9])
def test_fourier_transforms(norm: str, n: int | None) -> None:
    real, complex_ = leaf(3, 7), leaf(3, 7, dtype=torch.complex64)
    for name in ("fft", "ifft", "hfft", "ihfft", "rfft", "irfft"):
        function = getattr(torch.fft, name)
        takes_complex = name in ("fft", "ifft", "hfft", "irfft")
        x = complex_ if takes_complex else real
        assert_same(with_gradients(lambda x, f=function: f(x, n=n, norm=norm)), x)
    for name in ("fftn", "ifftn", "rfftn", "irfftn", "fft2", "rfft2", "hfft2", "ihfft2"):
        function = getattr(torch.fft, name)
        x = real if name.startswith(("r", "ih")) else complex_
        assert_same(with_gradients(lambda x, f=function: f(x, norm=norm)), x)


def test_spectra() -> None:
    window = torch.hann_window(16)

    def there_and_back(x: torch.Tensor, window: torch.Tensor) -> Any:
        spectrum = torch.stft(x, 16, hop_length=4, window=window, return_complex=True)
        return spectrum, torch.istft(spectrum, 16, hop_length=4, window=window)

    assert_same(with_gradients(there_and_back), leaf(2, 100), window)
    assert_same(lambda x: (torch.fft.fftshift(x), torch.fft.ifftshift(x)), uneven((3, 5)))
    assert_same(lambda d: (torch.fft.fftfreq(7, device=d), torch.fft.rfftfreq(7, device=d)), "cpu")
    for make in (torch.hann_window, torch.kaiser_window, torch.bartlett_window):
        assert_same(lambda d, make=make: make(9, periodic=False, device=d), "cpu")


COMPLEX: dict[str, Callable[..., Any]] = {
    "real and imag": lambda z: (z.real, z.imag),
    "as real": torch.view_as_real,
    "conj": torch.conj,
    "conj twice": lambda z: z.conj().conj(),
    "conj physical": torch.conj_physical,
    "resolve": lambda z: (z.conj().resolve_conj(), z.conj().imag.resolve_neg()),
    "neg view": lambda z: z.conj().imag,
    "transposed conj": lambda z: z.mH @ z,
    "conj in a product": lambda z: torch.mm(z.conj(), z.t()),
    "abs, angle": lambda z: (z.abs(), z.angle(), z.sgn()),
    "exp": lambda z: (z.exp(), z.log(), z.sqrt(), z.sin(), z.tanh()),
    "power": lambda z: (z**2, z**0.5, z ** (1 + 2j)),
    "reductions": lambda z: (z.sum(0), z.mean(), z.prod(1)),
    "mixed with reals": lambda z: (z + 1.5, z * z.real, torch.add(z, z.real, alpha=2j)),
    "polar": lambda z: torch.polar(z.abs(), z.angle()),
    "complex": lambda z: torch.complex(z.real, z.imag),
    "comparison": lambda z: (z == z.conj(), torch.isclose(z, z)),
    "slices": lambda z: (z[1:, ::2].conj(), z.t()[0].real),
    "einsum": lambda z: torch.einsum("ij,kj->ik", z, z.conj()),
    "dot": lambda z: (torch.vdot(z[0], z[1]), torch.dot(z[0], z[1])),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers(name: str) -> None:
    z = torch.complex(uneven((3, 4)), uneven((3, 4)).cos())
    assert_same(COMPLEX[name], z)
    assert_same(with_gradients(COMPLEX[name]), z.clone().requires_grad_())


def test_writing_through_complex_views() -> None:
    def run(z: torch.Tensor) -> Any:
        z.real.mul_(2)
        z.imag[0] = 5
        torch.view_as_real(z)[1].zero_()
        conj = z.conj()
        conj[2] = 1 + 2j
        z.t().conj().add_(1j)
        return z, conj.clone(), conj.is_conj()

    assert_same(run, torch.complex(uneven((3, 4)), uneven((3, 4)).cos()))


def _matrix(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return (uneven(shape, dtype) + 2 * torch.eye(*shape[-2:], dtype=dtype)).requires_grad_()


def _definite(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    a = _matrix(*shape, dtype=dtype).detach()
    return (a @ a.mH).requires_grad_()


LINALG: dict[str, tuple[Callable[..., Any], Callable[[torch.dtype], tuple[torch.Tensor, ...]]]] = {
    "inv": (torch.linalg.inv, lambda t: (_matrix(2, 3, 3, dtype=t),)),
    "pinv": (torch.linalg.pinv, lambda t: (_matrix(4, 3, dtype=t),)),
    "det": (lambda a: (torch.linalg.det(a), *torch.linalg.slogdet(a)),
            lambda t: (_matrix(2, 3, 3, dtype=t),)),
    "solve": (torch.linalg.solve, lambda t: (_matrix(3, 3, dtype=t), leaf(3, 2, dtype=t))),
    "solve from the right": (lambda a, b: torch.linalg.solve(a, b, left=False),
                             lambda t: (_matrix(3, 3, dtype=t), leaf(2, 3, dtype=t))),
    "triangular": (lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False),
                   lambda t: (_matrix(3, 3, dtype=t), leaf(3, 2, dtype=t))),
    "cholesky": (torch.linalg.cholesky, lambda t: (_definite(3, 3, dtype=t),)),
    "qr": (torch.linalg.qr, lambda t: (_matrix(4, 3, dtype=t),)),
    "lu": (torch.linalg.lu, lambda t: (_matrix(3, 3, dtype=t),)),
    "lu solve": (lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b),
                 lambda t: (_matrix(3, 3, dtype=t), leaf(3, 2, dtype=t))),
    "svd values": (torch.linalg.svdvals, lambda t: (_matrix(4, 3, dtype=t),)),
    "eigh values": (torch.linalg.eigvalsh, lambda t: (_definite(3, 3, dtype=t),)),
    "eig values": (torch.linalg.eigvals, lambda t: (_matrix(3, 3, dtype=t),)),
    "norms": (lambda a: (torch.linalg.matrix_norm(a), torch.linalg.matrix_norm(a, 2),
                         torch.linalg.vector_norm(a, 3), torch.linalg.norm(a, "nuc"),
                         torch.linalg.cond(a)), lambda t: (_matrix(3, 3, dtype=t),)),
    "powers": (lambda a: (torch.linalg.matrix_power(a, 3), torch.linalg.matrix_power(a, -2),
                          torch.linalg.matrix_exp(a)), lambda t: (_matrix(3, 3, dtype=t),)),
    "products": (lambda a, b: (torch.linalg.multi_dot([a, b, a]), torch.kron(a, b),
                               torch.linalg.cross(a, b)),
                 lambda t: (_matrix(3, 3, dtype=t), leaf(3, 3, dtype=t))),
    "householder": (torch.linalg.householder_product,
                    lambda t: (_matrix(4, 3, dtype=t), leaf(3, dtype=t))),
    "tensor inverse": (lambda a: torch.linalg.tensorinv(a.view(2, 2, 4)),
                       lambda t: (_matrix(4, 4, dtype=t),)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex128], ids=str)
@pytest.mark.parametrize("name", LINALG)
def test_linear_algebra(name: str, dtype: torch.dtype) -> None:
    function, make = LINALG[name]
    assert_same(with_gradients(function), *make(dtype))


@pytest.mark.parametrize("name", ["svd", "eigh", "eig", "lstsq", "matrix_rank", "ldl_factor"])
def test_decompositions_without_gradients(name: str) -> None:
    given = [_definite(3, 3).detach()] + (
        [uneven((3, 2), torch.float64)] if name == "lstsq" else []
    )
    assert_same(getattr(torch.linalg, name), *given, exact=False)


def test_linalg_errors_are_those_of_pytorch() -> None:
    singular = torch.zeros(3, 3, device="flagos")
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.inv(singular)
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        torch.linalg.cholesky(-torch.eye(3, device="flagos"))
    factor, info = torch.linalg.inv_ex(singular)
    assert int(info) > 0
    assert factor.device.type == "flagos"


UNINITIALISED: dict[str, Callable[[str], torch.Tensor]] = {
    "empty": lambda d: torch.empty(70, device=d),
    "integers": lambda d: torch.empty(70, dtype=torch.int32, device=d),
    "bool": lambda d: torch.empty(70, dtype=torch.bool, device=d),
    "complex": lambda d: torch.empty(70, dtype=torch.complex64, device=d),
    "strided": lambda d: torch.empty_strided((7, 9), (9, 1), device=d),
    "like": lambda d: torch.empty_like(torch.ones(70, device=d)),
    "new": lambda d: torch.ones(1, device=d).new_empty(70),
    "resized": lambda d: torch.ones(2, device=d).resize_(70),
}


@pytest.mark.parametrize("name", UNINITIALISED)
def test_deterministic_algorithms_fill_uninitialised_memory(name: str) -> None:
    """With NaN or the largest integer, as on the CPU and on CUDA: no run sees old values."""
    for value in (1.0, 2.0):
        _ = [torch.full((70,), value, device="flagos") for _ in range(20)]  # old values
    torch.use_deterministic_algorithms(True)
    try:
        assert_same(UNINITIALISED[name], "cpu")
    finally:
        torch.use_deterministic_algorithms(False)


ERRORS: dict[str, Callable[[str], Any]] = {
    "shapes": lambda d: torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d),
    "index": lambda d: torch.ones(3, device=d)[5],
    "gather index": lambda d: torch.ones(3, device=d).gather(0, torch.tensor([7], device=d)),
    "embedding index": lambda d: functional.embedding(
        torch.tensor([9], device=d), torch.ones(3, 2, device=d)
    ),
    "target": lambda d: functional.cross_entropy(
        torch.ones(2, 3, device=d), torch.tensor([0, 3], device=d)
    ),
    "broadcast": lambda d: torch.ones(2, 3, device=d) + torch.ones(4, device=d),
    "dtype": lambda d: torch.ones(2, device=d).bitwise_and(torch.ones(2, device=d)),
    "dim": lambda d: torch.ones(2, device=d).sum(3),
    "empty reduction": lambda d: torch.ones(0, device=d).max(),
    "negative": lambda d: torch.ones(-1, device=d),
    "cat": lambda d: torch.cat([torch.ones(2, 3, device=d), torch.ones(2, device=d)]),
    "item": lambda d: torch.ones(2, device=d).item(),
    "in-place type": lambda d: torch.ones(2, dtype=torch.int64, device=d).add_(0.5),
    "in-place shape": lambda d: torch.ones(2, device=d).add_(torch.ones(3, 2, device=d)),
    "view": lambda d: torch.ones(2, 3, device=d).t().view(6),
    "bernoulli": lambda d: torch.bernoulli(torch.full((2,), 3.0, device=d)),
    "no such conversion": lambda d: torch.ones(2, device=d).view(torch.complex128),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_have_the_type_and_words_of_the_cpus(name: str) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011  (whatever the CPU raises)
        ERRORS[name]("cpu")
    with pytest.raises(type(expected.value)) as actual:
        ERRORS[name]("flagos")
    words = str(actual.value).replace("flagos:0", "cpu").replace("flagos", "cpu").splitlines()
    assert words[0] == str(expected.value).splitlines()[0]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.float32], ids=str)
def test_histc_of_integers(dtype: torch.dtype) -> None:
    """Accelerators have it, the CPU does not, and libraries choose by the device's name."""
    x = torch.tensor([1, 2, 2, 3, 9, 0], dtype=dtype, device="flagos")
    counts = torch.histc(x, bins=4, min=0, max=3)
    assert (counts.dtype, counts.device.type) == (dtype, "flagos")
    assert counts.tolist() == [1, 1, 2, 1]
    assert torch.histc(x, bins=2).sum().item() == 6
    with pytest.raises(RuntimeError, match="bins must be"):
        torch.histc(x, bins=-1)
    with pytest.raises(RuntimeError, match="not implemented for 'Bool'"):
        torch.histc(x > 1, bins=2)
