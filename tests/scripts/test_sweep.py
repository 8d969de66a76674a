"""A small study runs for real, is interrupted and goes on; a changed one is refused."""

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from mmrl.config import to_yaml
from tests.by_path import load
from tests.mmrl.runs import run_config, write_world

ROOT = Path(__file__).resolve().parents[2]
script = load(ROOT / "scripts", "sweep")


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of one run of two steps, with a choice of two learning rates and a control."""
    monkeypatch.chdir(ROOT)
    world = write_world(tmp_path)
    rewards = [{"name": "shapes", "mode": "partial", "key": "partial"}]
    task = {"eval_prompts": world.held_out, "rewards": rewards}
    config = run_config(world, tmp_path / "-", task=task, max_steps=2, eval_steps=1, save_steps=1)
    run = tmp_path / "run.yaml"
    run.write_text(to_yaml(config))
    test = ["mmrl.eval_v", "config=configs/eval/shapes_t2i.yaml", f"model.path={world.policy}"]
    test += [f"prompts={world.held_out}", "sampler.steps=2", f"rewards={json.dumps(rewards)}"]
    shapes = {"command": ["mmrl.rl", f"config={run}"], "metric": "eval/shapes/partial"}
    content = {
        "output_dir": str(tmp_path / "study"),
        "runs": {"shapes": {**shapes, "tests": {"two": test}}},
        "controls": {"shuffled": ["task.shuffle_advantages=true"]},
        "seeds": [0],
        "grid": {"learning_rate": [0.01, 0.1]},
        "trial": [f"task.eval_prompts={world.prompts}", "max_steps=1"],
    }
    OmegaConf.save(OmegaConf.create(content), tmp_path / "study.yaml")
    return tmp_path


@pytest.mark.slow
def test_an_interrupted_study_goes_on_and_a_finished_one_repeats_nothing(study: Path) -> None:
    words, folder = [f"config={study / 'study.yaml'}"], study / "study"
    assert script.main([*words, "controls={}"]) == 0
    cut = folder / "shapes/as_is/0"
    for name in ("final", "checkpoints/2"):  # as if it had been stopped after the first step
        (cut / name).rename(study / name.replace("/", "_"))
    assert script.main([*words, "workers=2"]) == 0
    assert "resumed from" in (cut / "train.log").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    assert [(row["setting"], row["measure"]) for row in rows] == [
        (setting, measure)
        for setting in ("as_is", "as_is_shuffled")
        for measure in ("eval/shapes/partial", "two")
    ]
    assert {row["chosen"].partition("=")[0] for row in rows} == {"learning_rate"}
    assert (folder / "shapes.svg").is_file()
    assert len((folder / "table.md").read_text().splitlines()) == 6
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.json")}
    assert script.main(words) == 0
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*.json")}
    assert script.main([*words, "settings={as_is: [max_steps=1]}"]) == 1


def test_a_row_has_the_error_over_seeds_and_its_distance_from_the_control() -> None:
    row = {"run": "sums", "measure": "math", "chosen": "", "start": 0.2}
    ends = {"as_is": (0.4, 0.6), "as_is_shuffled": (0.3, 0.3)}
    rows = [
        {**row, "setting": name, "end": end, "control": control}
        for (name, values), control in zip(ends.items(), ("as_is_shuffled", None), strict=True)
        for end in values
    ]
    first, second = script.table(rows).splitlines()[2:]
    said = "| sums | math | as_is |  | 0.200 | 0.500 | +0.300 ± 0.100 | +0.200, +0.400 | +2.0 |"
    assert first == said
    assert "| +0.100 ± 0.000 |" in second
