"""Questions about shapes, from a prompt file to a trained policy and its scores.

Once with a policy that sees images through a tower, and once with one that reads them as codes.
"""

import io
import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from mmrl.data.prompts import DataConfig
from mmrl.models.image_tokenizers.magvit import MagvitV2
from mmrl.models.network.vision import Vision
from mmrl.pretrained.model_config import ModelConfig
from mmrl.rl import train
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task, TaskConfig
from mmrl.samplers import SamplerConfig
from tests.mmrl.runs import LORA, RED, SHAPES, VQ, World, metrics, roll_out, run_config, trainer_of
from tests.models.networks import write_small_llada_v, write_small_mmada

SAMPLER = SamplerConfig(name="static", steps=4, eos="leave")


@dataclass(frozen=True)
class Sight:
    """A small policy and questions about shapes, of every tag.

    `looks` is what runs once for every image that is looked at, `reached` a module that images
    reach.
    """

    policy: str
    vq: str | None
    prompts: str
    held_out: str
    looks: tuple[type, str]
    reached: str


def written(folder: Path, family: str) -> Sight:
    """A checkpoint of a family with the prompt files."""
    paths = {}
    for split, first in (("train", 7), ("validation", 3)):
        with (SHAPES / f"questions_{split}.jsonl").open() as lines:
            paths[split] = folder / f"{split}.jsonl"
            paths[split].write_text("".join(islice(lines, first, None, 32 * first)))
    prompts = str(paths["train"]), str(paths["validation"])
    if family == "mmada":
        vq = str(write_small_mmada(folder) / "vq")
        return Sight(str(folder), vq, *prompts, (MagvitV2, "encode"), "embed")
    write_small_llada_v(folder)
    return Sight(str(folder), None, *prompts, (Vision, "_states"), "vision")


