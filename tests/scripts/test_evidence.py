"""The protocol that scripts/evidence.py keeps: its order, its records, and what it refuses."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmrl.config import ConfigError, load_config, to_plain
from mmrl.rl_config import RLConfig
from scripts.claims.page import protocol, write_page
from scripts.claims.planned_runs import Run
from scripts.claims.records import Records
from scripts.claims.stages import run_jobs, stages
from scripts.claims.table import Table
from scripts.claims.table_config import Config
from tests.by_path import load
from tests.mmrl.runs import ROOT, SHAPES, run_config, write_world

SCRIPT = ROOT / "scripts" / "evidence.py"
script = load(ROOT / "scripts", "evidence")
STRICT = {"name": "shapes", "mode": "strict", "key": "strict"}
PARTIAL = {"name": "shapes", "mode": "partial", "key": "partial"}


def write_table(folder: Path, **changes: Any) -> Path:
    """A table of one method, a control and two learning rates, on a world of its own."""
    world = write_world(folder)
    lines = (SHAPES / "train.jsonl").read_text().splitlines(keepends=True)
    (folder / "test.jsonl").write_text("".join(lines[2::800]))
    task = {"eval_prompts": str(folder / "test.jsonl"), "rewards": [PARTIAL, STRICT]}
    config = to_plain(run_config(world, folder / "unused", task=task, max_steps=2, eval_steps=1))
    config["tasks"]["shapes"]["algorithm"] = {"name": "mask_grpo", "num_iterations": 1}
    (folder / "run.yaml").write_text(yaml.safe_dump(config))
    values = {
        "output_dir": str(folder / "runs"),
        "results": str(folder / "results.jsonl"),
        "page": str(folder / "docs" / "results" / "tiny.md"),
        "tasks": {
            "shapes": {
                "run": str(folder / "run.yaml"),
                "validation": world.held_out,
                "test": str(folder / "test.jsonl"),
                "samplers": {"steps": [2, 3], "temperature": [0.5]},
            }
        },
        "methods": {"mask_grpo": {}},
        "controls": ["mask_grpo"],
        "grid": {"learning_rate": [1e-3, 1e-4]},
        "selection": {"max_steps": 1},
        "seeds": [0],
    }
    path = folder / "table.yaml"
    path.write_text(yaml.safe_dump({**values, **changes}))
    return path


def settings(path: Path, *words: str) -> Config:
    return load_config(Config, [f"config={path}", *words])


def call(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), f"config={path}", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The YAML of a table that has been run to its end."""
    path = write_table(tmp_path_factory.mktemp("finished"))
    done = call(path)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished table's results; its runs are removed."""
    values = yaml.safe_load(finished.read_text())
    shutil.copy(values["results"], tmp_path / "results.jsonl")
    values |= {
        "output_dir": str(tmp_path / "runs"),
        "results": str(tmp_path / "results.jsonl"),
        "page": str(tmp_path / "docs" / "results" / "tiny.md"),
    }
    path = tmp_path / "table.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def change(path: Path, **changes: Any) -> None:
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))


def edit_results(path: Path, edit: Any) -> None:
    """Rewrite every result of a table's file; None leaves one out."""
    file = Path(yaml.safe_load(path.read_text())["results"])
    lines = [edit(json.loads(line)) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines if line))


@pytest.mark.slow
def test_everything_is_chosen_on_validation_and_test_is_read_once_at_the_end(
    finished: Path,
) -> None:
    values = yaml.safe_load(finished.read_text())
    lines = [json.loads(line) for line in Path(values["results"]).read_text().splitlines()]
    kinds = [line["kind"] for line in lines]
    # two samplers for the start, the method and its control
    assert kinds == ["sampler", "choice", *["run"] * 2, *["test"] * 6]
    validation = values["tasks"]["shapes"]["validation"]
    assert all(line["made_on"] == validation for line in lines[:2])
    assert [len(line["tried"]) for line in lines[:2]] == [2, 2]
    for folder in (finished.parent / "runs").glob("shapes/mask*/*"):
        if folder.name.startswith("test"):
            continue
        read = load_config(RLConfig, [f"config={folder / 'config.yaml'}"]).tasks["shapes"]
        assert read.eval_prompts == validation
        assert read.shuffle_advantages == ("shuffled" in str(folder))
    assert all(len(line["curve"]) == 3 for line in lines if line["kind"] == "run")
    tests = [line for line in lines if line["kind"] == "test"]
    assert all(set(line["scores"]) == {"partial", "strict"} for line in tests)
    assert all(line["weights"] and line["commit"] and line["cpu"] for line in tests)


