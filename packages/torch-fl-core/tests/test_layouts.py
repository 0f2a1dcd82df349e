"""Owns: tests of tensors that are not one strided piece of memory: sparse, quantized, jagged.

They work as on the CPU; mkldnn tensors are refused with words that say what to do. Nested tensors
of the strided layout are in test_nested.py.
"""

from __future__ import annotations

import io
import textwrap
from typing import TYPE_CHECKING, Any

import pytest
import torch
from children import output_of_child
from memory_level import assert_back_at, settled
from parity import assert_same, gradients, uneven
from torch.nn import functional

import torch_fl  # noqa: F401  (makes the device)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state:UserWarning"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly:UserWarning"),
]

D = "flagos"
COMPRESSED = [torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc]
DENSE = torch.tensor([
    [0.0, 1.5, 0.0, -2.0], [0.0] * 4, [3.0, 0.0, 0.0, 0.25], [0.0, -1.0, 0.5, 0.0],
])  # fmt: skip


def _coo(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Not coalesced: one place has two values."""
    indices = torch.tensor([[0, 0, 2, 2, 3, 0], [1, 3, 0, 3, 2, 1]])
    return torch.sparse_coo_tensor(indices, uneven((6,), dtype), (4, 4), check_invariants=True)


def _compressed(layout: torch.layout, dense: torch.Tensor = DENSE) -> torch.Tensor:
    if layout in (torch.sparse_bsr, torch.sparse_bsc):
        return dense.to_sparse(layout=layout, blocksize=(2, 2))
    return dense.to_sparse(layout=layout)


COO: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "clone": lambda s, d: s.clone(),
    "coalesce": lambda s, d: (s.coalesce(), s.coalesce().coalesce(), s.is_coalesced()),
    "to_dense": lambda s, d: s.to_dense(),
    "dense to sparse": lambda s, d: (d.to_sparse(), d.to_sparse(1)),
    "parts": lambda s, d: (s.coalesce().indices(), s.coalesce().values(), s._indices(), s._values(),
                           s._nnz(), s.sparse_dim(), s.dense_dim()),
    "transpose": lambda s, d: (s.t(), s.transpose(0, 1).coalesce(), s.coalesce().t()),
    "add": lambda s, d: (s + s, s + s.t(), torch.add(s, s, alpha=-2), d + s),
    "sub and neg": lambda s, d: (s - s.t(), -s),
    "mul": lambda s, d: (s * 3, s * s, s.coalesce() * d, s / 2),
    "mm": lambda s, d: (torch.mm(s, d), s @ d, torch.sparse.mm(s, d), torch.sparse.mm(s, s)),
    "addmm": lambda s, d: (torch.addmm(d, s, d), torch.sparse.addmm(d, s, d, beta=0.5, alpha=2)),
    "mv and bmm": lambda s, d: (torch.mv(s, d[0]), torch.bmm(torch.stack([s, s]).coalesce(),
                                                             torch.stack([d, d]))),
    "sum": lambda s, d: (s.sum(), torch.sparse.sum(s), torch.sparse.sum(s, 0)),
    "softmax": lambda s, d: (torch.sparse.softmax(s, 1), torch.sparse.log_softmax(s, 0)),
    "pointwise": lambda s, d: (s.coalesce().sin(), s.abs(), s.coalesce().sqrt().isnan(), s.sgn()),
    "power": lambda s, d: s.coalesce().pow(2),
    "index_select": lambda s, d: s.index_select(0, torch.tensor([2, 0], device=s.device)),
    "select": lambda s, d: (s[2], s.select(1, 3)),
    "narrow": lambda s, d: s.narrow_copy(0, 1, 3),
    "cat and stack": lambda s, d: (torch.cat([s, s.t()], 1), torch.stack([s, s])),
    "mask": lambda s, d: d.sparse_mask(s.coalesce()),
    "dtype": lambda s, d: (s.double(), s.to(torch.float64).dtype, s.half()),
    "zero": lambda s, d: (s.clone().zero_(), torch.zeros_like(s), torch.empty_like(s).sparse_dim()),
    "unsqueeze": lambda s, d: s.unsqueeze(0),
    "norm": lambda s, d: (s.norm(), s.coalesce().norm()),
    "any": lambda s, d: (torch.equal(s.to_dense(), s.coalesce().to_dense()), s.is_sparse),
    "in-place add": lambda s, d: (s.clone().add_(s), s.coalesce().clone().add_(s.t())),
    "in-place on dense": lambda s, d: d.add_(s, alpha=2),
    "in-place mul": lambda s, d: (s.clone().mul_(2), s.coalesce().clone().mul_(s.coalesce())),
    "in-place sgn": lambda s, d: s.coalesce().neg_(),
    "copy_": lambda s, d: s.t().clone().copy_(s),
    "resize": lambda s, d: s.clone().sparse_resize_((6, 5), 2, 0),
    "resize and clear": lambda s, d: s.clone().sparse_resize_and_clear_((3, 2, 2), 2, 1),
    "add out": lambda s, d: torch.add(s, s.t(), out=torch.empty_like(s)),
    "hybrid": lambda s, d: (d.view(2, 2, 4).to_sparse(2), d.view(2, 2, 4).to_sparse(2).to_dense(),
                            d.view(2, 2, 4).to_sparse(2).sum()),
    "empty": lambda s, d: (torch.zeros_like(d).to_sparse(), torch.zeros_like(d).to_sparse() + s),
    "to compressed": lambda s, d: (s.to_sparse_csr(), s.to_sparse_csc(), s.to_sparse_bsr((2, 2))),
}  # fmt: skip


@pytest.mark.parametrize("name", COO)
def test_coo(name: str) -> None:
    for dtype in (torch.float32, torch.float64):
        assert_same(COO[name], _coo(dtype), uneven((4, 4), dtype))


def test_constructing_coo() -> None:
    def run(indices: torch.Tensor, values: torch.Tensor) -> Any:
        sparse = torch.sparse_coo_tensor(indices, values, (4, 4))
        inferred = torch.sparse_coo_tensor(indices, values)
        assert sparse.device == inferred.device == values.device
        return sparse, inferred, torch.sparse_coo_tensor((3, 3), device=values.device)

    assert_same(run, _coo()._indices(), _coo()._values())
    sparse = torch.sparse_coo_tensor([[0, 2]], [1.0, 3.0], (4,), device=D)
    assert sparse.device == torch.device(D, 0)
    assert sparse.to_dense().tolist() == [1.0, 0.0, 3.0, 0.0]
    with pytest.raises(RuntimeError, match="size"):
        torch.sparse_coo_tensor([[0, 9]], [1.0, 3.0], (4,), device=D, check_invariants=True)
    assert torch.eye(3, device=D).to_sparse().coalesce().values().device.type == "flagos"


def test_moving_both_ways() -> None:
    for make in (
        _coo,
        lambda: _coo().coalesce(),
        *[lambda x=x: _compressed(x) for x in COMPRESSED],
    ):
        sparse = make()
        there = sparse.to(D)
        assert there.device == torch.device(D, 0)
        assert there.layout == sparse.layout
        back = there.cpu()
        assert back.device.type == "cpu"
        assert torch.equal(back.to_dense(), sparse.to_dense())
        if sparse.layout == torch.sparse_coo:
            assert there.is_coalesced() == back.is_coalesced() == sparse.is_coalesced()
            assert torch.equal(back._indices(), sparse._indices())
        assert torch.equal(there.to("cpu", torch.float64).to_dense(), sparse.to_dense().double())
        target = torch.empty_like(sparse)
        if sparse.layout == torch.sparse_coo:
            assert torch.equal(target.copy_(there).to_dense(), sparse.to_dense())
            assert torch.equal(torch.empty_like(there).copy_(sparse).to_dense().cpu(),
                               sparse.to_dense())  # fmt: skip
        assert there.to(D) is there


def test_a_copy_on_the_host_takes_no_device_memory() -> None:
    before = settled()
    kept = []
    for sparse in (_coo(), _compressed(torch.sparse_csr)):
        there = sparse.to(D)
        kept += [there.cpu(), torch.empty_like(sparse).copy_(there)]
        assert all(x.device.type == "cpu" for x in kept)
        assert all(torch.equal(x.to_dense(), sparse.to_dense()) for x in kept[-2:])
    del there
    assert_back_at(before)


def test_values_alias_what_they_came_from() -> None:
    sparse = _coo().coalesce().to(D)
    sparse.values().mul_(2)
    assert torch.equal(sparse.to_dense().cpu(), _coo().to_dense() * 2)
    values = torch.ones(2, device=D)
    made = torch.sparse_coo_tensor(torch.tensor([[0, 1]], device=D), values, (2,))
    values.fill_(7)
    assert made._values().data_ptr() == values.data_ptr()
    assert made.to_dense().tolist() == [7.0, 7.0]
    compressed = _compressed(torch.sparse_csr).to(D)
    compressed.values().zero_()
    assert compressed.to_dense().count_nonzero().item() == 0
    assert compressed.crow_indices().data_ptr() == compressed.crow_indices().data_ptr()


def test_in_place_changes_keep_the_tensor_and_raise_its_version() -> None:
    def run(s: torch.Tensor) -> Any:
        alias, version = s.detach(), s._version
        for _ in range(20):
            assert s.add_(s.t()) is s
        assert s.mul_(0.5) is s
        return s._version - version, s, alias._nnz() == s._nnz()

    assert_same(run, _coo())


def test_many_in_place_additions_stay_right() -> None:
    """Each replaces the members of the sum; none may be mixed up with freed ones."""
    total, expected = torch.zeros(50, 50, device=D).to_sparse(), torch.zeros(50, 50)
    for step in range(60):
        part = torch.zeros(50, 50)
        part[step % 50, (step * 7) % 50] = step + 1.0
        total.add_(part.to_sparse().to(D))
        expected += part
        noise = [torch.full((step + 1,), -1.0, device=D) for _ in range(4)]
        assert torch.equal(total.to_dense().cpu(), expected)
    assert noise


@pytest.mark.parametrize("layout", COMPRESSED, ids=str)
def test_compressed(layout: torch.layout) -> None:
    sparse = _compressed(layout)
    rows = layout in (torch.sparse_csr, torch.sparse_bsr)

    def run(s: torch.Tensor, d: torch.Tensor) -> Any:
        compressed = s.crow_indices() if rows else s.ccol_indices()
        plain = s.col_indices() if rows else s.row_indices()
        made = torch.sparse_compressed_tensor(compressed, plain, s.values(), s.shape, layout=layout)
        return (made, s.clone(), s.to_dense(), s.to_sparse(), s.double(), s.values(), s._nnz(),
                s.transpose(0, 1), torch.zeros_like(s)._nnz(), d.to_sparse(layout=layout, **(
                    {"blocksize": (2, 2)} if made.values().dim() == 3 else {})))  # fmt: skip

    assert_same(run, sparse, DENSE)


CSR: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "mm": lambda s, d: (s @ d, torch.mm(s, d), torch.mm(d, s), torch.mm(s, s)),
    "addmm": lambda s, d: (torch.addmm(d, s, d, alpha=2), torch.sparse.addmm(d, s, d)),
    "mv": lambda s, d: (torch.mv(s, d[0]), torch.addmv(d[1], s, d[0])),
    "add": lambda s, d: (s + s, torch.add(s, s, alpha=3), d + s),
    "mul": lambda s, d: (s * 2, s * s),
    "pointwise": lambda s, d: (s.abs(), s.sin(), s.neg(), s.sqrt().isnan()),
    "in-place": lambda s, d: (s.clone().mul_(2), s.clone().zero_(), s.clone().abs_()),
    "sum": lambda s, d: (s.sum(), torch.sum(s, 0, keepdim=True)),
    "sampled": lambda s, d: torch.sparse.sampled_addmm(s, d, d, beta=0.5),
    "conversions": lambda s, d: (s.to_sparse_csc(), s.to_sparse_bsr((2, 2)), s.to_sparse_coo()),
    "select": lambda s, d: (s[0], s.select(0, 2)),
    "solve": lambda s, d: torch.triangular_solve(d, (s.to_dense() + 3 * torch.eye(
        4, device=d.device)).tril().to_sparse_csr(), upper=False).solution,
    "copy_": lambda s, d: torch.empty_like(s).copy_(s),
}  # fmt: skip


@pytest.mark.parametrize("name", CSR)
def test_csr(name: str) -> None:
    for dtype in (torch.float32, torch.float64):
        sparse = _compressed(torch.sparse_csr).to(dtype)
        assert_same(CSR[name], sparse, uneven((4, 4), dtype))


def test_backward_through_coo() -> None:
    def run(indices: torch.Tensor, values: torch.Tensor, d: torch.Tensor) -> Any:
        sparse = torch.sparse_coo_tensor(indices, values, (4, 4))
        product = torch.sparse.mm(sparse, d)
        total = torch.sparse.sum(sparse * 2) + (sparse + sparse).to_dense().sin().sum()
        soft = torch.sparse.softmax(sparse, 1).to_dense()
        picked = (d * 1).sparse_mask(sparse.detach().coalesce()).to_dense()
        return product, total, gradients((product, total, soft, picked), [values, d])

    sparse = _coo().coalesce()
    given = [sparse.values().requires_grad_(), uneven((4, 4)).requires_grad_()]
    assert_same(run, sparse.indices(), *given)


def test_backward_through_csr() -> None:
    def run(s: torch.Tensor, d: torch.Tensor) -> Any:
        outputs = (s @ d, torch.sparse.sampled_addmm(s, d, d).to_dense(), s.to_dense())
        return outputs, gradients(outputs, [s, d])

    assert_same(run, _compressed(torch.sparse_csr).requires_grad_(),
                uneven((4, 4)).requires_grad_())  # fmt: skip


def test_gradients_that_are_sparse_themselves() -> None:
    def run(ids: torch.Tensor, weight: torch.Tensor) -> Any:
        y = functional.embedding(ids, weight, sparse=True)
        (grad,) = gradients(y, [weight], retain_graph=True)
        assert grad.is_sparse
        assert grad.device == weight.device
        (y * 1).sum().backward()
        (functional.embedding(ids.flip(0), weight, sparse=True) * 2).sum().backward()
        return grad, weight.grad.coalesce()

    assert_same(run, torch.tensor([1, 3, 1]), uneven((5, 2)).requires_grad_())


@pytest.mark.parametrize("name", ["SparseAdam", "SGD", "Adagrad"])
def test_training_an_embedding_with_sparse_gradients(name: str) -> None:
    def run(ids: torch.Tensor, weight: torch.Tensor) -> Any:
        table = torch.nn.Embedding.from_pretrained(weight, freeze=False, sparse=True)
        optimizer = getattr(torch.optim, name)(table.parameters(), lr=0.1)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = table(ids).square().sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, table.weight.detach().clone()

    assert_same(run, torch.tensor([[1, 3], [1, 0]]), uneven((5, 2)))


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_reducing_products(reduce: str) -> None:
    """The kernel asks whether a gradient is wanted, which the aliases of boxing must answer."""
    output = output_of_child(
        f"""
        import torch, torch_fl
        results = []
        for device in ("cpu", "flagos"):
            dense = torch.tensor([[0., 1.5, 0.], [2., 0., -1.], [0., 0., 0.]])
            s = dense.to_sparse_csr().to(device).requires_grad_()
            x = torch.arange(6.0, device=device).view(3, 2).requires_grad_()
            y = torch.sparse.mm(s, x, "{reduce}")
            y.backward(torch.tensor([[1., 2.], [3., 4.], [5., 6.]], device=device))
            results.append([y.detach().cpu(), s.grad.to_dense().cpu(), x.grad.cpu()])
        for ours, theirs in zip(*results):
            assert torch.equal(ours, theirs), (ours, theirs)
        with torch.no_grad():
            torch.sparse.mm(s, x, "{reduce}")
        print("same")
        """
    )
    assert output.strip() == "same"


def test_saving_and_loading() -> None:
    for make in (
        _coo,
        lambda: _compressed(torch.sparse_csr),
        lambda: _compressed(torch.sparse_bsc),
    ):
        sparse = make()
        buffer = io.BytesIO()
        torch.save({"x": sparse.to(D)}, buffer)
        for where, device in ((None, "flagos"), ("cpu", "cpu"), (D, "flagos")):
            buffer.seek(0)
            loaded = torch.load(buffer, map_location=where, weights_only=True)["x"]
            assert loaded.device.type == device
            assert loaded.layout == sparse.layout
            assert torch.equal(loaded.to_dense().cpu(), sparse.to_dense())


def test_printing() -> None:
    for make in (_coo, *[lambda x=x: _compressed(x) for x in COMPRESSED]):
        text = repr(make().to(D))
        assert "device='flagos:0'" in text
        plain = text.replace("device='flagos:0', ", "")
        assert "".join(plain.split()) == "".join(repr(make()).split())


def test_devices_must_agree() -> None:
    sparse = _coo().to(D)
    for other in (torch.ones(4, 4), _coo()):
        with pytest.raises(RuntimeError, match=r"device|backend"):
            sparse @ other
        with pytest.raises(RuntimeError, match=r"device|backend"):
            sparse + other
    with pytest.raises(RuntimeError, match="device"):
        torch.sparse_coo_tensor(torch.tensor([[0]], device=D), torch.ones(1), (2,))


def test_sparse_memory_is_freed() -> None:
    before = settled()
    sparse = _coo().to(D)
    x = torch.ones(4, 4, device=D, requires_grad=True)
    for _ in range(5):
        torch.sparse.mm(sparse, x).sum().backward()
        sparse.add_(sparse.t())
        _ = sparse.to_sparse_csr().to_dense()
    del sparse, x, _
    assert_back_at(before)


QUANTIZED = [torch.quint8, torch.qint8, torch.qint32]


def _per_tensor(x: torch.Tensor, dtype: torch.dtype = torch.quint8) -> torch.Tensor:
    return torch.quantize_per_tensor(x, 0.1, 10, dtype)


def _per_channel(x: torch.Tensor) -> torch.Tensor:
    scales = torch.tensor([0.1, 0.2, 0.05], dtype=torch.float64, device=x.device)
    zeros = torch.tensor([0, 5, 10], device=x.device)
    return torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8)


def _facts(q: torch.Tensor) -> Any:
    """What can be compared of a quantized tensor: its parts."""
    scheme = (
        (q.q_scale(), q.q_zero_point())
        if q.qscheme() == torch.per_tensor_affine
        else (q.q_per_channel_scales(), q.q_per_channel_zero_points(), q.q_per_channel_axis())
    )
    return q.int_repr(), q.dequantize(), scheme, str(q.qscheme()), str(q.dtype), q.stride()


QUANTIZED_CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "per tensor": lambda x: [_facts(_per_tensor(x, dtype)) for dtype in QUANTIZED],
    "per channel": lambda x: _facts(_per_channel(x)),
    "dynamic": lambda x: _facts(torch.quantize_per_tensor_dynamic(x, torch.qint8, False)),
    "tensor parameters": lambda x: _facts(torch.quantize_per_tensor(
        x, torch.tensor(0.2, device=x.device), torch.tensor(3, device=x.device), torch.quint8)),
    "list": lambda x: [_facts(q) for q in torch.quantize_per_tensor(
        [x, x[0]], torch.tensor([0.1, 0.2], device=x.device),
        torch.tensor([0, 1], device=x.device), torch.quint8)],
    "clone": lambda x: (_facts(_per_tensor(x).clone()), _facts(_per_channel(x).clone())),
    "slices": lambda x: (_facts(_per_tensor(x)[1:, ::2]), _facts(_per_tensor(x)[0])),
    "views": lambda x: (_facts(_per_tensor(x).t()), _facts(_per_tensor(x).view(2, 6))),
    "contiguous": lambda x: _facts(_per_tensor(x).t().contiguous()),
    "cat": lambda x: _facts(torch.cat([_per_tensor(x), _per_tensor(x)])),
    "relu": lambda x: _facts(torch.relu(_per_tensor(x))),
    "comparison": lambda x: (_per_tensor(x) > 0.2, _per_tensor(x) == _per_tensor(x)),
    "max": lambda x: _facts(_per_tensor(x).max()),
    "copy_ from float": lambda x: _facts(_per_tensor(x * 0).copy_(x)),
    "copy_": lambda x: _facts(_per_tensor(x * 0).copy_(_per_tensor(x))),
    "setitem": lambda x: _facts(_set(_per_tensor(x))),
    "empty": lambda x: _facts(torch._empty_affine_quantized((2, 2), scale=0.5, zero_point=1,
                              dtype=torch.qint8, device=x.device).copy_(torch.eye(2))),
    "from integers": lambda x: _facts(torch._make_per_tensor_quantized_tensor(
        torch.arange(6, dtype=torch.uint8, device=x.device), 0.5, 2)),
    "fake": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 2, 0, 255),
    "equal": lambda x: torch.equal(_per_tensor(x), _per_tensor(x)),
}  # fmt: skip


def _set(q: torch.Tensor) -> torch.Tensor:
    q[0] = 1.0
    return q


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", QUANTIZED_CALLS)
def test_quantized(name: str) -> None:
    assert_same(QUANTIZED_CALLS[name], uneven((3, 4)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_quantized_tensors_move_print_and_save() -> None:
    for make in (_per_tensor, _per_channel):
        host = make(uneven((3, 4)))
        for q in (host.to(D), make(uneven((3, 4)).to(D)), host.to(D).to(D).clone()):
            assert q.device == torch.device(D, 0)
            assert q.is_quantized
            back = q.cpu()
            assert torch.equal(back.int_repr(), host.int_repr())
            assert torch.equal(back.dequantize(), host.dequantize())
            text = repr(q)
            assert "device='flagos:0'" in text
            plain = "".join(text.split())
            for device in (",device='flagos:0'", "device='flagos:0',"):
                plain = plain.replace(device, "")
            assert plain == "".join(repr(host).split())
            buffer = io.BytesIO()
            torch.save(q, buffer)
            buffer.seek(0)
            loaded = torch.load(buffer, map_location=D, weights_only=True)
            assert loaded.device.type == "flagos"
            assert torch.equal(loaded.int_repr().cpu(), host.int_repr())


def test_quantized_slices_share_memory() -> None:
    q = _per_tensor(torch.zeros(3, 4, device=D))
    q[1].copy_(torch.ones(4, device=D))
    assert q.dequantize()[1].tolist() == [1.0] * 4
    assert q[1].data_ptr() == q.data_ptr() + 4


def _jagged(device: str) -> torch.Tensor:
    parts = [uneven((n, 3)).to(device) for n in (2, 4, 1)]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, device=device)


JAGGED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sin": lambda t: t.sin(),
    "mul": lambda t: t * t + 1,
    "linear": lambda t: functional.linear(t, uneven((5, 3)).to(t.device)),
    "sum": lambda t: t.sum(-1),
    "layer_norm": lambda t: functional.layer_norm(t, (3,)),
    "softmax": lambda t: functional.softmax(t, -1),
    "values": lambda t: t.values(),
    "offsets": lambda t: t.offsets(),
    "transpose": lambda t: t.unsqueeze(2).transpose(1, 2).values(),
    "padded": lambda t: t.to_padded_tensor(-1.0),
}


@pytest.mark.parametrize("name", JAGGED)
def test_jagged(name: str) -> None:
    def flat(t: torch.Tensor) -> torch.Tensor:
        result = JAGGED[name](t)
        return result.values() if result.is_nested else result

    host, device = flat(_jagged("cpu")), flat(_jagged(D))
    assert device.device.type == "flagos"
    assert torch.equal(device.cpu(), host)


def test_jagged_moves_and_trains() -> None:
    moved = _jagged("cpu").to(D)
    assert moved.device.type == "flagos"
    assert moved.offsets().device.type == "flagos"
    assert [x.shape[0] for x in moved.unbind()] == [2, 4, 1]
    grads = []
    for device in ("cpu", D):
        leaves = [uneven((n, 3)).to(device).requires_grad_() for n in (2, 4)]
        t = torch.nested.as_nested_tensor(leaves, layout=torch.jagged)
        assert "flagos" in repr(t) or device == "cpu"
        (t.sin() * 2).values().sum().backward()
        grads.append([x.grad.cpu() for x in leaves])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "mkldnn": (lambda: torch.ones(2, 2, device=D).to_mkldnn(), "CPU|cpu"),
    "mkldnn to": (lambda: torch.ones(2, 2).to_mkldnn().to(D), "mkldnn"),  # PyTorch's own words
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_what_to_do(name: str) -> None:
    function, advice = REFUSED[name]
    with pytest.raises((NotImplementedError, RuntimeError), match=advice) as refusal:
        function()
    text = str(refusal.value)
    assert "INTERNAL ASSERT" not in text
    assert "flagos" in text
    assert "DispatchKeySet" not in text
    assert torch.ones(2, device=D).sum().item() == 2


SECOND_DEVICE = """
import torch, torch_fl, warnings
warnings.simplefilter("ignore")
ONE, ZERO = torch.device("flagos", 1), torch.device("flagos", 0)
x = torch.ones(3, 2, device=ONE)

def on_one(*tensors):
    assert all(t.device == ONE for t in tensors), [t.device for t in tensors]
"""


@pytest.mark.parametrize("kind", ["coo", "compressed", "quantized", "jagged"])
def test_layouts_on_another_device(kind: str) -> None:
    """Whichever device is current: results and their members follow the tensors."""
    work = {
        "coo": """
            s = torch.eye(3).to_sparse().to(ONE)
            on_one(s, s.values(), s.indices(), s.coalesce(), s * 2, s + s, s @ x, s.to_dense())
            on_one(s.clone().add_(s), s.t(), torch.zeros_like(s), x.to_sparse(), x.to_sparse() * 2)
            on_one(torch.sparse_coo_tensor([[0]], [1.0], (2,), device=ONE))
            assert s.to(ZERO).device == s.to(ZERO).values().device == ZERO
            assert torch.equal((s @ x).cpu(), torch.ones(3, 2))
            try:
                s @ torch.ones(3, 2, device=ZERO)
            except RuntimeError as error:
                assert "INTERNAL" not in str(error) and "flagos:1" in str(error), error
            else:
                raise AssertionError("tensors of two devices were taken")
            """,
        "compressed": """
            for layout in (torch.sparse_csr, torch.sparse_csc):
                s = torch.eye(3).to_sparse(layout=layout).to(ONE)
                on_one(s, s.values(), s.to_dense(), s @ x, s * 2, s.to_sparse(), s.clone())
                assert s.to(ZERO).device == s.to(ZERO).values().device == ZERO
            """,
        "quantized": """
            q = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
            on_one(q, q.int_repr(), q.dequantize(), q.clone(), q[1:], q.t())
            on_one(torch.quantize_per_tensor(x.cpu(), 0.1, 0, torch.quint8).to(ONE))
            assert q.to(ZERO).device == ZERO and q.cpu().device.type == "cpu"
            """,
        "jagged": """
            parts = [torch.ones(2, 3), torch.ones(1, 3)]
            t = torch.nested.nested_tensor(parts, layout=torch.jagged, device=ONE)
            on_one(t, t * 2, t.values(), t.offsets(), *t.unbind())
            assert t.to(ZERO).device == ZERO
            """,
    }[kind]
    loop = "for current in (1, 0):\n    torch.flagos.set_device(current)\n"
    body = textwrap.indent(textwrap.dedent(work), "    ")
    output_of_child(SECOND_DEVICE + loop + body, FLAGOS_HOST_DEVICES="2")
