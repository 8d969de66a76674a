"""`dry_run=true`: the plan, what rewards lack, and the memory estimate, without weights."""

import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub import constants

from mmrl.config import ConfigError
from mmrl.models.families import FAMILIES
from mmrl.models.network.core import MaskedTokenModel
from mmrl.preflight.memory import estimate
from mmrl.preflight.plan import describe
from mmrl.preflight.policy_sizes import adapter_size
from mmrl.preflight.public_sizes import MMADA_8B
from mmrl.preflight.run_checks import check_geometry, check_model
from mmrl.preflight.state_memory import Needs
from mmrl.pretrained.known import image_tokens, known_config
from mmrl.pretrained.model_config import ModelConfig
from mmrl.rl import main
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task
from mmrl.runtime.placement import Placement
from mmrl.training.micro_batches import split_parts
from tests.mmrl.runs import (
    ACCELERATE,
    LORA,
    ROOT,
    VQ,
    command_line,
    rollouts,
    run_config,
    task_config,
    trainer_of,
)

CLIP = "tasks.shapes.rewards=[{name: clip, weight: 2.0}]"


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any, **__: Any) -> None:
        pytest.fail("weights were loaded")

    monkeypatch.setattr("mmrl.models.load_policy", load)


def parts(config: RLConfig, raw: dict | None = None, world_size: int = 1) -> dict[str, float]:
    raw = raw or known_config(config.model.path) or {}
    tasks = [Task(name, options) for name, options in config.tasks.items()]
    return estimate(config, raw, tasks, Placement(world_size=world_size)).device


def test_a_dry_run_prints_settings_plan_rewards_and_memory_and_touches_nothing(
    world: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str], no_weights: None
) -> None:
    words = [*command_line(world, tmp_path / "run"), "tasks.shapes.sampler.cfg_scale=2.0"]
    started = time.perf_counter()
    assert main([*words, "dry_run=true"]) == 0
    assert time.perf_counter() - started < 5
    said = " ".join(capsys.readouterr().out.split())
    for promise in (
        "adamw, learning rate 0.001, constant_with_warmup",
        "6 to train on, 0 held out",
        "2 prompts x 4 = 8 a step",
        "emerge, 3 denoising steps of 16 rows (guidance 2)",
        "mask_grpo: masks random",
        "2 optimiser steps of 2 micro-batches of 4 rollouts",
        "3 forward and 1 backward passes",
        "tasks.shapes.rewards, on 2 dummy samples",
        "1 x shapes: mean 0 (0 to 0)",
        "at the peak",
        "no evaluation, checkpoint every 50 steps",
    ):
        assert promise in said, promise
    assert not (tmp_path / "run").exists()


REFUSED = [
    ("per_device_train_batch_size=5", "[1, 2, 4, 8]"),
    ("model.path=./nowhere", "model.path is './nowhere'; it must be an existing directory"),
    ("model.vq=no/such/place", "model.vq is 'no/such/place'"),
    ("model.image_size=30", "a multiple of 4"),
    ("tasks.shapes.task=text_to_imag", "Did you mean 'text_to_image'?"),
    ("tasks.shapes.prompts=no/such/place", "'no/such/place'"),
    ("tasks.shapes.rewards=[{name: clip, model: ViT-L-41}]", "clip.model is 'ViT-L-41'"),
    ("tasks.shapes.eval_rewards=[{name: hps, version: v2.1, checkpoint: /no/file.pt}]", "no/file"),
    ("resume_from_checkpoint=nowhere", "resume_from_checkpoint is 'nowhere'"),
    ("output_dir=README.md", "output_dir is 'README.md'"),
]


