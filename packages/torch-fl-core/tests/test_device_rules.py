"""Owns: tests that errors keep their type and words; and it runs the tests in two_devices/.

Those need a process with two devices, which is decided before the first import: they run in a
child, once for all of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

import torch_fl  # noqa: F401  (makes the device)

if TYPE_CHECKING:
    from collections.abc import Callable

TWO_DEVICES = Path(__file__).parent / "two_devices"


def test_everything_that_needs_two_devices(pytestconfig: pytest.Config) -> None:
    config = [] if pytestconfig.inipath is None else ["-c", str(pytestconfig.inipath)]
    child = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *config, str(TWO_DEVICES)],
        env={**os.environ, "FLAGOS_HOST_DEVICES": "2"},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert child.returncode == 0, child.stdout[-20000:] + child.stderr[-2000:]
    passed = re.search(r"(\d+) passed", child.stdout)
    assert passed is not None
    assert int(passed.group(1)) > 100
    assert "skipped" not in child.stdout.splitlines()[-1]


def _backward_twice(d: str) -> None:
    y = torch.ones(2, device=d, requires_grad=True).exp().sum()
    y.backward()
    y.backward()


def _leaf_in_place(d: str) -> None:
    torch.ones(2, device=d, requires_grad=True).add_(1)


def _changed_saved(d: str) -> None:
    x = torch.ones(2, device=d, requires_grad=True)
    y = x.exp()
    y.mul_(2)
    y.sum().backward()


def _x(d: str, *shape: int) -> torch.Tensor:
    return torch.ones(*(shape or (3, 4)), device=d)


def _i(d: str, *numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, device=d)


FAILING: dict[str, Callable[[str], object]] = {
    "shapes of add": lambda d: _x(d) + _x(d, 3, 5),
    "shapes of mm": lambda d: _x(d) @ _x(d, 5, 2),
    "shapes of bmm": lambda d: torch.bmm(_x(d, 2, 3, 4), _x(d, 3, 4, 5)),
    "shapes of cat": lambda d: torch.cat([_x(d), _x(d, 2, 5)]),
    "shapes of a convolution": lambda d: functional.conv2d(_x(d, 1, 3, 8, 8), _x(d, 2, 4, 3, 3)),
    "shapes of in-place": lambda d: _x(d, 3).add_(_x(d)),
    "a shape of view": lambda d: _x(d).view(5, 5),
    "view of strides": lambda d: _x(d).t().view(12),
    "a shape of expand": lambda d: _x(d).expand(2, 4),
    "a negative size": lambda d: torch.empty(-1, device=d),
    "a size past all memory": lambda d: torch.empty(2**62, device=d),
    "sizes past all memory": lambda d: torch.zeros(2**40, 2**40, device=d),
    "strides past all memory": lambda d: torch.empty_strided((2**40, 2), (2**40, 1), device=d),
    "a dimension": lambda d: _x(d).sum(5),
    "an index": lambda d: _x(d)[7],
    "too many indices": lambda d: _x(d)[0, 0, 0],
    "an index in a tensor": lambda d: _x(d)[_i(d, 9)],
    "an index to write to": lambda d: _x(d).index_put_((_i(d, 9),), _x(d, 4)),
    "an index of index_select": lambda d: torch.index_select(_x(d), 0, _i(d, 5)),
    "an index of gather": lambda d: _x(d).gather(0, _i(d, 8).view(1, 1)),
    "a word of an embedding": lambda d: functional.embedding(_i(d, 11), _x(d)),
    "a class": lambda d: functional.cross_entropy(_x(d), _i(d, 0, 1, 9)),
    "k of topk": lambda d: _x(d).topk(6),
    "max of nothing": lambda d: torch.empty(0, device=d).max(),
    "argmax of nothing": lambda d: torch.empty(0, 3, device=d).argmax(0),
    "dtypes of mm": lambda d: _x(d) @ _x(d, 4, 2).double(),
    "a dtype that a kernel lacks": lambda d: torch.linalg.qr(_x(d).to(torch.int64)),
    "a dtype that a function lacks": lambda d: functional.gelu(_i(d, 1, 2)),
    "a low precision that a kernel lacks": lambda d: torch.linalg.inv(_x(d, 3, 3).half()),
    "dtype of an index": lambda d: _x(d).scatter(0, _x(d), 1.0),
    "dtype of an out=": lambda d: torch.add(_x(d), 1, out=torch.empty(3, 4, device=d).long()),
    "subtraction of bool": lambda d: _x(d).bool() - _x(d).bool(),
    "true division in place": lambda d: _i(d, 1, 2).div_(2),
    "a singular matrix": lambda d: torch.linalg.inv(torch.zeros(3, 3, device=d)),
    "a singular system": lambda d: torch.linalg.solve(torch.zeros(3, 3, device=d), _x(d, 3)),
    "no Cholesky factor": lambda d: torch.linalg.cholesky(-torch.eye(3, device=d)),
    "singular values of nan": lambda d: torch.linalg.svd(_x(d, 3, 3) * float("nan")),
    "probabilities": lambda d: torch.multinomial(-_x(d, 3), 1),
    "a probability": lambda d: _x(d).bernoulli_(1.5),
    "a deviation": lambda d: _x(d).normal_(0, -1),
    "a range": lambda d: torch.arange(0, 5, -1, device=d),
    "a permutation": lambda d: torch.randperm(-3, device=d),
    "one value for each channel": lambda d: functional.batch_norm(
        _x(d, 1, 3), None, None, training=True
    ),
    "groups": lambda d: functional.group_norm(_x(d, 2, 3, 4), 2),
    "a number of many": lambda d: _x(d).item(),
    "truth of many": lambda d: bool(_x(d)),
    "overflow of a number": lambda d: torch.zeros(2, dtype=torch.uint8, device=d).fill_(2**70),
    "backward again": _backward_twice,
    "a leaf in place": _leaf_in_place,
    "a saved tensor that was changed": _changed_saved,
    "backward of many": lambda d: torch.ones(3, device=d, requires_grad=True).exp().backward(),
    "bounds of a storage": lambda d: _x(d, 4).as_strided((9,), (1,)),
    "size of a kernel": lambda d: functional.max_pool2d(_x(d, 1, 1, 2, 2), 5),
    "a repeated dimension": lambda d: _x(d).permute(0, 0),
    "a window": lambda d: _x(d, 3).unfold(0, 5, 1),
}


def _error(call: Callable[[str], object], device: str) -> tuple[type[BaseException], str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011  (which one is the question)
        call(device)
    # The stack of C++ frames is not part of the words.
    return caught.type, str(caught.value).partition("\nException raised from")[0]


@pytest.mark.parametrize("case", FAILING)
def test_errors_are_those_of_the_cpu_with_the_users_device(case: str) -> None:
    kind, text = _error(FAILING[case], "cpu")
    expected = re.sub(r"(?<![\w.])cpu(?!\w)", "flagos:0", text)
    # PyTorch's own name of such a type, for every device from outside.
    expected = expected.replace("torch.FloatTensor", "flagosFloatType")
    assert _error(FAILING[case], "flagos") == (kind, expected)


def test_every_kind_of_error_is_among_them() -> None:
    kinds = {_error(call, "cpu")[0] for call in FAILING.values()}
    assert kinds >= {
        IndexError,
        NotImplementedError,
        RuntimeError,
        ValueError,
        torch.linalg.LinAlgError,
    }


def test_the_device_works_after_errors() -> None:
    for call in FAILING.values():
        _error(call, "flagos")
    assert (_x("flagos") @ _x("flagos", 4, 2)).sum().item() == 24.0


def test_an_operator_without_a_kernel_is_named() -> None:
    with pytest.raises(NotImplementedError) as caught:
        torch.ops.aten._cudnn_init_dropout_state(0.5, True, 1, device="flagos", dtype=torch.uint8)
    assert "aten::_cudnn_init_dropout_state" in str(caught.value)


def test_numpy_points_to_the_copy() -> None:
    with pytest.raises(TypeError, match=r"can't convert flagos:0 device type tensor to numpy"):
        _x("flagos").numpy()
