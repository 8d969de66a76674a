"""A profiled run has a trace of the chosen steps."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.rl import train
from mmrl.run.profile import trace_steps
from mmrl.runtime.activity import activity
from mmrl.sft import train as train_supervised
from tests.mmrl import supervised_runs
from tests.mmrl.runs import World, run_config


def names_in(path: Path) -> list[Any]:
    with gzip.open(path, "rt") as file:
        return [event.get("name") for event in json.load(file)["traceEvents"]]


def test_a_chosen_step_is_traced_with_its_phases(tmp_path: Path) -> None:
    with trace_steps(tmp_path / "profile", [2], begun=10) as profile:
        for kernel in (torch.log, torch.exp, torch.sin):
            with activity("rollouts"), activity("denoising step"):
                kernel(torch.ones(3, 3))
            profile.step()
    [trace] = tmp_path.rglob("*.gz")
    assert trace.name == "step_000012.json.gz"
    names = {*names_in(trace)}
    assert {"rollouts", "denoising step", "aten::exp"} <= names
    assert not {"aten::log", "aten::sin"} & names


def test_steps_are_counted_from_one(world: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="profile_steps"):
        run_config(world, tmp_path, profile=True, profile_steps=[0])


@pytest.mark.slow
def test_profiled_runs_trace_their_phases(world: World, images: Path, tmp_path: Path) -> None:
    run = train(run_config(world, tmp_path / "rl", profile=True, max_steps=2))
    [path] = (run / "profile").iterdir()
    names = names_in(path)
    assert names.count("rollouts") == 1 and names.count("update") == 2  # inner iterations
    config = supervised_runs.config(images, tmp_path / "sft", profile=True, profile_steps=[3])
    [path] = (train_supervised(config) / "profile").iterdir()
    assert path.name == "step_000003.json.gz" and "update" in names_in(path)
