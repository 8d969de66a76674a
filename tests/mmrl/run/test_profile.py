"""A profiled run has a trace of the chosen steps and the seconds of every phase."""

import gzip
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.rl import train
from mmrl.run.phase_times import PhaseTimes
from mmrl.run.profile import profile_run
from mmrl.run.run_directory import RunDirectory
from mmrl.runtime.activity import activity, watch
from mmrl.sft import train as train_supervised
from tests.mmrl import supervised_runs
from tests.mmrl.runs import run_config

CPU = torch.device("cpu")


def events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        return json.load(file)["traceEvents"]


def phases(run: Path) -> dict[str, dict[str, Any]]:
    rows = json.loads((run / "profile" / "phases.json").read_text())
    return {row["phase"]: row for row in rows}


def test_phases_inside_a_phase_belong_to_it_and_the_rest_is_other() -> None:
    times = PhaseTimes()
    with watch(times.measure):
        for _ in range(2):
            with activity("evaluating shapes"), activity("waiting for rewards"):
                time.sleep(0.02)
        with activity("writing runs/a/checkpoints/2"):
            pass
        with activity("loading the model"):
            time.sleep(0.01)
    rows = {row["phase"]: row for row in times.table()}
    assert set(rows) == {"evaluation", "checkpoint", "other"}
    assert rows["evaluation"]["calls"] == 2 and rows["evaluation"]["seconds"] >= 0.04
    assert rows["other"]["seconds"] >= 0.01
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1, abs=1e-3)


def test_a_chosen_step_is_traced_from_its_first_phase_on(tmp_path: Path) -> None:
    with profile_run(RunDirectory(tmp_path), [2], CPU) as profiled:
        assert profiled is not None
        for step in (11, 12, 13):
            with activity("rollouts"), activity("denoising step"):
                torch.ones(3, 3) @ torch.ones(3, 3)
            with activity("update"):
                torch.ones(3, 3).exp()
            profiled.end_step(step)
            with activity("evaluating"):
                torch.ones(3, 3).log()
    assert {path.name for path in (tmp_path / "profile").glob("step*")} == {"step_000012.json.gz"}
    names = {event.get("name") for event in events(tmp_path / "profile" / "step_000012.json.gz")}
    assert {"rollouts", "denoising step", "update", "aten::mm", "aten::exp"} <= names
    assert "aten::log" not in names
    found = phases(tmp_path)
    assert found["rollout"]["calls"] == found["evaluation"]["calls"] == 3
    assert found["trace"]["calls"] == 1
    lines = (tmp_path / "profile" / "phases.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["phase", *found]


def test_nothing_is_written_without_it_or_by_another_process(tmp_path: Path) -> None:
    for steps, is_main in ((None, True), ([1], False)):
        with profile_run(RunDirectory(tmp_path, is_main), steps, CPU) as profiled:
            assert profiled is None
    assert not list(tmp_path.iterdir())


def test_steps_are_counted_from_one(world: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="profile_steps"):
        run_config(world, tmp_path, profile=True, profile_steps=[0])


@pytest.mark.slow
def test_a_profiled_run_has_all_its_phases(world: SimpleNamespace, tmp_path: Path) -> None:
    task = {"eval_prompts": world.held_out}
    run = train(run_config(world, tmp_path, profile=True, max_steps=3, eval_steps=2, task=task))
    assert [path.name for path in (run / "profile").glob("step*")] == ["step_000002.json.gz"]
    calls = {name: row.get("calls") for name, row in phases(run).items()}
    assert calls["rollout"] == calls["waiting for rewards"] == 3
    assert calls["scoring"] == calls["update"] == 6  # two inner iterations
    assert calls["evaluation"] == 4 and calls["checkpoint"] == 2 and calls["report"] == 1
    names = [event.get("name") for event in events(run / "profile" / "step_000002.json.gz")]
    assert names.count("rollouts") == 1 and names.count("update") == 2


@pytest.mark.slow
def test_a_profiled_supervised_run_has_its_phases(images: Path, tmp_path: Path) -> None:
    config = supervised_runs.config(images, tmp_path / "run", profile=True, profile_steps=[3])
    run = train_supervised(config)
    assert phases(run)["update"]["calls"] == 4
    assert [path.name for path in (run / "profile").glob("step*")] == ["step_000003.json.gz"]
