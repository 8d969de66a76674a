"""Which checkpoints and runs the page offers."""

from pathlib import Path

import pytest

from mmrl.config import ConfigError
from mmrl.demo.__main__ import main
from mmrl.demo.checkpoints import Checkpoints, able_to, find_checkpoints, find_runs
from mmrl.demo.demo_config import DemoConfig
from tests.mmrl.runs import SHAPES, VQ, World

FLOW = SHAPES / "checkpoints" / "flow"


def write_run(world: World, run: Path) -> None:
    """A run directory with settings and two checkpoints, links to the policy of the tests."""
    (run / "checkpoints").mkdir(parents=True)
    for place in ("final", "checkpoints/2"):
        (run / place).symlink_to(world.policy)
    (run / "config.yaml").write_text(f"model: {{path: gone, vq: '{VQ}', image_size: 32}}\n")


def test_runs_are_found_by_themselves_and_below_a_folder(world: World, tmp_path: Path) -> None:
    write_run(world, tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "metrics.jsonl").touch()
    (tmp_path / "no_run").mkdir()
    deep = tmp_path / "table" / "shapes" / "mask_grpo" / "0"
    write_run(world, deep)
    all_of_them = [str(tmp_path / "a"), str(tmp_path / "b"), str(deep)]
    assert list(find_runs([str(tmp_path)])) == list(find_runs(all_of_them)) == all_of_them
    assert find_runs([str(tmp_path / "gone")]) == {}


def test_checkpoints_of_a_run_are_loaded_with_the_settings_of_the_run(
    world: World, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    write_run(world, run)
    (run / "checkpoints" / "1").mkdir()
    (run / "checkpoints" / "1" / "config.json").write_text("{")  # damaged, so left out
    models = find_checkpoints(DemoConfig(checkpoints=[], runs=[str(run)]))
    assert list(models) == [str(run / "final"), str(run / "checkpoints" / "2")]
    assert {model.vq for model in models.values()} == {VQ}
    assert able_to("text_to_image", models) == list(models)
    offered = Checkpoints(models, "cpu", 1)
    first, second = (offered.load(name) for name in models)
    assert offered.load(list(models)[1]) is second and offered.load(list(models)[0]) is not first
    with pytest.raises(ConfigError, match="checkpoint is 'gone'"):
        offered.load("gone")


def test_the_start_of_a_run_is_offered_beside_what_it_trained(world: World, tmp_path: Path) -> None:
    write_run(world, tmp_path / "run")
    settings = f"model: {{path: '{world.policy}', vq: '{VQ}', max_prompt_length: 24}}\n"
    (tmp_path / "run" / "config.yaml").write_text(settings)
    found = find_checkpoints(DemoConfig(checkpoints=[], runs=[str(tmp_path)]))
    assert list(found)[-1] == str(world.policy) and found[str(world.policy)].max_prompt_length == 24
    named = find_checkpoints(DemoConfig(checkpoints=[str(world.policy)], runs=[str(tmp_path)]))
    assert sorted(named) == sorted(found)
    assert named[str(world.policy)].max_prompt_length == 256  # of the page, which names it itself


def test_a_pipeline_that_a_run_trained_is_offered(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "final").symlink_to(FLOW)
    (run / "config.yaml").write_text(f"model: {{path: '{FLOW}', max_prompt_length: 16}}\n")
    found = find_checkpoints(DemoConfig(checkpoints=[], runs=[str(run)]))
    assert list(found) == able_to("text_to_image", found) == [str(run / "final"), str(FLOW)]


def test_without_gradio_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gradio", None)
    assert main(["port=0"]) == 1
    assert "pip install -e '.[demo]'" in capsys.readouterr().err
