"""Owns: tests of what the benchmark runs on both sides, in tiny sizes and in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_fl.plugins import selection

STEPS = ("qwen3-train", "qwen3-decode", "resnet50-train", "lstm-train", "mlp-train")


@pytest.fixture(autouse=True)
def _as_it_was() -> Any:
    benchmark, threads = torch.backends.cudnn.benchmark, torch.get_num_threads()
    torch.set_num_threads(1)  # tensors so small only wait for other threads
    yield
    torch.backends.cudnn.benchmark = benchmark
    torch.set_num_threads(threads)


def _results(bench: Any, name: str, device: str) -> list[float]:
    row = bench.rows.BY_NAME[name]
    workload = bench.workloads.build(name, torch.device(device), dict(row.quick))
    found = []
    for _ in range(3):
        workload.step()
        found.append(workload.result())
    return found


@pytest.mark.parametrize("name", STEPS)
def test_both_sides_compute_the_same(bench: Any, name: str) -> None:
    if selection.current().target != "cpu":
        pytest.skip("native backward passes have no place in a process where flagos is a GPU")
    native, device = (_results(bench, name, place) for place in ("cpu", "flagos"))
    assert all(value > 0 for value in native)
    said = bench.comparison.agreement([(native, device)], bench.rows.BY_NAME[name].tolerance)
    assert said != "different", f"{native} and {device}"
    if name.endswith("train") and name != "resnet50-train":  # on two images in three steps
        assert native[-1] < native[0], "it does not learn"


def _both_sides(bench: Any) -> Any:
    spec = {"workload": "qwen3-decode", "size": dict(bench.rows.BY_NAME["qwen3-decode"].quick)}
    spec |= {"device": "flagos", "native": selection.current().target, "activate": True}
    return bench.both_sides.Both(bench.child.Side(spec))


def test_both_sides_of_one_process_have_the_same_parameters(bench: Any) -> None:
    both = _both_sides(bench)
    assert both.build()["equal"] is True
    native, device = (both._sides[name].workload for name in ("native", "device"))
    for own, other in zip(native.model.parameters(), device.model.parameters(), strict=True):
        assert own.device.type == selection.current().target
        assert own.data_ptr() == bench.both_sides.as_native(other).data_ptr()
    before = native.result()
    *_, norm = device.model.parameters()
    norm.data.mul_(2)
    for side in (native, device):
        side.step()
    assert native.result() == device.result() == pytest.approx(2 * before)


def test_both_sides_of_one_process_are_compared(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(native: torch.nn.Module, _: torch.nn.Module) -> None:
        for parameter in native.parameters():
            parameter.data.zero_()

    monkeypatch.setattr(bench.both_sides, "share", spoil)
    assert _both_sides(bench).build()["equal"] is False


def test_the_plain_model_has_qwen3s_size(bench: Any) -> None:
    with torch.device("meta"):
        model = bench.qwen3.Qwen3(bench.rows.BY_NAME["qwen3-train"].size)
    # The published size: 0.6 billion, 0.44 of them not embeddings.
    total = sum(parameter.numel() for parameter in model.parameters())
    assert total == 596_049_920
    assert total - model.embedding.weight.numel() == 440_467_456


def test_resnet_50_has_its_size(bench: Any) -> None:
    with torch.device("meta"):
        model = bench.resnet.resnet(bench.rows.BY_NAME["resnet50-train"].size)
        assert model(torch.zeros(2, 3, 224, 224)).shape == (2, 1000)
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032


def test_decoding_with_the_cache_is_decoding_without(bench: Any) -> None:
    size = bench.rows.BY_NAME["qwen3-decode"].quick
    torch.manual_seed(1)
    model = bench.qwen3.Qwen3(size)
    for parameter in model.parameters():  # larger weights: texts that do not repeat one token
        parameter.data.mul_(10 if parameter.dim() == 2 else 1)
    prompt = torch.randint(size["vocabulary"], (1, 4))
    cache = bench.qwen3.Cache(size, 12, torch.device("cpu"))
    cache.keys, cache.values = cache.keys.float(), cache.values.float()
    found = bench.qwen3.greedy(model, prompt, 8, cache)
    text = prompt
    for _ in range(8):
        text = torch.cat((text, model(text)[:, -1:].argmax(-1)), 1)
    assert torch.equal(found, text[:, 4:])
    assert len(set(found.flatten().tolist())) > 2


@pytest.mark.parametrize(("forgotten", "apart"), [(0, 0.0), (1, 1e-9)])
def test_replays_are_compared_with_eager_steps(
    bench: Any, monkeypatch: pytest.MonkeyPatch, forgotten: int, apart: float
) -> None:
    graph = bench.graph_workload

    def capture(device: torch.device, step: Callable[[], None]) -> Callable[[], None]:
        for _ in range(graph.WARM - forgotten):
            step()
        return step

    monkeypatch.setattr(graph, "capture", capture)
    monkeypatch.setattr(torch.optim, "AdamW", _adamw_for_the_cpu(torch.optim.AdamW))
    size = dict(bench.rows.BY_NAME["graph-replay"].quick)
    workload = graph.replay(torch.device("cpu"), size)
    for _ in range(4):
        workload.step()
    reports = workload.reports()
    assert reports["replays"] == 4
    assert (reports["difference to eager"] > 0) is (apart > 0)


def _adamw_for_the_cpu(original: Any) -> Callable[..., Any]:
    return lambda parameters, lr, capturable: original(parameters, lr=lr)


def test_a_cpu_has_no_graphs(bench: Any) -> None:
    with pytest.raises(NotImplementedError):
        bench.graph_workload.capture(torch.device("cpu"), lambda: None)


def test_a_difference_that_is_no_number_is_infinite(bench: Any) -> None:
    one = [torch.tensor([1.0, 2.0])]
    largest = bench.graph_workload.largest_difference
    assert largest(one, [torch.tensor([1.0, 2.5])]) == 0.5
    assert largest(one, [torch.tensor([1.0, torch.nan])]) == float("inf")


def test_canaries(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"device": "flagos", "seconds": 0.3, "largest": 64, "matrix": 8, "careless": False}
    assert bench.canaries.main(spec) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["wrong"] == 0
    assert found["checked"] > 1000
    assert found["handed"] > 0


def test_canaries_sing(
    bench: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = bench.canaries.Worker._filled

    def overwritten(self: Any) -> Any:
        tensor, value = filled(self)
        tensor[-1] += 1
        return tensor, value

    monkeypatch.setattr(bench.canaries.Worker, "_filled", overwritten)
    spec = {"device": "flagos", "seconds": 0.1, "largest": 64, "matrix": 8, "careless": True}
    assert bench.canaries.main(spec) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["wrong"] < found["checked"]


def test_a_worker_that_fails_is_reported(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"device": "flagos", "seconds": 0.1, "largest": 0, "matrix": 8, "careless": False}
    assert bench.canaries.main(spec) == 1
    assert "ValueError" in capsys.readouterr().err


def test_the_process_that_starts_checks_its_result(
    bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.start.main("flagos")
    assert capsys.readouterr().out == "right\n"


def test_profiles_side_by_side(bench: Any) -> None:
    x = torch.ones(8)
    sides = [
        bench.profiling.profile(step, 3, "cpu", lambda: None)
        for step in (lambda: x + x, lambda: (x + x) * x)
    ]
    assert sides[0]["host"]["aten::add"]["calls"] == 1
    assert sides[0]["busy_us"] is None
    found = bench.side_by_side.side_by_side(*sides)
    (row,) = [row for row in found["host"] if row["name"] == "aten::mul"]
    assert row["native"] == [0.0, 0.0]
    assert row["flagos"][1] == 1


def test_busy_time_counts_overlaps_once(bench: Any) -> None:
    assert bench.profiling.busy([(5, 7), (0, 3), (1, 2), (2, 4)]) == 6