@pytest.fixture(scope="module", params=["llada_v", "mmada"])
def sight(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sight:
    """Both kinds of policy."""
    return written(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> Sight:
    """The policy that sees."""
    return written(tmp_path_factory.mktemp("tower"), "llada_v")


def questions(sight: Sight, folder: Path, **changes: Any) -> RLConfig:
    """A run of two steps on two questions of four answers each."""
    task = {"task": "image_to_text", "data": DataConfig(format="dllm_rl"), "sampler": SAMPLER}
    task |= {"max_completion_length": 8, "rewards": [{"name": "answer"}], **changes.pop("task", {})}
    model = {"train_vision_tower": False, **changes.pop("model", {})}
    world = World(sight.policy, sight.prompts)
    config = run_config(world, folder, task=task, model=model, **{"max_steps": 2, **changes})
    config.model.max_prompt_length, config.model.vq = 400, sight.vq
    return config


def test_a_run_trains_evaluates_by_tag_and_looks_once_per_prompt_and_step(
    sight: Sight, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    look = getattr(*sight.looks)
    monkeypatch.setattr(*sight.looks, lambda *a: looked.append(1) or look(*a))
    task = {"eval_prompts": sight.held_out, "eval_limit": 2}
    config = questions(sight, tmp_path, task=task, eval_steps=2, save_steps=2)
    run = train(config)
    assert len(looked) == 2 * 2 + 2 * 2  # prompts of two steps, and of two evaluations
    lines = metrics(run)
    updates = [line for line in lines if "loss" in line]
    assert [line["step"] for line in updates] == [1, 2]
    evaluated = [line for line in lines if "eval/shapes/answer" in line]
    tags = {key.split("/")[3] for key in evaluated[0] if key.count("/") == 3} - {"stderr"}
    assert len(evaluated) == 2 and tags == {"count", "existence"}
    stored = pq.read_table(run / "samples" / "completions_shapes_000002.parquet").to_pylist()
    assert len(stored) == 8 and all(isinstance(row["completion"], str) for row in stored)
    stored += pq.read_table(run / "samples" / "eval_shapes_000002.parquet").to_pylist()
    images = [Image.open(io.BytesIO(row["image"]["bytes"])) for row in stored]
    assert len(images) == 10 and all(image.format == "PNG" for image in images)
    assert (run / "report.html").is_file()
    log = (run / "train.log").read_text()
    assert f"trained: {sight.reached}" in log and "trained: total" in log


def lengths(samples: list[Any]) -> list[float]:
    return [float(len(sample.completion)) for sample in samples]


def test_words_alone_leave_no_trained_weight_without_gradient(tower: Sight, tmp_path: Path) -> None:
    config = questions(tower, tmp_path, model={"train_vision_tower": True})
    network = trainer_of(config).policy.network
    ids = torch.arange(6)[None]
    with torch.no_grad():
        unchanged = network(input_ids=ids).logits
    logits = network(input_ids=ids).logits
    assert torch.equal(logits, unchanged)
    logits.sum().backward()
    for name, parameter in network.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
        if name.startswith("vision.") and parameter.grad is not None:
            assert not parameter.grad.any()


def test_the_reference_keeps_what_trains_beside_an_adapter(tower: Sight, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"lora": LORA, "model": {"modules_to_train": ["vision.projector"]}}
    task = {"rewards": [{"name": "length", "reward": lengths}]}
    config = questions(tower, tmp_path, algorithm={"beta": 0.1}, task=task, **changes)
    trainer = trainer_of(config)
    weight = dict(trainer.policy.network.named_parameters())["vision.projector.0.weight"]
    job, before = Task("shapes", config.tasks["shapes"]), weight.detach().clone()
    batch = roll_out(job, trainer.policy, 0, 0, 0, 1)
    first = trainer.update({"shapes": (job, batch)})
    assert first["ratio"] == pytest.approx(1.0, abs=0.1) and not torch.equal(weight, before)
    with trainer.reference():
        assert torch.equal(weight, before)
    assert trainer.update({"shapes": (job, batch)})["kl"] > 0


TASKS = {"drawn": "text_to_image", "asked": "image_to_text", "read": "text"}
WRITER = SamplerConfig(name="static", steps=4)


@pytest.fixture(scope="module")
def files(world: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A prompt file for every task."""
    folder = tmp_path_factory.mktemp("prompts")
    with (SHAPES / "questions_train.jsonl").open() as lines:
        (folder / "asked.jsonl").write_text("".join(islice(lines, 0, None, 400)))
    rows = [{"prompt": "a red circle", "answer": "red"}, {"prompt": "two", "answer": "two"}]
    (folder / "read.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"drawn": world.prompts, **{n: str(folder / f"{n}.jsonl") for n in ("asked", "read")}}


def mixed(world: World, files: dict[str, str], output: Path) -> RLConfig:
    """Two steps of two prompts with two rollouts each of every task."""
    text: dict[str, Any] = {
        "sampler": WRITER,
        "max_completion_length": 8,
        "rewards": [{"name": "length", "reward": lengths}],
    }
    own: dict[str, dict[str, Any]] = {
        "drawn": {"sampler": SamplerConfig(steps=3), "rewards": [RED]},
        "asked": {**text, "data": DataConfig(format="dllm_rl"), "algorithm": {"name": "unigrpo"}},
        "read": {**text, "algorithm": {"name": "coupled_grpo"}},
    }
    tasks = {
        name: TaskConfig(
            task=task,
            **{"prompts": files[name], "eval_prompts": files[name]},
            **{"eval_limit": 2, "num_prompts": 2, "num_generations": 2},
            **{**own[name], "algorithm": {"num_iterations": 1, **own[name].get("algorithm", {})}},
        )
        for name, task in TASKS.items()
    }
    model = ModelConfig(path=world.policy, vq=VQ, max_prompt_length=64)
    values = {"output_dir": str(output), "model": model, "tasks": tasks, "learning_rate": 1e-3}
    values |= {"max_steps": 2, "save_steps": 0, "eval_steps": 2, "bf16": False}
    return RLConfig(**values, per_device_train_batch_size=4)


def test_three_tasks_train_one_policy_and_each_has_its_metrics(
    world: World, files: dict[str, str], tmp_path: Path
) -> None:
    run = train(mixed(world, files, tmp_path))
    lines = metrics(run)
    updates = [line for line in lines if "loss" in line]
    assert [line["step"] for line in updates] == [1, 2]
    for line in updates:
        assert line["grad_norm"] > 0
        for name in TASKS:
            assert {f"{name}/reward", f"{name}/reward_std", f"{name}/ratio"} <= line.keys()
            assert line[f"{name}/ratio"] == pytest.approx(1.0, abs=1e-6)
        assert {"asked/completions/mean_length", "read/completions/mean_length"} <= line.keys()
        assert "drawn/completions/mean_length" not in line
    for score in ("drawn/redness", "asked/length", "read/length"):
        assert [line["step"] for line in lines if f"eval/{score}" in line] == [0, 2]
    before, after = (
        load_file(Path(p) / "model.safetensors") for p in (world.policy, run / "final")
    )
    assert any((before[key].float() != after[key].float()).any() for key in before)
