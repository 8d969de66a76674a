"""The table of scripts/compare_mixing.py: its figures, its runs, and what it refuses."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from mmrl.config import ConfigError, to_yaml
from tests.by_path import load
from tests.mmrl.runs import run_config, write_world

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "compare_mixing.py"
script = load(ROOT / "scripts", "compare_mixing")


def two_tasks(tmp_path: Path) -> Path:
    world = write_world(tmp_path)
    strict = {"name": "shapes", "mode": "strict", "key": "strict"}
    task = {"eval_prompts": world.held_out, "rewards": [strict]}
    config = run_config(world, tmp_path / "unused", task=task, max_steps=1, eval_steps=1)
    both = OmegaConf.create(to_yaml(config))
    both.tasks.second = both.tasks.shapes
    path = tmp_path / "both.yaml"
    OmegaConf.save(both, path)
    return path


def planned(tmp_path: Path, *words: str) -> Any:
    words = (f"run={two_tasks(tmp_path)}", f"output_dir={tmp_path / 'runs'}", *words)
    return script.runs(script.load_config(script.Config, words))


def test_runs_are_all_tasks_together_each_alone_and_a_control_otherwise_the_same(
    tmp_path: Path,
) -> None:
    found = planned(tmp_path, "seeds=[3,4]", "settings=[max_steps=2]")
    assert [run.task for run in found] == ["together", "shapes", "second", "shuffled"] * 2
    for run in found:
        control = run.task == "shuffled"
        kept = ["shapes", "second"] if control or run.task == "together" else [run.task]
        assert list(run.config.tasks) == kept and run.config.max_steps == 2
        assert run.config.seed == int(run.folder.name)
        for name, task in run.config.tasks.items():
            assert task.shuffle_advantages == control
            assert replace(task, shuffle_advantages=False) == found[0].config.tasks[name]
    others = planned(tmp_path, "seeds=[3]", "control=false")
    assert [run.task for run in others] == ["together", "shapes", "second"]


def test_a_row_has_means_over_seeds_and_the_error_of_the_change(tmp_path: Path) -> None:
    found = planned(tmp_path, "seeds=[0,1]")
    ends = {"together": (0.4, 0.6), "shapes": (0.3, 0.3), "second": (0.9, 0.9)}
    ends["shuffled"] = (0.3, 0.5)
    for run in found:
        run.folder.mkdir(parents=True)
        scores = (0.2, ends[run.task][run.config.seed])
        lines = [
            {"step": n, **{f"eval/{task}/strict": score for task in run.config.tasks}}
            for n, score in enumerate(scores)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (run.folder / "metrics.jsonl").write_text(text)
    lines = script.rows(script.Config(), found)
    together, alone, control = ("0.200", "0.500"), ("0.200", "0.300"), ("0.200", "0.400")
    assert lines[:3] == [
        ("shapes", "training", "together", *together, "+0.300 ± 0.100", "+0.200, +0.400"),
        ("shapes", "training", "alone", *alone, "+0.100 ± 0.000", "+0.100, +0.100"),
        ("shapes", "training", "shuffled", *control, "+0.200 ± 0.100", "+0.100, +0.300"),
    ]
    assert lines[4][4:] == ("0.900", "+0.700 ± 0.000", "+0.700, +0.700")
    assert len(lines) == 6


def test_the_start_and_the_runs_of_a_task_are_evaluated_under_its_sampler(tmp_path: Path) -> None:
    words = [f"output_dir={tmp_path / 'runs'}", "samplers={second: {steps: 2, temperature: 0.5}}"]
    words += ["seeds=[0]", f"run={two_tasks(tmp_path)}"]
    config = script.load_config(script.Config, words)
    found = script.evaluations_of(config, script.runs(config))
    runs = tmp_path / "runs"
    names = ("", "together/0", "second/0", "shuffled/0")
    assert list(found) == [("second", runs / name) for name in names]
    for (_, folder), one in found.items():
        assert one.sampler.steps == 2 and one.sampler.temperature == 0.5
        assert one.model.path.startswith(str(runs)) == (folder != runs)


def test_a_sampler_of_no_task_is_refused_before_anything_runs(tmp_path: Path) -> None:
    words = [f"run={two_tasks(tmp_path)}", "samplers={third: {steps: 2}}"]
    config = script.load_config(script.Config, words)
    with pytest.raises(ConfigError, match="third"):
        script.evaluations_of(config, script.runs(config))


@pytest.mark.slow
def test_it_runs_what_is_missing_and_prints_a_line_per_task(tmp_path: Path) -> None:
    words = [f"run={two_tasks(tmp_path)}", f"output_dir={tmp_path / 'runs'}", "seeds=[0]"]
    words += ["samplers={second: {steps: 2}}", "samples=2"]
    command = [sys.executable, str(SCRIPT), *words]
    first = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    results = ("metrics.jsonl", "scores.json")
    written = {p: p.stat().st_mtime_ns for name in results for p in tmp_path.rglob(name)}
    again = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert len(written) == 8 and all(p.stat().st_mtime_ns == t for p, t in written.items())
    assert first.stdout == again.stdout == (tmp_path / "runs" / "table.md").read_text()
    cells = [line.removeprefix("| ").split(" | ") for line in first.stdout.splitlines()][2:]
    assert [line[0] for line in cells] == ["shapes"] * 3 + ["second"] * 6
    assert [line[1] for line in cells] == ["training"] * 6 + ["of `samplers`"] * 3
    assert [line[2] for line in cells] == ["together", "alone", "shuffled"] * 3


@pytest.mark.parametrize(
    ("word", "said"), [("seeds=[]", "seeds is []"), ("settings=[max_step=1]", "max_step")]
)
def test_bad_settings_are_refused_before_anything_runs(
    tmp_path: Path, word: str, said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        planned(tmp_path, word)
    assert said in str(error.value)


def test_a_run_of_one_task_has_nothing_to_compare(tmp_path: Path) -> None:
    words = [f"run={two_tasks(tmp_path)}"]
    only = OmegaConf.load(tmp_path / "both.yaml")
    del only.tasks["second"]
    OmegaConf.save(only, tmp_path / "both.yaml")
    with pytest.raises(ConfigError, match="two or more"):
        script.runs(script.load_config(script.Config, words))
