"""A profiled run has a trace of the chosen steps."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.rl import train
from mmrl.run.profile import RunProfile
from mmrl.run.run_directory import RunDirectory
from mmrl.runtime.activity import activity
from mmrl.sft import train as train_supervised
from tests.mmrl import supervised_runs
from tests.mmrl.runs import run_config


def names_in(path: Path) -> list[Any]:
    with gzip.open(path, "rt") as file:
        return [event.get("name") for event in json.load(file)["traceEvents"]]


@pytest.mark.parametrize(("steps", "is_main"), [([2], True), ([2], False), ([], True)])
def test_a_chosen_step_is_traced_from_its_first_phase_on(
    steps: list[int], is_main: bool, tmp_path: Path
) -> None:
    profile = RunProfile(RunDirectory(tmp_path, is_main), steps)
    with profile.listen():
        for step in (11, 12, 13):
            with activity("rollouts"), activity("denoising step"):
                torch.ones(3, 3) @ torch.ones(3, 3)
            with activity("update"):
                torch.ones(3, 3).exp()
            profile.end_step(step)
            with activity("evaluating"):
                torch.ones(3, 3).log()
    traces = [*tmp_path.rglob("*.gz")]
    if not (steps and is_main):
        assert not traces
        return
    assert [path.name for path in traces] == ["step_000012.json.gz"]
    names = names_in(traces[0])
    assert {"rollouts", "denoising step", "update", "aten::mm", "aten::exp"} <= {*names}
    assert "aten::log" not in names


def test_steps_are_counted_from_one(world: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="profile_steps"):
        run_config(world, tmp_path, profile=True, profile_steps=[0])


@pytest.mark.slow
def test_profiled_runs_have_traces_with_their_phases(
    world: SimpleNamespace, images: Path, tmp_path: Path
) -> None:
    run = train(run_config(world, tmp_path / "rl", profile=True, max_steps=2))
    [path] = (run / "profile").iterdir()
    names = names_in(path)
    assert names.count("rollouts") == 1 and names.count("update") == 2  # inner iterations
    config = supervised_runs.config(images, tmp_path / "sft", profile=True, profile_steps=[3])
    [path] = (train_supervised(config) / "profile").iterdir()
    assert path.name == "step_000003.json.gz" and "update" in names_in(path)