@pytest.mark.slow
def test_what_is_done_is_not_repeated_and_the_table_needs_the_results_alone(
    finished: Path, copied: Path
) -> None:
    page = Path(yaml.safe_load(finished.read_text())["page"])
    before = page.read_text()
    again = call(finished)
    assert again.returncode == 0 and again.stderr == ""
    rebuilt = call(copied)
    assert rebuilt.returncode == 0 and rebuilt.stderr == ""
    assert again.stdout == page.read_text() == before
    name = f"config={copied}"
    assert rebuilt.stdout.replace(name, f"config={finished}") == before
    for part in ("| mask_grpo |", "| mask_grpo_shuffled |", "learning_rate=", "mean", "```bash"):
        assert part in before
    image = page.parent.parent / "images" / "evidence_tiny_shapes.svg"
    assert image.is_file() and "../images/evidence_tiny_shapes.svg" in before


@pytest.mark.slow
def test_text_around_the_table_is_kept(copied: Path) -> None:
    table = Table(settings(copied))
    path = write_page(table, "command")
    own = f"# Mine\n\nBefore.\n\n{path.read_text().split('# Evidence')[1].strip()}\n\nAfter.\n"
    path.write_text(own)
    assert write_page(table, "command").read_text() == own
    path.write_text("no comments")
    with pytest.raises(ConfigError, match="Add them"):
        write_page(table, "command")


@pytest.mark.slow
def test_settings_that_change_after_test_was_read_are_refused(copied: Path) -> None:
    with pytest.raises(ConfigError, match=r"max_grad_norm was 1.0 and is 0.5.*another file"):
        Table(settings(copied, "settings=[max_grad_norm=0.5]"))
    with pytest.raises(ConfigError, match="other values than those that were tried"):
        Table(settings(copied, "grid={learning_rate: [1e-2]}"))
    with pytest.raises(ConfigError, match="has samples 1, and the table 2"):
        Table(settings(copied, "samples=2"))
    edit_results(copied, lambda line: line | ({"weights": "others"} if "tried" in line else {}))
    with pytest.raises(ConfigError, match="has weights 'others'"):
        Table(settings(copied))


@pytest.mark.slow
def test_a_choice_that_was_not_made_on_validation_is_refused(copied: Path) -> None:
    test = yaml.safe_load(copied.read_text())["tasks"]["shapes"]["test"]
    edit_results(copied, lambda line: line if line["kind"] != "choice" else None)
    with pytest.raises(ConfigError, match="no choice made on validation of learning_rate"):
        Table(settings(copied))
    edit_results(copied, lambda line: line | ({"made_on": test} if "made_on" in line else {}))
    with pytest.raises(ConfigError, match="the sampler on shapes was made on .*test.jsonl"):
        Table(settings(copied))


@pytest.mark.slow
def test_a_test_that_is_missing_needs_the_weights_that_were_recorded(
    finished: Path, copied: Path
) -> None:
    runs = finished.parent / "runs"
    shutil.copytree(runs, copied.parent / "runs")
    edit_results(
        copied,
        lambda line: (
            line if (line["kind"], line.get("method")) != ("test", "mask_grpo_shuffled") else None
        ),
    )
    only = Table(settings(copied, "only=mask_grpo_shuffled"))
    assert len(dict(stages(only))["tests"]) == 2
    folder = copied.parent / "runs" / "shapes" / "mask_grpo_shuffled"
    (folder / "0" / "final" / "model.safetensors").write_bytes(b"others")
    with pytest.raises(ConfigError, match="other weights"):
        Table(settings(copied))


@pytest.mark.slow
def test_a_dry_run_lists_what_is_done(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([f"config={finished}", "dry_run=true", "only=mask_grpo 0"]) == 0
    said = capsys.readouterr().out
    assert "shapes mask_grpo seed 0: finished, test read under 2 of 2 samplers" in said
    assert "shuffled" not in said


def test_a_result_is_written_once(tmp_path: Path) -> None:
    records = Records(tmp_path / "results.jsonl")
    of = {"task": "a", "method": "b", "seed": 0, "sampler": {"steps": 3}}
    records.write("test", **of, scores={})
    with pytest.raises(ConfigError, match="written once"):
        records.write("test", **of, scores={"x": 1})
    assert Records(tmp_path / "results.jsonl").get("test", **of) == {
        "kind": "test",
        **of,
        "scores": {},
    }
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"kind": "test"}\n')
    with pytest.raises(ConfigError, match="line 2"):
        Records(tmp_path / "results.jsonl")


