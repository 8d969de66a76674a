"""Updates on questions about images: what is trained, from which masks, at which cost."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from PIL import Image

from mmrl.models import load_policy
from mmrl.models.network.vision import Vision
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.rollouts.tasks import Task
from mmrl.samplers import SamplerConfig
from mmrl.training.micro_batches import Part
from mmrl.training.trainer import Trainer
from mmrl.types import Prompt, Sample
from tests.mmrl.runs import roll_out, run_config
from tests.models.networks import write_small_llada_v


def length(samples: list[Sample]) -> list[float]:
    return [float(len(str(sample.completion))) for sample in samples]


@pytest.fixture(scope="module")
def sight(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Paths of a small policy that sees, and of prompts without their images."""
    folder = tmp_path_factory.mktemp("sight")
    (folder / "prompts.jsonl").write_text("\n".join(json.dumps({"prompt": t}) for t in "abc"))
    write_small_llada_v(folder)
    return SimpleNamespace(policy=str(folder), prompts=str(folder / "prompts.jsonl"))


def prepared(
    sight: SimpleNamespace, folder: Path, tower: bool = False, **changes: Any
) -> tuple[Trainer, Task, dict[str, tuple[Task, RolloutBatch]]]:
    """A trainer and the rollouts of its first step: two groups of four."""
    own = {"task": "image_to_text", "sampler": SamplerConfig(name="static", steps=4, eos="leave")}
    own |= {"max_completion_length": 8, "rewards": [{"name": "length", "reward": length}]}
    own |= {**changes.pop("task", {})}
    config = run_config(sight, folder, task=own, **changes)
    policy = load_policy(sight.policy, max_prompt_length=300, train_vision_tower=tower)
    task = Task("sight", config.tasks["shapes"])
    colours = ("red", "blue", "green")
    task.prompts = [
        Prompt(str(n), "image_to_text", "which?", images=[Image.new("RGB", (8 + 4 * n, 8), colour)])
        for n, colour in enumerate(colours)
    ]
    trainer = Trainer(config, policy, Accelerator(cpu=True))
    return trainer, task, {"sight": (task, roll_out(task, policy, 0, 0, 0, 1))}


def test_the_micro_batch_changes_no_gradient(sight: SimpleNamespace, tmp_path: Path) -> None:
    norms = []
    for size in (8, 3, 1):
        trainer, _, work = prepared(sight, tmp_path, True, per_device_train_batch_size=size)
        norms.append(trainer.update(work)["grad_norm"])
    assert norms[1:] == pytest.approx([norms[0]] * 2, rel=1e-4)


@pytest.mark.parametrize(
    ("tower", "patterns", "copied"),
    [
        (False, None, ["embed", "blocks", "norm", "head", "vision.newline", "vision.projector"]),
        (True, None, ["embed", "blocks", "norm", "head", "vision"]),
        (False, ["vision.projector"], ["vision.projector"]),
    ],
    ids=["all-but-the-tower", "tower", "projector"],
)
def test_the_reference_has_no_copy_of_what_is_never_trained(
    sight: SimpleNamespace, tmp_path: Path, tower: bool, patterns: list | None, copied: list
) -> None:
    model = {"modules_to_train": patterns, "train_vision_tower": tower}
    changes: dict[str, Any] = {"algorithm": {"beta": 0.1}, "learning_rate": 0.05, "model": model}
    trainer, _, work = prepared(sight, tmp_path, tower, **changes)
    assert trainer.frozen is not None
    policy, frozen = trainer.policy.network, dict(trainer.frozen.named_parameters())
    expected = {n for n in frozen if n.startswith(tuple(copied)) and "post_layernorm" not in n}
    assert expected == {n for n, p in policy.named_parameters() if frozen[n] is not p}
    start = {name: parameter.clone() for name, parameter in frozen.items()}
    trainer.update(work)
    moved = {name for name, p in policy.named_parameters() if not torch.equal(p, start[name])}
    assert moved and moved <= expected
    assert any(name.startswith("vision.tower.encoder") for name in moved) == tower
    assert all(torch.equal(frozen[name], value) for name, value in start.items())
    assert trainer.update(work)["kl"] > 0


def test_old_and_reference_policy_look_at_each_image_once_whatever_the_micro_batch(
    sight: SimpleNamespace, tmp_path: Path
) -> None:
    algorithm = {"beta": 0.1, "num_iterations": 2, "top_entropy_quantile": 0.5}
    changes: dict[str, Any] = {"algorithm": algorithm, "per_device_train_batch_size": 1}
    model = {"train_vision_tower": True}
    trainer, _, work = prepared(sight, tmp_path, True, model=model, **changes)
    looked: dict[str, int] = {"policy": 0, "reference": 0}

    def count(name: str, network: torch.nn.Module | None) -> None:
        assert network is not None and isinstance(network.vision, Vision)
        network.vision.tower.encoder.register_forward_hook(
            lambda *_: looked.update({name: looked[name] + 1})
        )

    count("policy", trainer.policy.network)
    count("reference", trainer.frozen)
    item = trainer._prepare(*work["sight"], 0)
    assert len(item.old) == 8 and looked == {"policy": 2, "reference": 2}
    for rows in (slice(3, 4), slice(6, 7)):
        part = Part(item, rows.start, rows, slice(None))
        new = trainer._score(item, rows, part.passes)
        assert torch.equal(new.logprobs.detach(), item.old[rows.start].logprobs)
        assert torch.equal(new.logprobs.detach(), item.reference[rows.start].logprobs)


def test_a_group_that_is_sampled_in_parts_is_looked_at_once(
    sight: SimpleNamespace, tmp_path: Path
) -> None:
    found = []
    for size in (8, 5, 3, 1):
        trainer, task, _ = prepared(sight, tmp_path, True, task={"rollout_batch_size": size})
        vision = trainer.policy.network.vision
        assert isinstance(vision, Vision)
        looked: list[int] = []
        vision.tower.encoder.register_forward_hook(lambda *_, seen=looked: seen.append(1))
        batch = roll_out(task, trainer.policy, 1, 0, 0, 1)
        assert len(looked) == 2
        found.append(batch.rollout)
    features = [rollout.canvas.features for rollout in found]
    assert features[0] is not None and len(features[0].images) == 2
    for rollout, seen in zip(found[1:], features[1:], strict=True):
        written, expected = (r.canvas.tokens[:, -8:] for r in (rollout, found[0]))
        assert torch.equal(written, expected)
        assert seen is not None and seen.images == features[0].images
        for name in ("at", "embeddings", "source"):
            assert torch.equal(getattr(seen, name), getattr(features[0], name))
