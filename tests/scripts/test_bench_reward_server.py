"""The benchmark of the reward server, at a size of seconds."""

import importlib
import json
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"


@pytest.mark.slow
def test_it_compares_scores_and_reports_speed_and_latency(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # where it keeps its results
    monkeypatch.syspath_prepend(str(BENCH))
    bench = importlib.import_module("reward_server")
    sizes = {"items": 40, "side": 40, "clients": 4, "servers": 2, "batch": 8, "per_request": 4}
    model = BENCH.parents[1] / "datasets/shapes/checkpoints/clip"
    bench.main([*(f"{k}={n}" for k, n in sizes.items()), "repeats=1", f"model={model}"])
    line = json.loads(capsys.readouterr().out)
    assert (line["lost"], line["doubled"], line["mismatched"]) == (0, 0, 0)
    assert line["ratio"] > 0 and 0 < line["p50_ms"] <= line["p95_ms"] <= line["p99_ms"]
    assert 1 <= line["mean_batch"] <= 8


def test_lost_doubled_and_wrong_scores_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    bench = importlib.import_module("reward_server")
    items = [{"id": "0", "score": 0.5}, {"id": "2", "score": 0.25}, {"id": "2", "score": 0.25}]
    found = bench.compared(items, [0.5 + 1e-7, 0.1, 0.2])
    assert found == {"lost": 1, "doubled": 1, "mismatched": 1}
