"""What looking at an image costs a group of rollouts, against one pass of the tower over its tiles.

    python scripts/bench/feature_sharing.py group=8
    python scripts/bench/feature_sharing.py image=[768,512] tower_width=1152

A SigLIP tower of random weights with the public tiling (tiles of 384 pixels, patches of 14) sees an
image of about 2,700 embeddings for a group of rollouts, in the real loop: it is rolled out, scored
under a frozen reference, and trained on once, the tower frozen and the projector not. Counted is
all that happens between pixels and embeddings (tower, projector, tiling), forward and backward,
in the policy and in the reference. The naive way looks at the image once for each rollout, and that
for the rollouts alone. `largest_difference` is that of the group's embeddings to those of each
rollout looked at by itself. One JSON line; on a machine with other work `cpu_ratio` is the fairer.

The projector runs again for every score and micro-batch, because it is trained. Counted in
multiplications, once is 1.6 % of a pass of this tower, and 5 % with the public sizes (26 layers of
1,152, a language model 4,096 wide): there a group costs 1.23 passes in one micro-batch, 1.18
without a reference, and 2.1 without one in eight micro-batches.
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrl.config.command import Usage, read_settings  # noqa: E402

TOKENIZER = Path(__file__).resolve().parents[2] / "datasets" / "shapes" / "tokenizer_questions"


@dataclass(kw_only=True)
class Setting:
    """Sizes; `key=value` on the command line changes them."""

    tile: int = 384
    """Side of a tile in pixels."""
    patch: int = 14
    """Side of a patch."""
    tower_width: int = 384
    """Width of the tower."""
    tower_layers: int = 12
    """Its layers."""
    tower_heads: int = 6
    """Its heads of attention."""
    tower_mlp: int = 1536
    """Width of its MLPs."""
    width: int = 512
    """Width of the network."""
    layers: int = 1
    """Its layers."""
    heads: int = 8
    """Its heads of attention."""
    mlp: int = 512
    """Width of its MLPs."""
    image: list[int] = field(default_factory=lambda: [768, 512])
    """Width and height of the image in pixels."""
    group: int = 8
    """Rollouts of the prompt."""
    length: int = 8
    """Response positions."""
    micro_batch: int = 8
    """Rollouts of a micro-batch."""
    device: str = "cpu"
    """Where the networks run."""


if __name__ == "__main__":  # before the seconds that torch takes
    SETTING = read_settings(
        Usage("python scripts/bench/feature_sharing.py", __doc__, Setting), sys.argv[1:]
    )

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from PIL import Image  # noqa: E402
from results import circumstances, report  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.modules import module as global_hooks  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402
from transformers.models.siglip.modeling_siglip import SiglipEncoder  # noqa: E402

from mmrl.models import Policy, load_policy  # noqa: E402
from mmrl.models.loading import new_model, save_model  # noqa: E402
from mmrl.models.network.vision import Vision  # noqa: E402
from mmrl.pretrained.model_config import ModelConfig, policy_options  # noqa: E402
from mmrl.randomness import generator  # noqa: E402
from mmrl.rl_config import RLConfig  # noqa: E402
from mmrl.rollouts.rollout import RolloutBatch, sample_groups, score_groups  # noqa: E402
from mmrl.rollouts.tasks import Task, TaskConfig  # noqa: E402
from mmrl.samplers import SamplerConfig  # noqa: E402
from mmrl.training.trainer import Trainer  # noqa: E402
from mmrl.types import Sample  # noqa: E402


@dataclass
class Seconds:
    """On the clock and of the processors."""

    clock: float = 0.0
    cpu: float = 0.0

    def since(self, start: "Seconds") -> "Seconds":
        return Seconds(self.clock - start.clock, self.cpu - start.cpu)

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.clock + other.clock, self.cpu + other.cpu)

    def over(self, other: "Seconds") -> dict[str, float]:
        """Ratios to another."""
        return {
            "ratio": round(self.clock / other.clock, 3),
            "cpu_ratio": round(self.cpu / other.cpu, 3),
        }


def now() -> Seconds:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return Seconds(time.perf_counter(), time.process_time())


class Watch:
    """What vision costs: passes of the tower, and seconds by phase, of all networks there are."""

    def __init__(self) -> None:
        self.passes, self.phase, self.without_gradient = 0, "", "rollout"
        self.start = Seconds()
        self.spent: dict[str, Seconds] = defaultdict(Seconds)

    @contextmanager
    def on(self, policy: Policy) -> Iterator[None]:
        """Watch every forward, and backward passes to what is trained of a policy's vision."""
        weights = [p for p in vision_of(policy).parameters() if p.requires_grad]
        hooks = [
            global_hooks.register_module_forward_pre_hook(self._enter),
            global_hooks.register_module_forward_hook(self._leave),
            *(p.register_post_accumulate_grad_hook(lambda _: self._add()) for p in weights),
        ]
        yield
        for hook in hooks:
            hook.remove()

    def _enter(self, module: Any, _: Any) -> None:
        self.passes += isinstance(module, SiglipEncoder)
        if isinstance(module, Vision):
            self.phase = "update" if torch.is_grad_enabled() else self.without_gradient
            self.start = now()

    def _leave(self, module: Any, _: Any, seen: Any) -> None:
        if isinstance(module, Vision):
            self._add()
            if seen.rows.requires_grad:
                seen.rows.register_hook(self._turn)

    def _turn(self, _: Tensor) -> None:
        """The gradient has come back as far as the embeddings."""
        self.start = now()

    def _add(self) -> None:
        self.spent[self.phase] += now().since(self.start)
        self.start = now()


