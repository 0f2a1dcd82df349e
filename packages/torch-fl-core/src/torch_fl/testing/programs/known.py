"""Owns: programs that are not equal by design, and why: where the native device is the CPU, and on
accelerators.

An entry whose program comes out otherwise fails a run, so the lists can only shrink.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .compare import Outcome, Verdict

__all__ = ["ON_ACCELERATORS", "ON_HOST", "Known", "expected"]


@dataclass(frozen=True)
class Known:
    """The outcome that a program has, and the reason why it may."""

    outcome: Outcome
    reason: str


_CELLS = (
    "PyTorch runs recurrent layers by fused cells, step by step, for accelerators, and by written-"
    "out formulas over whole sequences on the CPU"
)
_RECURRENT = (
    *("lstm", "gru", "rnn_tanh", "rnn_relu", "projections", "recurrent_dropout"),
    *("packed_sequences", "truncated_training", "weights_in_one_piece", "recurrent_float64"),
    "recurrent_cells",
)

ON_HOST: Final[Mapping[str, Known]] = {
    **{f"recurrent.{name}": Known(Outcome.CLOSE, _CELLS) for name in _RECURRENT},
    "models.recurrent_translator": Known(Outcome.CLOSE, _CELLS),
    "fft_and_sparse.nested": Known(
        Outcome.CLOSE,
        "attention over jagged tensors goes through strided nested tensors on the CPU; here every "
        "sequence is attended to by itself",
    ),
    "norms.channel_norms_channels_last": Known(
        Outcome.CLOSE,
        "PyTorch's derivative of group norm keeps channels_last on the CPU alone",
    ),
    "optimizers.by_default": Known(
        Outcome.CLOSE,
        "PyTorch takes operators over lists by default on accelerators, and a loop on the CPU",
    ),
    "precision.autocast_policies": Known(
        Outcome.DIFFERS, "autocast follows the accelerators' lists of operators, not the CPU's"
    ),
    "determinism.resampling": Known(
        Outcome.CLOSE, "PyTorch composes deterministic interpolation wherever it is not the CPU"
    ),
}

ON_ACCELERATORS: Final[Mapping[str, Known]] = {
    "linear_algebra.measures": Known(
        Outcome.CLOSE,
        "PyTorch's gradient of renorm accumulates in the dtype that it knows for a device by name: "
        "double for flagos, as for the CPU",
    ),
}


def expected(program: str, native: str, verdict: Verdict) -> tuple[bool, str]:
    """Whether a program came out as it should, and what there is to say about it."""
    known = (ON_HOST if native == "cpu" else ON_ACCELERATORS).get(program)
    fine = verdict.outcome in (Outcome.EQUAL, Outcome.SKIPPED, Outcome.VARIES)
    if known is None:
        return fine, ""
    if verdict.outcome is known.outcome:
        return True, known.reason
    return False, f"it is listed as {known.outcome.value!r}: {known.reason}"
