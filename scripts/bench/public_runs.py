"""RL runs of the 8B models, and the size of every forward pass of a rollout, for arithmetic."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch

from mmrl.models.families import get_family
from mmrl.models.network.core import MaskedTokenModel
from mmrl.models.network.core_config import CoreConfig
from mmrl.models.network.flops import Adapter, PassSize, count_forward, row_sizes
from mmrl.planning.known_sizes import BYTES, SIZES, count_weights, outline_policy
from mmrl.pretrained.model_config import LoraConfig, ModelConfig
from mmrl.rl_config import RLConfig
from mmrl.rollouts.task_config import TaskConfig
from mmrl.rollouts.tasks import Task, completion_length
from mmrl.samplers import SamplerConfig
from mmrl.samplers.schedule import alpha

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, eq=False)
class Case:
    """A run of a public model.

    Attributes:
        title: of its tables.
        raw: `config.json` of the policy.
        config: of the run.
        prompt: tokens before the response, as the network sees them.
    """

    title: str
    raw: dict[str, Any]
    config: RLConfig
    prompt: int

    @cached_property
    def task(self) -> Task:
        """Its task."""
        [(name, options)] = self.config.tasks.items()
        return Task(name, options)

    @property
    def core(self) -> CoreConfig:
        """Sizes of the network."""
        return read_core(self.raw["model_type"])

    @property
    def adapter(self) -> Adapter | None:
        """Its adapter, None where all weights are trained."""
        lora = self.config.model.lora
        return None if lora is None else Adapter(lora.r, lora.target_modules)

    @property
    def length(self) -> int:
        """Response positions."""
        return completion_length(self.task.config, self.config.model, self.raw)

    @cached_property
    def weights(self) -> float:
        """Bytes of all weights, as they are stored and read."""
        return float(BYTES[self.config.model.dtype] * count_weights(outline_policy(self.raw)))

    @property
    def gathered(self) -> float:
        """Bytes of all weights as FSDP2 gathers them: float32 of blocks in bfloat16."""
        size, core = BYTES[self.config.model.dtype], self.core
        outer = size * core.vocab_size * core.hidden_size * (1 if core.tied_head else 2)
        return outer + (self.weights - outer) * (0.5 if size == 4 else 1.0)

    @cached_property
    def trained(self) -> float:
        """Bytes of the gradients; those of adapters are in float32."""
        if self.adapter is None:
            return self.weights
        size = row_sizes(1, 1, 1, 0)
        of_adapter = count_forward(self.core, size, self.adapter) - count_forward(self.core, size)
        return 4.0 * of_adapter / 2

    @cached_property
    def passes(self) -> list[PassSize]:
        """Forward passes of a rollout, all sides of guidance in one."""
        sampler, whole = self.task.config.sampler, self.prompt + self.length
        if sampler.block_size is None:
            return [
                row_sizes(sampler.guidance.sides, whole, wanted, self.raw["codebook_size"])
                for wanted in image_writes(sampler.steps, self.length)
            ]
        return list(text_passes(sampler, self.prompt, self.length, self.core.vocab_size))


@lru_cache
def read_core(name: str) -> CoreConfig:
    """`CoreConfig` of a public model."""
    raw = {"llada": SIZES["LLaDA-8B"], "mmada": SIZES["MMaDA-8B"]}[name]
    with torch.device("meta"):
        network = get_family(raw).network(raw)
    assert isinstance(network, MaskedTokenModel)
    return network.core


def image_writes(steps: int, positions: int) -> list[int]:
    """Positions that each step of `emerge` writes, on average."""
    left = [float(alpha("cosine", step, steps)) for step in range(steps)] + [0.0]
    return [round(positions * (a - b)) for a, b in zip(left, left[1:], strict=False)]


def text_passes(
    sampler: SamplerConfig, prompt: int, length: int, columns: int
) -> Iterator[PassSize]:
    """Passes of a text that is written in blocks, with the sampler's cache."""
    size, whole = sampler.block_size or length, prompt + length
    each = sampler.steps * size // length
    for start in range(prompt, whole, size):
        for step in range(each):
            wanted = size - step * size // each
            if step == 0 or sampler.cache == "none":
                yield row_sizes(1, whole, wanted, columns)
                continue
            stop = min(whole, start + size + (sampler.window or 0))
            seen = whole if sampler.cache == "dual" else stop
            computed = stop - start
            yield PassSize(computed, computed * seen, wanted, wanted * seen, columns)


def build_cases(rank: int, micro_batch: int, **sizes: int) -> list[Case]:
    """LLaDA-8B on texts and MMaDA-8B on images, with an adapter and with all weights trained.

    Args:
        rank: of the adapter.
        micro_batch: rollouts of one.
        **sizes: `num_prompts`, `num_generations` and `rollout_batch_size` of the tasks.
    """
    common: dict[str, Any] = {
        **sizes,
        "rewards": [{"name": "format", "mode": "xmlcount"}],  # is never built
    }
    text = TaskConfig(
        task="text",
        prompts=str(ROOT / "datasets/text/countdown_train.jsonl"),
        max_completion_length=256,
        sampler=SamplerConfig(
            name="static", steps=128, block_size=32, cache="prefix", window=32, temperature=0.9
        ),
        algorithm={"name": "diffu_grpo", "num_iterations": 4},
        **common,
    )
    images = TaskConfig(
        prompts=str(ROOT / "datasets/geneval/train.jsonl"),
        sampler=SamplerConfig(steps=12, cfg_scale=3.0),
        algorithm={"name": "mask_grpo", "num_iterations": 4, "cfg_scale": 0.0},
        **common,
    )
    llada = {"path": "GSAI-ML/LLaDA-8B-Instruct", "vq": None, "max_prompt_length": 200}
    mmada = {"path": "Gen-Verse/MMaDA-8B-MixCoT", "image_size": 512, "mask_policy": "ignore"}
    found = []
    for title, raw, model, task, prompt in (
        ("LLaDA-8B, text", SIZES["LLaDA-8B"], llada, text, 200),
        ("MMaDA-8B, images", SIZES["MMaDA-8B"], mmada, images, 259),
    ):
        for lora in (LoraConfig(r=rank), None):
            how = f"LoRA of rank {rank}" if lora else "all weights trained"
            dtype = "bfloat16" if lora else "float32"
            settings = ModelConfig(dtype=dtype, lora=lora, gradient_checkpointing=True, **model)
            config = RLConfig(
                model=settings,
                tasks={"task": task},
                bf16=True,
                per_device_train_batch_size=micro_batch,
            )
            found.append(Case(f"{title}, {how}", raw, config, prompt))
    return found