def vision_of(policy: Policy) -> Vision:
    """Tower and projector."""
    assert isinstance(policy.network.vision, Vision)
    return policy.network.vision


def configured(s: Setting, folder: Path) -> RLConfig:
    """A run of one step on one question, with its checkpoint and image written to a folder."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(TOKENIZER)
    tower = {
        "hidden_size": s.tower_width,
        "num_hidden_layers": s.tower_layers + 1,  # the last is unread
        "num_attention_heads": s.tower_heads,
        "intermediate_size": s.tower_mlp,
        "image_size": s.tile,
        "patch_size": s.patch,
    }
    config = {
        "model_type": "llava_llada",
        "hidden_size": s.width,
        "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads,
        "intermediate_size": s.mlp,
        "rope_theta": 500000.0,
        "vocab_size": len(tokenizer),
        "vision": tower,
    }
    save_model(new_model(config, generator("bench", "weights")), folder)
    tokenizer.save_pretrained(folder)
    picture = torch.randint(0, 256, (*reversed(s.image), 3), generator=generator("bench", "image"))
    Image.fromarray(picture.byte().numpy()).save(folder / "image.png")
    row = {"image": "image.png", "prompt": "how many red rings are there?"}
    (folder / "prompts.jsonl").write_text(json.dumps(row) + "\n")
    task = TaskConfig(
        task="image_to_text",
        prompts=str(folder / "prompts.jsonl"),
        num_prompts=1,
        num_generations=s.group,
        max_completion_length=s.length,
        sampler=SamplerConfig(steps=1),
        rewards=[{"name": "alternating", "reward": alternating}],
        algorithm={"name": "mask_grpo_text", "num_iterations": 1, "kl_to": "reference"},
    )
    return RLConfig(
        model=ModelConfig(path=str(folder), vq=None),
        tasks={"questions": task},
        max_steps=1,
        per_device_train_batch_size=s.micro_batch,
        bf16=False,
    )


def alternating(samples: list[Sample]) -> list[float]:
    """Rewards that give every rollout an advantage."""
    return [float(n % 2) for n in range(len(samples))]


@torch.no_grad()
def pass_of_tower(policy: Policy, tiles: Tensor) -> Seconds:
    """One pass of the tower, without projector, over the tiles of one image."""
    start = now()
    vision_of(policy)._states(tiles, recompute=False)
    return now().since(start)


def embeddings(batch: RolloutBatch, row: int) -> Tensor:
    """[rows, D] what stands for the image in the prompt of a rollout."""
    features = batch.rollout.canvas.features
    assert features is not None and features.rows is not None
    places = features.at[row]
    return features.rows[places[places >= 0]]


def naive(policy: Policy, batch: RolloutBatch, watch: Watch) -> float:
    """Look at the image for each rollout by itself; how far its embeddings are from the group's."""
    watch.without_gradient, differences = "naive", [0.0]
    for row, prompt in enumerate(batch.prompts):
        features = policy.canvas([prompt]).features
        assert features is not None and features.rows is not None
        differences.append(float((features.rows - embeddings(batch, row)).abs().max()))
    return max(differences)


def measure(s: Setting) -> dict[str, Any]:
    """Everything the line says beside the circumstances."""
    with TemporaryDirectory() as directory:
        config = configured(s, Path(directory))
        accelerator = Accelerator(cpu=s.device == "cpu")
        policy = load_policy(**policy_options(config.model), device=accelerator.device)
        trainer, task = (
            Trainer(config, policy, accelerator),
            Task("questions", config.tasks["questions"]),
        )
        [image] = task.prompts[0].images or ()
        tiles = vision_of(policy).tiling.cut(image).to(policy.device)
        pass_of_tower(policy, tiles[:1])  # a warm-up
        shared, alone = Watch(), Watch()
        before = pass_of_tower(policy, tiles)
        with shared.on(policy):
            batch = score_groups(sample_groups(task, policy, 0, config.seed, 0, 1))
        with alone.on(policy):
            difference = naive(policy, batch, alone)
        shared.without_gradient = "score"
        with shared.on(policy):
            trainer.update({"questions": (task, batch)})
        after = pass_of_tower(policy, tiles)
    tower = Seconds((before.clock + after.clock) / 2, (before.cpu + after.cpu) / 2)
    everything = sum(shared.spent.values(), Seconds())
    return {
        "embeddings": len(embeddings(batch, 0)),
        "tiles": len(tiles),
        "tower_s": round(tower.clock, 3),
        **everything.over(tower),
        "phases": {phase: spent.over(tower) for phase, spent in shared.spent.items()},
        "tower_passes": shared.passes,
        "naive": {**alone.spent["naive"].over(tower), "tower_passes": alone.passes},
        "largest_difference": difference,
    }


if __name__ == "__main__":
    around = {"bench": "feature_sharing", **circumstances(), "config": asdict(SETTING)}
    report({**around, **measure(SETTING)})
