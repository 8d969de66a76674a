"""The supervised loop on a tiny tokenizer: exact resume, clean stops, clear errors."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, Features, Value
from datasets import Image as ImageFeature
from PIL import Image
from safetensors.torch import load_file
from torch import Generator

from mmrl.checkpoint import CheckpointError, checkpoint_steps
from mmrl.config import ConfigError, load_config, to_yaml
from mmrl.objectives.reconstruction import (
    Reconstruction,
    ReconstructionConfig,
    commitment_loss,
    entropy_loss,
)
from mmrl.run_directory import RunDirectory
from mmrl.sft import SFTConfig, main, train
from mmrl.supervised_trainer import DivergenceError
from models.magvit import MagvitConfig, MagvitV2, load_vq

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "tests" / "fixtures" / "magvitv2" / "cases.safetensors"
NETWORK = {
    "ch": 4,
    "bits": 3,
    "norm_groups": 2,
    "encoder_ch_mult": [1, 1],
    "encoder_num_res_blocks": [0, 0],
    "decoder_ch_mult": [1, 1],
    "decoder_num_res_blocks": [0, 1],
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A parquet of twelve 8 x 8 images of two flat colours each."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(12):
        pixels = np.repeat(rng.integers(0, 256, (2, 1, 3), dtype=np.uint8), 4, axis=0)
        buffer = io.BytesIO()
        Image.fromarray(np.repeat(pixels, 8, axis=1)).save(buffer, "PNG")
        rows.append({"bytes": buffer.getvalue(), "path": None})
    path = tmp_path_factory.mktemp("images") / "images.parquet"
    columns = {"image": rows, "prompt": ["two stripes"] * 12}
    features = Features({"image": ImageFeature(), "prompt": Value("string")})
    Dataset.from_dict(columns, features=features).to_parquet(str(path))
    return path


def config(images: Path, output: Path, **changes: Any) -> SFTConfig:
    objective = {"name": "reconstruction", "data": str(images), "image_size": 8, "network": NETWORK}
    values = {
        "max_steps": 4,
        "per_device_train_batch_size": 5,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_steps": 2,
        "warmup_steps": 1,
        "ema_decay": 0.9,
    }
    return SFTConfig(output_dir=str(output), **{**values, "objective": objective, **changes})


def metrics(output: Path) -> list[dict[str, float]]:
    lines = RunDirectory(output).read_metrics()
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]


def same_weights(one: Path, other: Path) -> bool:
    left, right = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    return all(torch.equal(left[key], right[key]) for key in left)


def kill_in_checkpoint(monkeypatch: pytest.MonkeyPatch, step: int, error: BaseException) -> None:
    """Let the writing of the checkpoint of one step fail half-way."""
    original = Reconstruction.save

    def save(self: Reconstruction, directory: Path) -> None:
        original(self, directory)
        if directory.name.startswith(str(step)):
            raise error

    monkeypatch.setattr(Reconstruction, "save", save)


def test_two_steps_a_kill_and_two_more_equal_four_steps(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"logging_steps": 3, "optimizer": "muon", "bf16": True}
    assert train(config(images, tmp_path / "whole", **options))
    with monkeypatch.context() as patch:
        kill_in_checkpoint(patch, 4, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            train(config(images, tmp_path / "parts", **options))
    assert checkpoint_steps(tmp_path / "parts" / "checkpoints") == [2]
    assert train(config(images, tmp_path / "parts", resume_from_checkpoint="auto", **options))
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    assert same_weights(tmp_path / "parts" / "final", tmp_path / "whole" / "final")


def test_a_run_taken_up_at_an_earlier_step_keeps_what_it_writes(
    images: Path, tmp_path: Path
) -> None:
    train(config(images, tmp_path / "run", max_steps=6, save_total_limit=None))
    second = str(tmp_path / "run" / "checkpoints" / "2")
    changes = {"save_steps": 1, "save_total_limit": 2}
    train(config(images, tmp_path / "run", resume_from_checkpoint=second, **changes))
    assert checkpoint_steps(tmp_path / "run" / "checkpoints") == [3, 4]


def test_training_lowers_the_loss_and_writes_the_run_directory(
    images: Path, tmp_path: Path
) -> None:
    train(config(images, tmp_path / "run", max_steps=30, save_total_limit=1, eval_steps=15))
    lines = metrics(tmp_path / "run")
    losses = [line["loss/pixel"] for line in lines if "loss/pixel" in line]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    assert [line["step"] for line in lines if "eval/pixel_l1" in line] == [15, 30]
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["30"]
    assert len(list((tmp_path / "run" / "samples").glob("*.png"))) == 2
    assert "torch: " in (tmp_path / "run" / "env.txt").read_text()
    assert "finished" in (tmp_path / "run" / "train.log").read_text()
    resolved = load_config(SFTConfig, [f"config={tmp_path / 'run' / 'config.yaml'}"])
    assert resolved.max_steps == 30
    assert load_vq(tmp_path / "run" / "final").codebook_size == 8
    assert load_vq(tmp_path / "run" / "checkpoints" / "30").codebook_size == 8


def test_micro_batches_of_a_step_equal_one_large_batch(images: Path, tmp_path: Path) -> None:
    loss = {"name": "reconstruction", "data": str(images), "image_size": 8, "network": NETWORK}
    loss = {**loss, "entropy_weight": 0.0, "save_dtype": "float32"}
    for name, size, accumulation in (("one", 6, 1), ("three", 2, 3)):
        options = {
            "per_device_train_batch_size": size,
            "gradient_accumulation_steps": accumulation,
            "objective": loss,
        }
        train(config(images, tmp_path / name, max_steps=1, warmup_steps=0, **options))
    one, three = (metrics(tmp_path / name)[0] for name in ("one", "three"))
    assert one["loss"] == pytest.approx(three["loss"], rel=1e-5)
    assert one["grad_norm"] == pytest.approx(three["grad_norm"], rel=1e-4)


def test_the_examples_of_a_step_do_not_depend_on_the_number_of_ranks(images: Path) -> None:
    options = ReconstructionConfig(data=str(images), image_size=8, network=MagvitConfig(**NETWORK))
    alone = Reconstruction(options, seed=1, batch_size=4)
    shared = Reconstruction(options, seed=1, batch_size=2)
    for step in range(7):
        parts = [shared.batch(step, rank, world_size=2) for rank in range(2)]
        assert torch.equal(alone.batch(step, 0, world_size=1), torch.cat(parts))


def test_new_weights_depend_on_the_seed_and_leave_the_global_generator_alone(
    images: Path,
) -> None:
    options = ReconstructionConfig(data=str(images), image_size=8, network=MagvitConfig(**NETWORK))
    before = torch.get_rng_state()
    weights = [
        Reconstruction(options, seed=seed, batch_size=1).vq.encoder.conv_in.weight
        for seed in (3, 3, 4)
    ]
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_a_patch_encoder_gives_equal_patches_equal_codes(images: Path) -> None:
    options = ReconstructionConfig(
        data=str(images),
        image_size=8,
        network=MagvitConfig(**{**NETWORK, "norm_groups": 1}),
        patch_encoder=True,
        whiten_images=12,
        train_encoder=False,
    )
    vq = Reconstruction(options, seed=0, batch_size=1).vq
    pixels = torch.rand(1, 3, 8, 8, generator=Generator().manual_seed(0)) * 2 - 1
    changed = pixels.clone()
    changed[:, :, 2:] = 0.9
    assert torch.equal(vq.get_code(pixels)[:, :4], vq.get_code(changed)[:, :4])
    assert not torch.equal(vq.get_code(pixels), vq.get_code(changed))
    assert not any(p.requires_grad for p in vq.encoder.parameters())


def test_a_patch_encoder_with_norms_that_see_the_image_is_refused(images: Path) -> None:
    for change in ({"norm_groups": 2}, {"norm_groups": 1, "encoder_num_res_blocks": [0, 1]}):
        network = MagvitConfig(**{**NETWORK, **change})
        with pytest.raises(ConfigError, match="patch_encoder=true"):
            ReconstructionConfig(data=str(images), network=network, patch_encoder=True)


@pytest.mark.parametrize("size", ["32x32", "32x64", "64x64"])
def test_quantiser_losses_equal_those_of_the_public_code(size: str) -> None:
    cases = load_file(FIXTURE)
    latent = cases[f"outputs/{size}/latent"]
    commitment = cases[f"outputs/{size}/losses/quantizer_loss"]
    entropy = cases[f"outputs/{size}/losses/entropy_loss"]
    torch.testing.assert_close(0.1 * commitment_loss(latent, beta=0.25), commitment)
    torch.testing.assert_close(0.1 * entropy_loss(latent), entropy, atol=1e-6, rtol=1e-4)


def test_quantiser_losses_stay_finite_for_saturated_bits() -> None:
    latent = torch.full((2, 3, 2, 2), 200.0, requires_grad=True)
    (entropy_loss(latent) + commitment_loss(latent, beta=0.25)).backward()
    assert latent.grad is not None and torch.isfinite(latent.grad).all()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"),
    ],
)
def test_a_full_disk_leaves_the_last_checkpoint_to_resume_from(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with monkeypatch.context() as patch:
        kill_in_checkpoint(patch, 4, error)
        with pytest.raises(CheckpointError, match="earlier checkpoints are intact"):
            train(config(images, tmp_path / "run"))
    checkpoints = tmp_path / "run" / "checkpoints"
    assert [entry.name for entry in checkpoints.iterdir()] == ["2"]
    assert load_vq(checkpoints / "2").codebook_size == 8
    assert train(config(images, tmp_path / "run", resume_from_checkpoint="auto"))


def test_ctrl_c_writes_a_checkpoint_and_ends_cleanly(images: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    words = [f"objective.data={images}", f"output_dir={output}", "objective.image_size=8"]
    words += ["objective.name=reconstruction", "max_steps=100000", "logging_steps=1"]
    words += [f"objective.network.{key}={value}" for key, value in NETWORK.items()]
    process = subprocess.Popen(
        [sys.executable, "-m", "mmrl.sft", *words],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 60
    while not (output / "metrics.jsonl").exists() and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[1].decode()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert b"Traceback" not in process.communicate()[1]
    (step,) = checkpoint_steps(output / "checkpoints")
    assert metrics(output)[-1]["step"] == step
    assert not (output / "final").exists()
    resumed = [*words, "resume_from_checkpoint=auto", f"max_steps={step + 1}"]
    assert main(resumed) == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["objective.name=reconstructon"], "reconstruction"),
        (["objective.name=reconstruction", "objective.pixel_los=l1"], "pixel_loss"),
        (["objective.name=reconstruction", "objective.data=nowhere.parquet"], "nowhere.parquet"),
        (["lerning_rate=1"], "learning_rate"),
        (["max_steps=0"], "max_steps"),
        (["max_steps=many"], "max_steps"),
        (["lr_scheduler_type=cosin"], "cosine"),
        (["lr_scheduler_kwargs={foo: 1}"], "keys of num_cycles"),
        (["optimizer=lion"], "adamw"),
        (["resume_from_checkpoint=nowhere", "objective.name=reconstruction"], "nowhere"),
        (["config=configs/sft/nothing.yaml"], "shapes_vq.yaml"),
    ],
)
def test_a_bad_configuration_is_one_clear_line(
    words: list[str], named: str, tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = [] if any("objective.data" in word for word in words) else [f"objective.data={images}"]
    output = [] if words[0].startswith("config=") else [f"output_dir={tmp_path / 'run'}"]
    assert main([*usual, *output, *words]) == 1
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("error: ") and named in message


def test_an_image_size_that_the_network_cannot_divide_is_refused(
    images: Path, tmp_path: Path
) -> None:
    objective = {"name": "reconstruction", "data": str(images), "image_size": 9, "network": NETWORK}
    with pytest.raises(ConfigError, match="image_size is 9"):
        train(config(images, tmp_path / "run", objective=objective))


def test_a_run_that_failed_to_start_does_not_block_its_directory(
    images: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError):
        train(config(tmp_path / "none.parquet", tmp_path / "run"))
    assert train(config(images, tmp_path / "run", max_steps=1))


def test_a_run_killed_before_its_first_checkpoint_starts_again(
    images: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1, "loss": 9.0}\n{"step": 2, "lo')
    with pytest.raises(ConfigError, match="resume_from_checkpoint=auto"):
        train(config(images, tmp_path / "run", max_steps=1))
    assert train(config(images, tmp_path / "run", max_steps=1, resume_from_checkpoint="auto"))
    assert [line["step"] for line in metrics(tmp_path / "run")] == [1]
    assert metrics(tmp_path / "run")[0]["loss"] != 9.0


def test_a_dry_run_prints_the_plan_and_touches_nothing(
    images: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Reconstruction, "__init__", lambda *_, **__: pytest.fail("a network"))
    changes = {"gradient_accumulation_steps": 3, "dry_run": True}
    (tmp_path / "plan.yaml").write_text(to_yaml(config(images, tmp_path / "run", **changes)))
    words = [f"config={tmp_path / 'plan.yaml'}"]
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    count = sum(p.numel() for p in MagvitV2(MagvitConfig(**NETWORK)).parameters())
    for promise in (
        "4 steps from the first step", f"reconstruction: 12 images of {images}",
        f"network {count:,} parameters", "15 examples: 3 micro-batches of 5",
        "adamw, learning rate 0.01, cosine after 1 steps of warm-up", "checkpoint every 2 steps",
    ):  # fmt: skip
        assert promise in said, promise
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("objective.data=nowhere.parquet", "nowhere.parquet"),
        ("objective.vq=./nowhere", "objective.vq is './nowhere'"),
        ("learning_rate_scales={decodr: 2.0}", "'decodr'"),
        ("resume_from_checkpoint=nowhere", "nowhere"),
        ("output_dir=README.md", "output_dir is 'README.md'"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would_refuse(
    word: str,
    named: str,
    images: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "plan.yaml").write_text(to_yaml(config(images, tmp_path / "run")))
    words = [f"config={tmp_path / 'plan.yaml'}", word]
    assert main([*words, "dry_run=true"]) == 1
    assert named in capsys.readouterr().err
    assert main(words) == 1


def test_a_finished_run_is_not_overwritten(images: Path, tmp_path: Path) -> None:
    train(config(images, tmp_path / "run"))
    with pytest.raises(ConfigError, match="already holds a finished run"):
        train(config(images, tmp_path / "run"))


def test_a_checkpoint_of_another_network_is_refused(images: Path, tmp_path: Path) -> None:
    train(config(images, tmp_path / "run"))
    network = {**NETWORK, "bits": 4}
    objective = {"name": "reconstruction", "data": str(images), "image_size": 8, "network": network}
    options = {"objective": objective, "resume_from_checkpoint": "auto", "max_steps": 6}
    with pytest.raises(ConfigError, match="cannot be resumed from"):
        train(config(images, tmp_path / "run", **options))
    state = tmp_path / "run" / "checkpoints" / "4" / "trainer_state.pt"
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.raises(ConfigError, match="cannot be resumed from"):
        train(config(images, tmp_path / "run", resume_from_checkpoint="auto", max_steps=6))


def test_a_loss_that_is_not_finite_stops_the_run(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Reconstruction.loss

    def loss(self: Reconstruction, batch: torch.Tensor) -> Any:
        value, parts = original(self, batch)
        return value * float("nan"), parts

    monkeypatch.setattr(Reconstruction, "loss", loss)
    with pytest.raises(DivergenceError, match="learning_rate"):
        train(config(images, tmp_path / "run"))


def test_metrics_after_the_resumed_step_and_a_cut_line_are_dropped(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for step in (1, 2, 3):
        run.append(step, {"loss": float(step)})
    run.append(3, {"loss": float("nan")})
    assert run.read_metrics()[-1] == {"step": 3, "loss": None}
    with run.metrics.open("a") as file:
        file.write(json.dumps({"step": 4})[:-3])
    run.truncate_metrics(2)
    assert [line["step"] for line in run.read_metrics()] == [1, 2]
