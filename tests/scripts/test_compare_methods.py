"""The table of scripts/compare_methods.py: its figures, its runs, and what it refuses."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmrl.algorithms import load_algorithm
from mmrl.config import to_plain
from tests.by_path import load
from tests.mmrl.runs import run_config, write_world

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "compare_methods.py"
script = load(ROOT / "scripts", "compare_methods")
STRICT = {"name": "shapes", "mode": "strict", "key": "strict"}


def task_file(tmp_path: Path, **changes: object) -> Path:
    world = write_world(tmp_path)
    task = {"eval_prompts": world.held_out, "rewards": [STRICT], **changes}
    config = run_config(world, tmp_path / "unused", task=task, max_steps=1, eval_steps=1)
    path = tmp_path / "task.yaml"
    content = to_plain(config)
    for options in content["tasks"].values():
        row = options["algorithm"]
        preset = to_plain(load_algorithm({"name": row["name"]}))
        stated = {key: row[key] for key in preset if row[key] != preset[key]}
        options["algorithm"] = {"name": row["name"], **stated}
    path.write_text(yaml.safe_dump(content))
    return path


def settings(tmp_path: Path, **changes: object) -> Path:
    path = tmp_path / "compare.yaml"
    values = {
        "output_dir": str(tmp_path / "runs"),
        "tasks": changes.get("tasks") or [str(task_file(tmp_path))],
        "methods": {"mask_grpo": {"name": "mask_grpo"}, "wd1": {"name": "wd1"}},
        "seeds": [0],
    }
    path.write_text(yaml.safe_dump({**values, **changes}))
    return path


def write_metrics(
    run: Any, scores: tuple[float, float], seconds: float, key: str = "strict"
) -> None:
    run.folder.mkdir(parents=True)
    times = {"time/score_s": seconds, "time/update_s": 2 * seconds}
    lines = [
        {"step": 0, f"eval/shapes/{key}": scores[0]},
        {"step": 1, **times},
        {"step": 1, f"eval/shapes/{key}": scores[1]},
    ]
    (run.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_row_has_means_over_seeds_and_the_error_of_the_change(tmp_path: Path) -> None:
    path = settings(tmp_path, seeds=[0, 1, 2], methods={"mine": {"name": "coupled_grpo"}})
    found = script.runs(script.load_config(script.Config, [f"config={path}"]))
    for run, after in zip(found, (0.3, 0.5, 0.7), strict=True):
        write_metrics(run, (0.2, after), 1.5)
    # three passes of new, old and reference policy; the change is 0.1, 0.3, 0.5
    assert script.row(found)[1:] == ("9", "4.50", "0.200", "0.500", "+0.300 ± 0.115")


def test_forwards_are_of_the_positions_of_an_image(tmp_path: Path) -> None:
    trace = {"name": "trace_rl", "slice_size": 1, "num_iterations": 1}
    methods = {"trace": trace, "order": {"name": "just_grpo", "num_iterations": 1}}
    words = [f"config={settings(tmp_path, methods=methods)}"]
    found = {run.method: run for run in script.runs(script.load_config(script.Config, words))}
    for run in found.values():
        write_metrics(run, (0.2, 0.3), 1.0)
    # three denoising steps, and the 64 codes of an image of 32 x 32 pixels
    assert script.row([found["trace"]])[1] == "3"
    assert script.row([found["order"]])[1] == "64"


@pytest.mark.parametrize(
    ("rewards", "key"),
    [
        ({}, "strict"),
        (
            {"eval_rewards": [{"name": "shapes", "mode": "partial", "key": "parts"}, STRICT]},
            "parts",
        ),
        ({"rewards": [{"name": "shapes", "key": None}]}, "shapes"),
    ],
    ids=["as in training", "of evaluations", "by its name"],
)
def test_scores_are_of_the_first_reward_that_evaluations_measure(
    tmp_path: Path, rewards: dict[str, Any], key: str
) -> None:
    task = task_file(tmp_path, **rewards)
    path = settings(tmp_path, tasks=[str(task)], methods={"wd1": {"name": "wd1"}})
    [run] = script.runs(script.load_config(script.Config, [f"config={path}"]))
    write_metrics(run, (0.25, 0.5), 1.0, key)
    assert script.row([run])[3:] == ("0.250", "0.500", "+0.250")


def test_runs_differ_in_method_seed_and_control_alone(tmp_path: Path) -> None:
    path = settings(tmp_path, seeds=[3, 4], control="wd1", settings=["max_steps=2"])
    found = script.runs(script.load_config(script.Config, [f"config={path}"]))
    assert [run.method for run in found] == ["mask_grpo", "wd1", "shuffled"] * 2
    assert {run.config.max_steps for run in found} == {2}
    for run in found:
        [options] = run.config.tasks.values()
        assert options.shuffle_advantages == (run.method == "shuffled")
        assert options.algorithm["name"] == ("mask_grpo" if run.method == "mask_grpo" else "wd1")
        assert run.config.seed == int(run.folder.name)


@pytest.mark.slow
def test_it_runs_what_is_missing_and_prints_the_table(tmp_path: Path) -> None:
    path = settings(tmp_path, methods={"wd1": {"name": "wd1"}}, control="wd1")
    command = [sys.executable, str(SCRIPT), f"config={path}", "workers=1"]
    first = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    written = {p: p.stat().st_mtime_ns for p in tmp_path.glob("runs/**/metrics.jsonl")}
    again = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert len(written) == 2 and all(p.stat().st_mtime_ns == t for p, t in written.items())
    assert first.stdout == again.stdout == (tmp_path / "runs" / "table.md").read_text()
    told = first.stderr.splitlines()
    assert told[:2] == ["2 of 2 runs to do, 1 at a time", "started: shapes wd1 seed 0"]
    assert re.fullmatch(r"finished: shapes shuffled seed 0, in \d\d:\d\d", told[-1])
    moving = [line for line in told if line.startswith("step ")]
    assert moving[0].startswith("step 0/2 shapes wd1 seed 0 0/1 ")
    assert any(re.match(r"step 1/2 (\(.* left\) )?shapes shuffled seed 0 0/1", m) for m in moving)
    assert again.stderr == ""
    methods = [line.split(" | ")[0] for line in first.stdout.splitlines()]
    assert methods == ["| shapes: method", "| ---", "| wd1", "| shuffled"]


@pytest.mark.slow
def test_a_run_that_fails_ends_it_with_the_reason(tmp_path: Path) -> None:
    path = settings(tmp_path, settings=[f"model.path={tmp_path / 'nothing'}"])
    command = [sys.executable, str(SCRIPT), f"config={path}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "ended with status 1" in done.stderr and "nothing" in done.stderr


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("methods={x: {name: nonsense}}", "nonsense"),
        ("control=other", "control is 'other'"),
        ("seeds=[]", "seeds is []"),
        ("settings=[max_step=1]", "max_step"),
    ],
)
def test_bad_settings_are_refused_before_anything_runs(
    tmp_path: Path, word: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([f"config={settings(tmp_path)}", word]) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_the_comparison_of_text_methods_covers_every_preset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    path = "configs/compare/text.yaml"
    config = script.load_config(script.Config, [f"config={path}"])
    presets = {file.stem for file in (ROOT / "configs" / "algorithm").glob("*.yaml")}
    # the row of MaskGRPO is the text's own, and that of EBPO is for networks that write by block
    left_out = {"mask_grpo", "ebpo"}
    assert {method["name"] for method in config.methods.values()} == presets - left_out
    assert len(config.seeds) == 3
    wanted = script.runs(replace(config, seeds=config.seeds[:1]))
    assert len(wanted) == 2 * (len(config.methods) + 1)
    rollouts = {
        (r.config.max_steps, t.num_prompts * t.num_generations)
        for r in wanted
        for t in r.config.tasks.values()
    }
    assert len(rollouts) == 1
