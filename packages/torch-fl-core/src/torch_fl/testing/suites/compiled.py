"""Owns: the suite of ``torch.compile``: each operator of ``op_db`` compiled, against itself eager.

A call runs eagerly and compiled on the same device, and its result says only that both came to the
same. So stock CPU counts a sample where compiled CPU passes, and the device must pass there too.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from unittest import mock

import torch

from ..compiled.comparison import differences
from ..harness import tree
from ..harness.call import seed_generators
from ..harness.cases import Case, Cases, NotASample, Pass, Suite
from ..harness.declared import UNINITIALISED_RESULTS, plain
from ..harness.movers import CPU, Arguments, Mover
from .gradients import WithGradients
from .op_db import SUITE as OP_DB
from .samples import SAMPLE_SEED, samples_of

_SAMPLES: Final = 1
"""Of an entry: a compilation takes seconds."""

_TOLERANCE: Final = 1e-4
"""Relative and absolute: a compiler may fuse, and sums in another order."""

_OPTIONS: Final[Mapping[str, Any]] = {
    "fallback_random": True,  # or compiled random operators could not be compared with eager ones
    "compile_threads": 1,  # the workers share the cores, and may have no processes of their own
    "fx_graph_cache": False,  # what an earlier run compiled proves nothing of this one
}

# One or two of every kind of lowering: what ci compares.
_CHOSEN: Final = frozenset(
    (
        *("abs", "add", "div.floor_rounding", "remainder", "where", "lerp", "to"),
        *("sigmoid", "special.i0e", "nn.functional.gelu", "nn.functional.softplus"),
        *("sum", "mean", "amax", "argmax", "var_mean", "logsumexp", "cumsum"),
        *("mm", "addmm", "bmm", "einsum", "nn.functional.linear", "nn.functional.bilinear"),
        *("softmax", "log_softmax", "nn.functional.layer_norm", "nn.functional.group_norm"),
        *("nn.functional.batch_norm", "nn.functional.rms_norm", "nn.functional.cross_entropy"),
        *("nn.functional.conv2d", "nn.functional.conv_transpose2d", "nn.functional.max_pool2d"),
        *("nn.functional.avg_pool2d", "nn.functional.interpolate.bilinear"),
        *("nn.functional.embedding", "gather", "scatter_add", "index_put", "index_select"),
        *("masked_fill", "sort", "topk", "searchsorted", "cat", "permute", "roll"),
        *("nn.functional.pad.reflect", "tril", "nn.functional.scaled_dot_product_attention"),
        *("nn.functional.dropout", "bernoulli", "randn_like", "arange", "full_like"),
        *("linalg.solve", "fft.rfft", "nn.functional.kl_div", "view_as_complex"),
    )
)


class Compiled:
    """An operator, run eagerly and compiled on copies of the same arguments.

    Args:
        op: the OpInfo.
        sample: its sample on the CPU.
    """

    def __init__(self, op: Any, sample: Any) -> None:
        self._op = op
        self._arguments = Arguments.of_sample(op.full_name, sample)
        self._process = sample.output_process_fn_grad
        self._graphs: int | None = None
        self._breaks = 0

    def __call__(self, *positional: Any, **keyword: Any) -> str:
        """Raises AssertionError where the compiled operator does something else."""
        device = _device(Arguments(positional, keyword))
        moved = Mover(device, self._op.full_name).arguments(self._arguments)
        expected = self._run(self._op.op, moved, device)
        operator = self._op.op

        def called(*args: Any, **kwargs: Any) -> Any:
            return operator(*args, **kwargs)

        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        compiled = torch.compile(called, dynamic=False, options=dict(_OPTIONS))
        with _without_autograds_cache():
            actual = self._run(compiled, Arguments(positional, keyword), device)
        self._count(torch._dynamo.utils.counters)
        _, notes = differences(actual, expected, _TOLERANCE)
        if notes:
            raise AssertionError("; ".join(notes))
        return "as it is eagerly"

    def _run(self, function: Callable[..., Any], arguments: Arguments, device: torch.device) -> Any:
        call = WithGradients(function, self._process, optional=True)
        seed_generators(device, SAMPLE_SEED)
        with _seeded_once():
            result = call(*arguments.positional, **arguments.keyword)
        undefined = plain(self._op.full_name) in UNINITIALISED_RESULTS
        kept = tree.transform([result, arguments.tensors()], _zeroed if undefined else _cut_off)
        return dict(zip(("result", "arguments"), kept, strict=True))

    def _count(self, counters: Any) -> None:
        """The first to be run, the CPU, says how many graphs there are."""
        graphs = int(counters["aot_autograd"]["total"])
        breaks = sum(counters["graph_break"].values())
        if not graphs:
            if self._graphs:
                raise AssertionError("nothing of it was compiled")
            raise NotASample("nothing of it is compiled")
        if self._graphs is not None and breaks > self._breaks:
            raise AssertionError(f"{breaks} graph breaks: {', '.join(counters['graph_break'])}")
        self._graphs, self._breaks = graphs, breaks


def _device(arguments: Arguments) -> torch.device:
    for _, leaf in tree.walk((arguments.positional, arguments.keyword)):
        if isinstance(leaf, torch.device):
            return leaf
        if isinstance(leaf, torch.Tensor) and leaf.device.type != "cpu":
            return leaf.device
        if isinstance(leaf, str) and leaf.partition(":")[2].isdigit():
            return torch.device(leaf)
    return CPU


def _cut_off(path: str, leaf: Any) -> Any:
    """Without its graph: that is one node where it was several, or none."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.detach().requires_grad_(leaf.requires_grad)


def _zeroed(path: str, leaf: Any) -> Any:
    leaf = _cut_off(path, leaf)
    return torch.zeros_like(leaf) if isinstance(leaf, torch.Tensor) else leaf


def _seeded_once() -> contextlib.AbstractContextManager[object]:
    """The database's random operators seed themselves, which no compiler traces."""
    from torch.testing._internal import common_methods_invocations as database

    return mock.patch.object(database, "wrapper_set_seed", _unseeded)


def _unseeded(operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return operator(*args, **kwargs)


def _without_autograds_cache() -> contextlib.AbstractContextManager[None]:
    from torch._functorch import config

    found: contextlib.AbstractContextManager[None] = config.patch(enable_autograd_cache=False)
    return found


def _cases(of: Callable[[str], bool]) -> Cases:
    def made(op: Any, dtype: torch.dtype) -> Iterator[Case]:
        if not of(op.full_name):
            return
        differentiable = dtype in op.supported_backward_dtypes("cpu")
        samples = samples_of(op, dtype, requires_grad=differentiable)
        for index, sample in itertools.islice(samples, _SAMPLES):
            arguments = Arguments.of_sample(op.full_name, sample)
            yield Case(f"{dtype} sample {index}", Compiled(op, sample), arguments)

    return made


def _is_chosen(name: str) -> bool:
    return name in _CHOSEN


def _is_other(name: str) -> bool:
    return name not in _CHOSEN


_FLOAT32: Final = (torch.float32,)

SUITE: Final = Suite(
    name="compiled",
    about="op_db under torch.compile against the same eagerly, float32 and gradients",
    passes=(
        Pass(
            "chosen", _FLOAT32, _cases(_is_chosen), "60 entries of all kinds", glance=1, selfcheck=1
        ),
        Pass("others", _FLOAT32, _cases(_is_other), "all other entries", ci=0),
    ),
    load=OP_DB.load,
    wrong=("mul.Tensor", "sum.dim_IntList", "where.self", "sigmoid", "index_select", "mm", "cat"),
    wrong_entries=5,
    by_name=True,
)