def test_a_table_replaces_the_test_prompts_of_a_configuration_by_validation(tmp_path: Path) -> None:
    table = Table(settings(write_table(tmp_path, seeds=[3, 4], grid={})))
    runs = [table.run(*each) for each in table.all]
    for run, (_, method, seed) in zip(runs, table.all, strict=True):
        assert run is not None
        assert run.options.eval_prompts == str(tmp_path / "held_out.jsonl")
        assert run.options.shuffle_advantages == method.endswith("_shuffled")
        assert run.config.seed == seed == int(run.folder.name)


def test_controls_may_have_more_seeds_than_methods(tmp_path: Path) -> None:
    path = write_table(tmp_path, control_seeds=[0, 1, 2], grid={})
    table = Table(settings(path))
    rows = [(method, seed) for _, method, seed in table.all]
    control = "mask_grpo_shuffled"
    assert rows == [("mask_grpo", 0), (control, 0), (control, 1), (control, 2)]
    assert protocol(table).startswith("1 seed per method, 3 per control;")
    assert Table(settings(path, "only=2")).wanted == [("shapes", control, 2)]


def test_test_prompts_that_a_run_reads_are_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    test = tmp_path / "test.jsonl"
    with pytest.raises(ConfigError, match=r"eval_prompts is .*test.jsonl', which has 3 of the 3"):
        Table(settings(path, f"settings=[task.eval_prompts={test}]"))
    copy = tmp_path / "other.jsonl"
    copy.write_text((tmp_path / "held_out.jsonl").read_text() + test.read_text().splitlines()[0])
    with pytest.raises(ConfigError, match="has 1 of the 3 prompts of the table's test"):
        Table(settings(path, f"tasks.shapes.validation={copy}"))
    with pytest.raises(ConfigError, match="tasks.shapes.prompts is"):
        Table(settings(path, f"settings=[task.prompts={copy}]"))


def test_the_run_directory_of_a_run_that_read_test_is_refused(tmp_path: Path) -> None:
    table = Table(settings(write_table(tmp_path, grid={})))
    words = [f"config={tmp_path / 'run.yaml'}", "max_steps=2"]
    run = Run("shapes", "mask_grpo", tmp_path / "runs" / "shapes" / "mask_grpo" / "0", words)
    run.folder.mkdir(parents=True)
    (run.folder / "config.yaml").write_text(yaml.safe_dump(to_plain(run.config)))
    with pytest.raises(ConfigError, match="which has 3 of the 3 prompts"):
        run_jobs(table)
    run.config.tasks["shapes"].eval_prompts = str(tmp_path / "held_out.jsonl")
    run.config.learning_rate = 0.5
    (run.folder / "config.yaml").write_text(yaml.safe_dump(to_plain(run.config)))
    with pytest.raises(ConfigError, match=r"other settings: learning_rate was 0.5 and is 0.001"):
        run_jobs(table)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("methods={x: {algorithm: {name: nonsense}}}", "nonsense"),
        ("methods={x: {algorithms: {}}}", "algorithms is not a setting"),
        ("controls=[other]", "controls is 'other'"),
        ("seeds=[]", "seeds is []"),
        ("seeds=[1, 1]", "different numbers"),
        ("control_seeds=[1, 2]", "it must be all of seeds, [0]"),
        ("control_seeds=[0, 1, 1]", "different numbers"),
        ("selection.seed=0", "selection.seed is 0"),
        ("only=mask_grop 0", "only is 'mask_grop'"),
        ("until=test", "Did you mean 'tests'"),
        ("grid={learning_rate: 0.1}", "grid.learning_rate is 0.1; it must be a list"),
        ("tasks.shapes.samplers={step: [2]}", "step"),
        ("tasks.shapes.metric=stric", "tasks.shapes.metric is 'stric'"),
        ("settings=[max_step=1]", "max_step"),
        ("settings=[eval_steps=0]", "eval_steps"),
    ],
)
def test_bad_settings_are_refused_before_anything_runs(
    tmp_path: Path, word: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_table(tmp_path)
    assert script.main([f"config={path}", word]) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs" / "shapes").exists()
