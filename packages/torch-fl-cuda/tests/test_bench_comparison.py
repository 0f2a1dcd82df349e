"""Owns: tests of the benchmark's statistics: ratios, intervals, agreement, verdicts."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest


def test_the_ratio_is_the_median_of_the_pairs(bench: Any) -> None:
    # In the second pair everything took ten times as long, in the third one turn of the device.
    pairs = [
        [(10.0, 20.0), (11.0, 22.0), (12.0, 24.0)],
        [(100.0, 200.0), (110.0, 220.0), (120.0, 240.0)],
        [(10.0, 20.0), (11.0, 900.0), (12.0, 22.0)],
    ]
    found = bench.comparison.throughput(pairs)
    assert found.value == pytest.approx(0.5)
    assert found.low <= found.value <= found.high


def test_the_interval_has_the_turns_noise_and_the_pairs(bench: Any) -> None:
    throughput = bench.comparison.throughput
    steady = throughput([[(10.0, 10.0)] * 5] * 5)
    assert (steady.low, steady.value, steady.high) == (1, 1, 1)
    noisy_turns = throughput([[(10.0, 9.0), (10.0, 10.0), (10.0, 11.0)]] * 5)
    noisy_pairs = throughput([[(10.0, 10.0 + 0.1 * pair)] * 5 for pair in range(-2, 3)])
    for noisy in (noisy_turns, noisy_pairs):
        assert noisy.value == pytest.approx(1)
        assert noisy.low < 0.995
        assert noisy.high > 1.005
    more = throughput([[(10.0, 10.0 + 0.1 * (pair % 5 - 2))] * 5 for pair in range(50)])
    assert more.high - more.low < noisy_pairs.high - noisy_pairs.low


def test_the_same_seed_gives_the_same_interval(bench: Any) -> None:
    pairs = [[(10.0 + pair, 10.0 + turn) for turn in range(7)] for pair in range(5)]
    one, same, other = (bench.comparison.throughput(pairs, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one.value == other.value


def test_intervals_cover_what_they_promise(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.comparison, "DRAWS", 300)
    rng = random.Random(0)
    covered = 0
    for experiment in range(30):
        pairs = []
        for _ in range(8):
            native = rng.gauss(10, 1)  # a machine that wanders from pair to pair
            ratio = 0.97 * math.exp(rng.gauss(0, 0.02))
            pairs.append([(native * rng.gauss(1, 0.01), native / ratio * rng.gauss(1, 0.01))] * 3)
        found = bench.comparison.throughput(pairs, seed=experiment)
        covered += found.low <= 0.97 <= found.high
    assert covered >= 24


def test_without_pairs_there_is_nothing_to_say(bench: Any) -> None:
    with pytest.raises(ValueError, match="no pair"):
        bench.comparison.throughput([])


def test_costs_are_the_other_way_round(bench: Any) -> None:
    found = bench.comparison.cost([(100, 163), (100, 163), (100, 100)])
    assert found.value == pytest.approx(1.63)


def test_operators_over_runs(bench: Any) -> None:
    runs = [{"add": 1.0, "mm": 4.0}, {"add": 1.1, "mm": 2.0}, {"add": 9.0, "mm": 4.0}]
    found = bench.comparison.operators(runs)
    assert found["add"].value == 1.1
    assert found["mm"].value == 4.0
    assert found["geometric mean"].value == pytest.approx(math.sqrt(1.1 * 4))
    assert found["worst"].value == 4.0


@pytest.mark.parametrize(
    ("native", "device", "tolerance", "said"),
    [
        ((4.5, 4.25), (4.5, 4.25), 0.0, "bit for bit"),
        ((4.5, 4.25), (4.5, 4.26), 0.0, "different"),
        ((4.5, 4.25), (4.5, 4.26), 0.01, "close"),
        ((4.5, 4.25), (4.5, 4.50), 0.01, "different"),
        ((4.5, math.nan), (4.5, math.nan), 0.5, "different"),
        ((4.5, math.inf), (4.5, math.inf), 0.5, "different"),
    ],
)
def test_agreement(bench: Any, native: Any, device: Any, tolerance: float, said: str) -> None:
    assert bench.comparison.agreement([(native, device)], tolerance) == said
    assert bench.comparison.agreement([], tolerance) == "different"


def test_verdicts(bench: Any) -> None:
    goal = bench.rows.Goal
    assert [goal("a", at_least=0.99).verdict(value) for value in (0.99, 0.989)] == ["ok", "over"]
    assert [goal("a", at_most=1.01).verdict(value) for value in (1.01, 1.011)] == ["ok", "over"]
    assert goal("a").verdict(7.0) == "-"
    texts = [goal("a", at_least=0.99), goal("a", at_most=1.1), goal("a", at_most=0, unit="")]
    assert [str(text) for text in (*texts, goal("a"))] == ["≥ 0.99 ×", "≤ 1.10 ×", "0", "–"]


def test_a_rows_figures(bench: Any) -> None:
    row = bench.rows.BY_NAME["lstm-train"]

    def pair(milliseconds: float, peak: int | None, last: float = 1.0) -> dict[str, Any]:
        end = {"start_s": 1.0, "first": 2.0, "last": 1.0, "peak_bytes": 100, "reports": {}}
        native = {**end, "peak_bytes": 100 if peak else None}
        device = {**end, "peak_bytes": peak, "last": last}
        return {"turns": [[10.0, milliseconds]] * 3, "native": native, "device": device}

    good = bench.summary.of_pairs(row, [pair(10.1, 100)] * 5)
    assert good["verdict"] == "ok"
    assert [figure["value"] for figure in good["figures"]] == [pytest.approx(0.9901), 1.0]
    assert (good["native"]["median"], good["flagos"]["median"]) == (10.0, 10.1)
    slow = bench.summary.of_pairs(row, [pair(10.3, 100)] * 5)
    assert [figure["verdict"] for figure in slow["figures"]] == ["over", "ok"]
    assert slow["verdict"] == "over"
    large = bench.summary.of_pairs(row, [pair(10.0, 102)] * 5)
    assert [figure["verdict"] for figure in large["figures"]] == ["ok", "over"]
    wrong = bench.summary.of_pairs(row, [pair(9.0, 100)] * 4 + [pair(9.0, 100, last=1.5)])
    assert (wrong["agreement"], wrong["verdict"]) == ("different", "wrong")
    unequal = bench.summary.of_pairs(row, [pair(9.0, 100), {**pair(9.0, 100), "equal": False}])
    assert (unequal["agreement"], unequal["verdict"]) == ("different", "wrong")
    uncounted = bench.summary.of_pairs(row, [pair(10.0, None)] * 5)
    assert [figure["figure"] for figure in uncounted["figures"]] == ["throughput"]