@pytest.mark.parametrize(("word", "named"), REFUSED)
def test_a_dry_run_refuses_what_the_run_would_refuse(
    word: str,
    named: str,
    world: SimpleNamespace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    no_weights: None,
) -> None:
    monkeypatch.chdir(ROOT)
    words = [*command_line(world, tmp_path / "run"), word]
    for more in (["dry_run=true"], []):
        assert main([*words, *more]) == 1
        assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("groups", "world_size", "size"),
    [
        ([(2, 4)], 1, 8),
        ([(2, 4)], 2, 4),
        ([(16, 8)], 1, 16),
        ([(4, 9)], 1, 12),
        ([(2, 17)], 1, 2),
        ([(3, 8), (4, 9)], 1, 12),
        ([(2, 4), (3, 4)], 1, 4),
    ],
)
def test_the_size_of_micro_batches_that_is_left_open_fits_every_task(
    groups: list[tuple[int, int]],
    world_size: int,
    size: int,
    world: SimpleNamespace,
    tmp_path: Path,
) -> None:
    tasks = {
        f"task{n}": task_config(world, num_prompts=prompts, num_generations=generations)
        for n, (prompts, generations) in enumerate(groups)
    }
    config = run_config(world, tmp_path, tasks=tasks, per_device_train_batch_size=None)
    check_geometry(config, world_size)
    assert config.micro_batch_size(world_size) == size
    assert f"micro-batches of {size} rollouts" in " ".join(
        str(describe(config, world_size)).split()
    )


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_dry_run_refuses_a_damaged_checkpoint(
    file: str, world: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(world.policy, tmp_path / "policy")
    damaged = tmp_path / "policy" / file
    damaged.write_bytes(damaged.read_bytes()[:-5])
    words = [*command_line(world, tmp_path / "run"), f"model.path={tmp_path / 'policy'}"]
    assert main([*words, "dry_run=true"]) == 1
    assert str(damaged) in capsys.readouterr().err


def test_a_dry_run_refuses_a_directory_that_holds_a_run(
    world: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*command_line(world, tmp_path), "dry_run=true"]
    (tmp_path / "metrics.jsonl").touch()
    assert main(words) == 1
    assert "already holds a run" in capsys.readouterr().err
    assert main([*words, "resume_from_checkpoint=auto"]) == 0


def test_a_dry_run_counts_the_processes_it_was_launched_with(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    config = run_config(world, tmp_path)
    said = " ".join(str(describe(config, world_size=2)).split())
    assert "1 micro-batches of 4 rollouts per process" in said
    with pytest.raises(ValueError, match="multiple of the 3 processes"):
        describe(config, world_size=3)


def test_a_reward_that_is_not_on_this_machine_is_named_and_nothing_is_downloaded(
    world: SimpleNamespace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    assert main([*command_line(world, tmp_path / "run"), CLIP, "dry_run=true"]) == 0
    said = capsys.readouterr().out
    assert "2 x clip" in said and "cannot run here: clip.model" in said
    assert constants.HF_HUB_OFFLINE is False


def test_a_reward_that_fails_on_every_dummy_sample_is_named(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    config = run_config(world, tmp_path)
    config.tasks["shapes"].rewards = [{"name": "mine", "reward": lambda samples: 1 / 0}]
    plan = describe(config)
    assert "failed on 2 of 2, first: raised ZeroDivisionError" in " ".join(str(plan).split())
    with pytest.raises(ConfigError, match="reward 'mine' failed on .* Correct the reward"):
        plan.check()
    config.tasks["shapes"].max_failures = 10
    describe(config).check()


def test_a_policy_that_is_not_here_is_estimated_by_the_sizes_of_the_8b_model(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    config = run_config(world, tmp_path)
    config.model = ModelConfig(path="Gen-Verse/MMaDA-8B-Base", vq=VQ)
    said = " ".join(str(describe(config)).split())
    assert "Gen-Verse/MMaDA-8B-Base, not on this machine: loaded from the hub" in said
    assert "sizes are those of MMaDA-8B" in said


def test_weights_and_optimiser_are_those_of_the_trainer(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    for name, changes in (
        ("full", {"algorithm": {"beta": 0.1}}),
        ("lora", {"lora": LORA, "model": {"dtype": "bfloat16"}}),
        ("some", {"algorithm": {"beta": 0.1}, "model": {"modules_to_train": ["blocks.1"]}}),
    ):
        config = run_config(world, tmp_path / name, **changes)
        trainer = trainer_of(config)
        trainer.update(rollouts(config, trainer))
        named = list(trainer.trained.named_parameters())
        states = [m for state in trainer.optimizer.state.values() for m in state.values()]
        expected = parts(config)
        assert expected["adapter"] == bytes_of(p for n, p in named if ".lora_" in n)
        assert expected["weights"] == bytes_of(p for n, p in named if ".lora_" not in n)
        assert expected["optimiser"] == bytes_of(moment for moment in states if moment.ndim)
        policy = {id(parameter) for parameter in trainer.policy.network.parameters()}
        copies = trainer.frozen.parameters() if trainer.frozen else ()
        assert expected["reference"] == bytes_of(p for p in copies if id(p) not in policy)


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_activations_are_estimated_within_a_factor(
    world: SimpleNamespace, tmp_path: Path, lora: dict | None, bf16: bool
) -> None:
    # two passes held at once, as their ratio is of both
    algorithm = {"name": "gdpo", "mask": "full", "num_iterations": 1}
    config = run_config(world, tmp_path, lora=lora, algorithm=algorithm, bf16=bf16)
    trainer = trainer_of(config)
    task, batch = rollouts(config, trainer)["shapes"]
    prepared, kept = trainer._prepare(task, batch, 0), {}
    weights = {p.untyped_storage().data_ptr() for p in trainer.trained.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        [part, *_] = split_parts(prepared, [slice(0, 4)], config.passes_at_once)
        loss, _ = trainer._loss(part)
    assert loss.requires_grad
    estimated = parts(config)["update"]
    assert 0.5 < estimated / sum(kept.values()) < 2.0
    config.model.gradient_checkpointing = True
    assert parts(config)["update"] < estimated


def test_the_8b_sizes_are_those_of_the_public_checkpoint() -> None:
    with torch.device("meta"):
        network = MaskedTokenModel(FAMILIES["mmada"].core_config(MMADA_8B))
    block = 4 * 4096**2 + 3 * 4096 * 12288 + 2 * 4096
    expected = 2 * 134656 * 4096 + 32 * block + 4096
    assert sum(p.numel() for p in network.parameters()) == expected
    assert adapter_size(network, 128, ["q", "down"]) == 32 * 128 * (2 * 4096 + 4096 + 12288)


def test_the_response_follows_the_image_size_or_else_the_checkpoint(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    config = run_config(world, tmp_path)
    raw = known_config(world.policy)
    assert raw is not None and image_tokens(config.model, raw) == 64
    config.model.image_size = 16
    assert image_tokens(config.model, raw) == 16
    config.model.vq, config.model.image_size = "showlab/magvitv2", 512
    assert image_tokens(config.model, raw) == 1024


def test_an_image_costs_the_same_where_its_length_is_said(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    config = run_config(world, tmp_path)
    before = parts(config)
    config.tasks["shapes"].max_completion_length = 64
    check_model(config)
    assert parts(config) == before


def test_update_and_sampling_do_not_add_up_and_more_processes_reduce_a_copy_of_gradients(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    config = run_config(world, tmp_path)
    one, two = parts(config), parts(config, world_size=2)
    assert two["buckets"] == two["gradients"] == one["gradients"]
    assert "buckets" not in one and two["weights"] == one["weights"]
    phases = {phase.phase: phase.device for phase in Needs(one).phases()}
    resident = sum(one[name] for name in ("weights", "optimiser", "reference", "snapshot"))
    assert phases["rollout"] == resident + one["sampling"]
    assert phases["update"] == resident + one["gradients"] + one["update"]


def test_a_dry_run_says_what_rollouts_gather_where_weights_are_shared(
    world: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str], no_weights: None
) -> None:
    words = [*command_line(world, tmp_path / "run"), "dry_run=true"]
    for launch, change, said in (
        ("fsdp2_cpu2", "auto", "gathered whole, once per rollout phase (rollout_weights: auto)"),
        ("zero3_cpu2", "by_block", "gathered by block, whenever one computes (rollout_weights: by"),
        ("fsdp2", "auto", "MiB; the device is not known here: whole where it has"),
        ("cpu2", "auto", None),
    ):
        file = f"launch_config={ACCELERATE / launch}.yaml"
        assert main([*words, file, f"rollout_weights={change}", "tasks.shapes.num_prompts=8"]) == 0
        found = " ".join(capsys.readouterr().out.split())
        assert ("weights gathered" in found) == (said is not None)
        assert said is None or said in found, (launch, found)
