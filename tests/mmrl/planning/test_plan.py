"""`dry_run=true`: the plan, what rewards lack, and the memory estimate, without weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from mmrl import eval as evaluate
from mmrl import eval_v, rl, sft
from mmrl.config import ConfigError
from mmrl.models import load_model
from mmrl.planning.plan import describe
from mmrl.planning.plan_page import LINES, WIDTH
from mmrl.planning.run_checks import check_geometry
from mmrl.pretrained.model_config import ModelConfig
from tests.mmrl.runs import ROOT, VQ, World, command_line, run_config, task_config

CLIP = "tasks.shapes.rewards=[{name: clip, weight: 2.0}]"

pytestmark = pytest.mark.usefixtures("in_the_checkout")


@pytest.fixture
def printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Callable, list[str]], tuple[int, str, str]]:
    """Status, plan on one line and error of a dry run that loads no policy."""

    def load(*_: Any, **__: Any) -> None:
        pytest.fail("weights were loaded")

    monkeypatch.setattr("mmrl.models.policy.load_model", load)

    def run(main: Callable, words: list[str]) -> tuple[int, str, str]:
        status = main([*words, "dry_run=true"])
        said, error = capsys.readouterr()
        return status, " ".join(said.split()), error

    return run


def test_a_dry_run_prints_settings_plan_rewards_and_memory_and_touches_nothing(
    world: World, tmp_path: Path, printed: Callable
) -> None:
    words = [*command_line(world, tmp_path / "run"), "tasks.shapes.sampler.cfg_scale=2.0"]
    status, said, _ = printed(rl.main, words)
    for promise in (
        "adamw, learning rate 0.001, constant_with_warmup",
        "6 to train on, 0 held out",
        "2 prompts x 4 = 8 a step",
        "emerge, 3 steps of 16 rows (guidance 2)",
        "mask_grpo: strategy random",
        "2 optimiser steps of 2 micro-batches of 4 rollouts",
        "3 forward and 1 backward passes",
        "tasks.shapes.rewards, on 2 dummy samples",
        "1 x shapes: mean 0 (0 to 0)",
        "at the peak",
        "no evaluation, checkpoint every 50 steps",
    ):
        assert promise in said, promise
    assert status == 0 and "adam_epsilon" not in said and not (tmp_path / "run").exists()
    for word in ("verbose=true", "--verbose"):
        assert "adam_epsilon: 1.0e-08" in printed(rl.main, [*words, word])[1]


@pytest.mark.parametrize(
    ("groups", "world_size", "size"),
    [([(2, 4)], 1, 8), ([(2, 4)], 2, 4), ([(16, 8)], 1, 16), ([(3, 8), (4, 9)], 1, 12)],
)
def test_the_size_of_micro_batches_that_is_left_open_fits_every_task(
    groups: list[tuple[int, int]], world_size: int, size: int, world: World, tmp_path: Path
) -> None:
    tasks = {
        f"task{n}": task_config(world, num_prompts=prompts, num_generations=generations)
        for n, (prompts, generations) in enumerate(groups)
    }
    config = run_config(world, tmp_path, tasks=tasks, per_device_train_batch_size=None)
    check_geometry(config, world_size)
    assert config.micro_batch_size(world_size) == size
    said = " ".join(str(describe(config, world_size)).split())
    assert f"micro-batches of {size} rollouts per process" in said
    with pytest.raises(ValueError, match="multiple of the 5 processes"):
        describe(config, world_size=5)


def test_auto_sizes_of_batches_are_those_of_the_plan_and_of_the_run(
    world: World, tmp_path: Path, printed: Callable
) -> None:
    words = [*command_line(world, tmp_path / "run"), "per_device_train_batch_size=auto"]
    words += ["tasks.shapes.rollout_batch_size=auto", "max_steps=1"]
    said, monkeypatch = printed(rl.main, words)[1], pytest.MonkeyPatch()
    assert "tasks.shapes.rollout_batch_size: 8 per_device_train_batch_size: 8 run" in said
    monkeypatch.setattr("mmrl.models.policy.load_model", load_model)
    assert rl.main(words) == 0
    monkeypatch.undo()
    log = (tmp_path / "run" / "train.log").read_text()
    for key in ("tasks.shapes.rollout_batch_size", "per_device_train_batch_size"):
        assert f"{key}: 8, the largest that is estimated to fit" in log
    for wrong in ("all", 0):
        status, _, error = printed(rl.main, [*words, f"per_device_train_batch_size={wrong}"])
        assert status == 1 and "it must be null or auto or at least 1" in error


def test_a_reward_that_is_not_on_this_machine_is_named_and_nothing_is_downloaded(
    world: World, tmp_path: Path, printed: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    status, said, _ = printed(rl.main, [*command_line(world, tmp_path / "run"), CLIP])
    assert status == 0 and "2 x clip: cannot run here: clip.model" in said
    assert constants.HF_HUB_OFFLINE is False


def test_a_reward_that_fails_on_every_dummy_sample_is_refused(world: World, tmp_path: Path) -> None:
    config = run_config(world, tmp_path)
    config.tasks["shapes"].rewards = [{"name": "mine", "reward": lambda samples: 1 / 0}]
    plan = describe(config)
    assert "failed on 2 of 2, first: raised ZeroDivisionError" in " ".join(str(plan).split())
    with pytest.raises(ConfigError, match="reward 'mine' failed on .* Correct the reward"):
        plan.check()
    config.tasks["shapes"].max_failures = 10
    describe(config).check()


def test_what_is_only_on_the_hub_is_planned_by_published_sizes(
    world: World, tmp_path: Path, printed: Callable
) -> None:
    config = run_config(world, tmp_path)
    config.model = ModelConfig(path="Gen-Verse/MMaDA-8B-Base", vq=VQ)
    said = " ".join(str(describe(config)).split())
    elsewhere = "not on this machine: loaded from the hub"
    assert f"Gen-Verse/MMaDA-8B-Base, {elsewhere}; sizes are those of MMaDA-8B" in said
    words = ["config=configs/eval/llada_gsm8k.yaml", f"output_dir={tmp_path / 'out'}"]
    words.append("model.path=Gen-Verse/MMaDA-8B-MixCoT")
    said = printed(evaluate.main, words)[1]
    assert f"Gen-Verse/MMaDA-8B-MixCoT, {elsewhere}; sizes are" in said
    assert "32 steps" not in said and "16 rows each" in said and "batches" not in said


def test_a_plan_says_whether_a_run_fits_the_devices_named(printed: Callable) -> None:
    words = ["config=configs/sft/llada_8b.yaml"]
    fsdp = "launch_config=configs/accelerate/fsdp2.yaml"
    for more, status, verdict in (
        (["devices=8xA100-80GB", fsdp], 0, "of 78.40 GiB of A100-80GB: fits"),
        (["devices=8xA100-80GB"], 1, "of 78.40 GiB of A100-80GB: DOES NOT FIT"),
        (["devices=4x24GB", fsdp], 1, "of 23.52 GiB of 24GB: DOES NOT FIT"),
    ):
        found, said, error = printed(sft.main, [*words, *more])
        assert found == status and verdict in said
        assert "AVX512" not in said and "computes it natively" in said
        assert ("is estimated to take" in error) == bool(status)
        assert "188 steps from the first step" in said
        assert "micro-batches of 2 per process" in said
        assert "trained 8,015,581,184 of 8,015,581,184 parameters: embed, blocks" in said
    assert "devices is 'H9'" in printed(sft.main, [*words, "devices=9xH9"])[2]


def recipes() -> list[str]:
    """Of supervised runs and benchmarks; those of RL are planned in `tests/test_configs.py`."""
    found = (path for kind in ("sft", "eval") for path in (ROOT / "configs" / kind).glob("*.yaml"))
    return sorted(str(path.relative_to(ROOT)) for path in found)


@pytest.mark.slow
@pytest.mark.parametrize("path", recipes())
def test_the_plan_of_every_recipe_is_one_screen(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"config={path}", f"output_dir={tmp_path / 'out'}", "dry_run=true"]
    mains = {"sft": [sft.main], "eval": [evaluate.main, eval_v.main]}
    errors = ""
    for main in mains[path.split("/")[1]]:
        status = main(words)
        said, error = capsys.readouterr()
        errors += error
        if status == 0:  # else of the other command of benchmarks
            break
    if status:  # of inputs that other recipes write, or that users bring
        missing = ("Write it first", "is not a file", "must be a folder", "no file matches")
        assert any(said in errors for said in missing), errors
        return
    lines = said.splitlines()
    # a path is never broken
    assert 10 < len(lines) <= LINES and all(len(line) <= WIDTH + 20 for line in lines), said
    assert "settings that differ from their defaults" in said
