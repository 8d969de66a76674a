"""The share of tokens that the size of a batch changes."""

import importlib
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"


def test_in_float64_the_size_of_a_batch_changes_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    bench = importlib.import_module("batch_shapes")
    setting = bench.Config(prompts=6, steps=4, sizes=[6, 4, 1], dtypes=["float64"])
    lines = bench.compare(setting)
    assert [line["sizes"] for line in lines] == [[6, 4], [6, 1]]
    assert all((line["tokens"], line["canvases"]) == (0, 0) for line in lines)
