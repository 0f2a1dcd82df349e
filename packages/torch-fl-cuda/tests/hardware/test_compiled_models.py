"""Owns: tests of torch.compile on flagos beside CUDA used natively: graph breaks of whole models,
and starts that find everything in the caches.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpu_child
import pytest

TRAINED = f"""
sys.path.insert(0, {str(Path(__file__).parent)!r})
import gpu_child, compiled_models
print(json.dumps(compiled_models.trained(os.environ[gpu_child.DEVICE])))
"""
MODELS = {"mlp", "convolution", "encoder", "recurrent", "language"}


def test_models_break_no_more_often_than_natively(said: Any) -> None:
    native, flagos = gpu_child.on_both(said, "compiled_models", "breaks(device)")
    assert set(native) == MODELS
    for name, (breaks, graphs) in flagos.items():
        assert breaks <= native[name][0], name
        assert graphs >= 1, name


def test_a_second_process_compiles_nothing(said: Any, tmp_path: Path) -> None:

    def cold_and_warm(device: str) -> list[Any]:
        cache = str(tmp_path / device)
        return [said(TRAINED, DEVICE=device, TORCHINDUCTOR_CACHE_DIR=cache) for _ in range(2)]

    with ThreadPoolExecutor(2) as pool:
        native, flagos = pool.map(cold_and_warm, ("cuda", "flagos"))
    for cold, warm in (native, flagos):
        assert set(cold["losses"]) == MODELS
        assert cold["graphs"]["fxgraph_cache_miss"] >= 2 * len(MODELS), "forward and backward"
        assert warm["graphs"]["fxgraph_cache_miss"] == warm["whole"]["autograd_cache_miss"] == 0
        assert warm["whole"]["autograd_cache_hit"] >= len(MODELS)
        assert warm["losses"] == pytest.approx(cold["losses"], rel=1e-6)
    for kind in ("graphs", "whole"):
        assert flagos[1][kind] == native[1][kind], "no more and no less is taken from caches"
    assert flagos[0]["losses"] == pytest.approx(native[0]["losses"], rel=1e-4)


def test_processes_of_both_share_a_cache_and_take_nothing_of_the_others(
    said: Any, tmp_path: Path
) -> None:
    cache = str(tmp_path / "cache")
    native, flagos = (
        said(TRAINED, DEVICE=device, TORCHINDUCTOR_CACHE_DIR=cache) for device in ("cuda", "flagos")
    )
    assert native["graphs"]["fxgraph_cache_miss"] > 0
    for kind in ("graphs", "whole"):
        assert flagos[kind] == native[kind], "each starts cold"
    assert flagos["losses"] == pytest.approx(native["losses"], rel=1e-4)
