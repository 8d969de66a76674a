"""Assertions that two runs are the same, up to rounding, whoever did them and however."""

import itertools
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from tests.mmrl.runs import metrics


def close(one: Path, two: Path, tolerance: float = 1e-6) -> None:
    """Assert that two model directories hold the same tensors up to rounding."""
    left, right = (load_file(*folder.glob("*model.safetensors")) for folder in (one, two))
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        torch.testing.assert_close(right[name], tensor, atol=tolerance, rtol=0, msg=name)


def equal_metrics(one: Path, two: Path, after: int = -1) -> None:
    """Assert that two runs have the same metrics after a step, up to rounding."""
    lines = ([line for line in metrics(run) if line["step"] > after] for run in (one, two))
    for left, right in itertools.zip_longest(*lines, fillvalue={}):
        assert left.keys() == right.keys()
        for key, value in left.items():
            assert right[key] == pytest.approx(value, rel=1e-5, abs=1e-6), (left["step"], key)


def same_rollouts(one: Path, two: Path, step: int) -> None:
    """Assert that runs that sample row by row have the same completions, rewards and advantages.

    Both then do the same operations on an image, also where the image tokenizer decodes it in
    float32, so that pictures are equal and not only their tokens.
    """
    left, right = (completions(run, step) for run in (one, two))
    for key in ("id", "tokens", "trace", "completion"):
        assert [row[key] for row in right] == [row[key] for row in left], key
    for key in ("reward", "advantage"):
        wanted = [row[key] for row in left]
        assert [row[key] for row in right] == pytest.approx(wanted, rel=0, abs=1e-6), key
    assert any(row["advantage"] for row in left)


def completions(run: Path, step: int) -> list[dict]:
    """The rollouts of the run's only task, which a checkpoint of the step has left."""
    [path] = (run / "samples").glob(f"completions_*_{step:06d}.parquet")
    return pq.read_table(path).to_pylist()
