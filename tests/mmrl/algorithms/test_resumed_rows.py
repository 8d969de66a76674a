"""Presets are resolved once: a run writes its whole row and is resumed with it."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from mmrl.algorithms import load_algorithm
from mmrl.algorithms.written_rows import read_rows, resolve_row
from mmrl.config import ConfigError, load_config, to_plain
from mmrl.config.yaml_file import configs
from mmrl.rl import RLConfig, train
from tests.mmrl.runs import metrics, run_config, same_weights


def change_preset(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, **columns: object
) -> None:
    """Let the shipped presets be those of a folder, one of them with other columns."""
    shutil.copytree(configs() / "algorithm", folder / "algorithm")
    file = folder / "algorithm" / f"{name}.yaml"
    OmegaConf.save({**OmegaConf.load(file), **columns}, file)
    monkeypatch.setattr("mmrl.algorithms.presets.configs", lambda: folder)


def test_a_run_resumed_after_its_preset_changed_continues_with_the_same_numbers(
    world: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def config(output: Path, **changes: object) -> RLConfig:
        return run_config(world, output, algorithm={"name": "trace_rl"}, **changes)

    whole = train(config(tmp_path / "whole"))
    parts = train(config(tmp_path / "parts", max_steps=2))
    shutil.rmtree(parts / "final")
    row = to_plain(load_algorithm({"name": "trace_rl", "num_iterations": 2}))
    assert read_rows(parts / "config.yaml") == {"shapes": {**row, "resolved_from": "trace_rl"}}
    changed = {"epsilon": 0.01, "slice_size": row["slice_size"] + 1}
    change_preset(tmp_path / "presets", monkeypatch, "trace_rl", **changed)
    assert config(tmp_path / "new").tasks["shapes"].algorithm["epsilon"] == 0.01
    resumed = config(parts, resume_from_checkpoint="auto")
    train(resumed)
    assert metrics(parts) == metrics(whole)
    assert same_weights(parts / "final", whole / "final")
    by_path = config(tmp_path / "new", resume_from_checkpoint=str(parts / "checkpoints" / "2"))
    assert by_path.tasks["shapes"].algorithm == resumed.tasks["shapes"].algorithm


def test_what_a_resumed_command_states_comes_before_the_written_row() -> None:
    written = resolve_row({"name": "trace_rl", "slice_size": 3, "epsilon": 0.3}, "algorithm")
    assert resolve_row({"name": "trace_rl"}, "algorithm", written) == written
    stated = resolve_row({"name": "trace_rl", "slice_size": 2}, "algorithm", written)
    assert (stated["slice_size"], stated["epsilon"]) == (2, 0.3)
    other = resolve_row({"name": "coupled_grpo"}, "algorithm", written)
    assert other == resolve_row({"name": "coupled_grpo"}, "algorithm")


def test_the_columns_of_a_run_are_refused_under_the_name_of_another_preset(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    config = run_config(world, tmp_path / "run", algorithm={"name": "trace_rl"})
    file = tmp_path / "config.yaml"
    tasks = to_plain(config)["tasks"]
    tasks["shapes"]["rewards"] = [{"name": "jpeg"}]
    OmegaConf.save({"model": to_plain(config)["model"], "tasks": tasks}, file)
    again = load_config(RLConfig, [f"config={file}"])
    assert again.tasks["shapes"].algorithm == config.tasks["shapes"].algorithm
    name = "tasks.shapes.algorithm.name"
    with pytest.raises(ConfigError, match=f"{name} is 'coupled_grpo'; it must be trace_rl"):
        load_config(RLConfig, [f"config={file}", f"{name}=coupled_grpo"])
    words = [f"config={file}", "~tasks.shapes.algorithm", f"{name}=coupled_grpo"]
    fresh = load_config(RLConfig, words).tasks["shapes"].algorithm
    assert load_algorithm(fresh) == load_algorithm({"name": "coupled_grpo"})


def test_a_damaged_configuration_of_the_run_is_named(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "config.yaml") == {}
    (tmp_path / "config.yaml").write_text("tasks: [")
    with pytest.raises(ConfigError, match="config.yaml' cannot be read"):
        read_rows(tmp_path / "config.yaml")
