"""Device memory of a run, estimated from sizes alone.

The estimate counts the tensors that grow with the model or the batch. The image tokenizer, rewards
on the same device and the reserve of the allocator come on top.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from mmrl.algorithms.forwards import passes_per_rollout
from mmrl.model_config import ModelConfig, image_tokens, known_config
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task, completion_length
from mmrl.runtime.computation import choose
from mmrl.samplers import SamplerConfig
from mmrl.training.trainable import trained_in_full
from models.families import find_family, get_family
from models.network.core import MaskedTokenModel
from models.network.network import Network
from models.quantization import list_quantized
from models.task_names import EDITS, writes_images

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}

_WIDTHS = {"d_model": 4096, "n_layers": 32, "n_heads": 32, "mlp_hidden_size": 12288}
_LLAMA_WIDTHS = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
_IMAGES = {"num_vq_tokens": 1024, "codebook_size": 8192}

LLADA_8B = _WIDTHS | {"model_type": "llada", "rope_theta": 5e5, "embedding_size": 126464}
"""Sizes of GSAI-ML/LLaDA-8B-Instruct, for estimates of runs without images."""
MMADA_8B = _WIDTHS | _IMAGES | {"model_type": "mmada", "rope_theta": 5e5, "embedding_size": 134656}
"""Sizes of Gen-Verse/MMaDA-8B, for estimates without the checkpoint."""
LLADA_V_8B = _LLAMA_WIDTHS | {
    "model_type": "llava_llada",
    "intermediate_size": 12288,
    "rope_theta": 5e5,
    "vocab_size": 126464,
}
"""Sizes of GSAI-ML/LLaDA-V, whose vision tower is the default of its family."""
DREAM_7B = {
    "model_type": "Dream",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "rope_theta": 1e6,
    "vocab_size": 152064,
}
"""Sizes of Dream-org/Dream-v0-Instruct-7B and apple/DiffuCoder-7B."""
SDAR_8B = {
    "model_type": "sdar",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "rope_theta": 1e6,
    "vocab_size": 151936,
}
"""Sizes of JetLM/SDAR-8B-Chat and Gen-Verse/TraDo-8B."""
SDAR_4B = SDAR_8B | {"hidden_size": 2560, "intermediate_size": 9728}
"""Sizes of JetLM/SDAR-4B-Chat and Gen-Verse/TraDo-4B."""
LUMINA_8B = _WIDTHS | {
    "model_type": "llada",
    "architectures": ["LLaDAForMultiModalGeneration"],
    "rope_theta": 5e5,
    "embedding_size": 134548,
    "codebook_size": 8192,
}
"""Sizes of Alpha-VLLM/Lumina-DiMOO."""
AMUSED_256 = {
    "_class_name": "AmusedPipeline",
    "vocab_size": 8256,
    "codebook_size": 8192,
    "sample_size": 16,
    "text_encoder": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
        "projection_dim": 768,
    },
    "vqvae": {"block_out_channels": [128, 256, 256, 512, 768]},
}
"""Sizes of amused/amused-256 that are not the defaults of its classes."""
SIZES: dict[str, dict[str, Any]] = {
    "LLaDA-8B": LLADA_8B,
    "LLaDA-V-8B": LLADA_V_8B,
    "MMaDA-8B": MMADA_8B,
    "Dream-7B": DREAM_7B,
    "SDAR-4B": SDAR_4B,
    "SDAR-8B": SDAR_8B,
    "Lumina-DiMOO-8B": LUMINA_8B,
    "aMUSEd-256": AMUSED_256,
    "aMUSEd-512": AMUSED_256 | {"sample_size": 32, "downsample": True, "upsample": True},
}
HUB_IDS = {
    "Alpha-VLLM/Lumina-DiMOO": "Lumina-DiMOO-8B",
    "Dream-org/": "Dream-7B",
    "apple/DiffuCoder": "Dream-7B",
    "JetLM/SDAR-4B": "SDAR-4B",
    "Gen-Verse/TraDo-4B": "SDAR-4B",
    "JetLM/SDAR": "SDAR-8B",
    "Gen-Verse/TraDo": "SDAR-8B",
    "amused/amused-256": "aMUSEd-256",
    "amused/amused-512": "aMUSEd-512",
}
"""Beginnings of hub ids that say whose sizes a checkpoint has; of others the tasks decide."""


def sizes(config: RLConfig) -> tuple[str | None, Mapping[str, Any]]:
    """`find_sizes` of the policy of a run."""
    return find_sizes(config.model, {task.task for task in config.tasks.values()})


def find_sizes(model: ModelConfig, wanted: Collection[str]) -> tuple[str | None, Mapping[str, Any]]:
    """None and `config.json` of a checkpoint; where that is not on this machine, name and sizes of
    a public model that can do the wanted tasks, without an image tokenizer the smallest."""
    raw = known_config(model.path)
    if raw is not None and find_family(raw) is not None:
        return None, raw
    for start, name in HUB_IDS.items():
        if model.path.startswith(start):
            return name, SIZES[name]
    large = [name for name in SIZES if name not in HUB_IDS.values()]
    order = large if model.vq is None else list(reversed(large))
    able = [name for name in order if set(wanted) <= get_family(SIZES[name]).LAYOUTS.keys()]
    return able[0], SIZES[able[0]]


def estimate(
    config: RLConfig, raw: Mapping[str, Any], tasks: Sequence[Task], world_size: int = 1
) -> dict[str, float]:
    """Bytes per device, by what holds them.

    Args:
        config: of the run.
        raw: `config.json` of the policy.
        tasks: of the run.
        world_size: number of processes; several keep a second copy of the gradients to reduce.

    Returns:
        `weights`, `adapter`, `gradients`, `optimiser`, `reference`, `average` where there is one,
        `value` (a value model with its gradients and moments), `update` (of a micro-batch) and
        `sampling` (of a batch of rollouts); the last two are never held at once.
    """
    with torch.device("meta"):
        network = get_family(raw).network(raw)
    size, lora = BYTES[config.model.dtype], config.model.lora
    full = sum(p.numel() for p in trained_in_full(network, config.model).values()) * size
    # peft holds adapters of half-precision weights in float32
    adapter = 0 if lora is None else adapter_size(network, lora.r, lora.target_modules)
    trained = full + adapter * 4
    micro = [_update(config, network, raw, task) for task in tasks]
    reduced, moments = 1 if world_size == 1 else 2, {"adamw": 2, "sgd": 1}[config.optimizer]
    return {
        "weights": count_weights(raw) * size - _saved(config, network),
        "adapter": adapter * 4,
        "gradients": trained * reduced,
        "optimiser": trained * moments,
        "reference": (full + adapter * 4 * config.sync_ref_model) * config.needs_reference,
        **({} if config.ema_decay is None else {"average": (full / size + adapter) * 4}),
        "value": _value(config, network, adapter) * (1 + reduced + moments),
        "update": max(micro) * config.micro_batch_size(world_size),
        "sampling": max(_sampling(config, network, raw, task, world_size) for task in tasks),
    }


def count_weights(raw: Mapping[str, Any]) -> int:
    """Parameters of the network of a config.json, and of what is loaded beside it."""
    with torch.device("meta"):
        network = get_family(raw).network(raw)
    return sum(p.numel() for p in network.parameters()) + network.count_parts()


def _saved(config: RLConfig, network: Network) -> float:
    """Bytes that weights in 4 bits take less."""
    if config.model.quantization_config is None:
        return 0
    state, names = network.state_dict(), list_quantized(network)
    bits = 8 * BYTES[config.model.dtype] - config.model.quantization_config.bits
    return sum(state[name].numel() for name in names) * bits / 8


def total(parts: Mapping[str, float]) -> float:
    """Bytes at the peak: everything that stays, and the larger of update and sampling."""
    stays = sum(size for name, size in parts.items() if name not in ("update", "sampling"))
    return stays + max(parts["update"], parts["sampling"])


def _value(config: RLConfig, network: Network, adapter: int) -> float:
    """Bytes of the trained part of a value model: its head, and its copy of the policy, which
    shares with the policy what is not trained."""
    if config.value is None:
        return 0
    size = BYTES[config.model.dtype]
    head = network.width * (size if config.model.lora is None else 4)
    if config.value.backbone != "copy":
        return head
    full = trained_in_full(network, config.model).items()
    return (
        head
        + sum(p.numel() for n, p in full if not n.startswith(("head.", "vision."))) * size
        + adapter * 4
    )


def _update(config: RLConfig, network: Network, raw: Mapping[str, Any], task: Task) -> float:
    """Bytes of activations per rollout of a micro-batch."""
    model, algorithm = config.model, task.algorithm
    response, columns = _response_shape(config, network, raw, task)
    logits = 4.0 * response * columns
    size = 2 if choose(config, dtype=model.dtype).bf16 else BYTES[model.dtype]
    images = _image_positions(config, raw, task, network.vision)
    block_size = find_block_size(network)
    length = model.max_prompt_length + images + response + 3
    length += 0 if block_size is None else response  # the copy with hidden tokens
    values, working = network.count_activations(length, model.gradient_checkpointing)
    kept, at_work = values * size + logits, working * size + 3 * logits
    passes = passes_per_rollout(algorithm, task.config.sampler.steps, response, block_size)
    held = 1 if algorithm.pass_by_pass else min(config.passes_at_once, passes)
    return algorithm.guidance.sides * (held * kept + at_work)


def find_block_size(network: Network) -> int | None:
    """Positions of a block where attention is causal between blocks; None where it is not."""
    return network.core.block_size if isinstance(network, MaskedTokenModel) else None


def _image_positions(config: RLConfig, raw: Mapping[str, Any], task: Task, vision: Any) -> int:
    """Positions of images in the prompt that has the most."""
    layout = get_family(raw).LAYOUTS.get(task.config.task)
    name = task.config.task
    if layout is None or (writes_images(name) and name not in EDITS):
        return 0
    if layout.needs_vq:
        return image_tokens(config.model, raw, written=name in EDITS)
    sizes = (prompt.image_sizes for prompt in task.prompts)
    return max((sum(vision.tiling.rows(*size) for size in each) for each in sizes), default=0)


def _sampling(
    config: RLConfig, network: Network, raw: Mapping[str, Any], task: Task, world_size: int
) -> float:
    """Bytes of logits, and of what is computed from them, in a step of the sampler."""
    sampler = task.config.sampler
    response, columns = _response_shape(config, network, raw, task)
    rows = min(task.config.rollout_batch_size, task.rollouts_per_step // world_size)
    return count_logits(sampler, rows, response, columns)


def count_logits(sampler: SamplerConfig, rows: int, response: int, columns: int) -> float:
    """Bytes of the logits in a step of a sampler, and of what is computed from them.

    Args:
        sampler: its settings.
        rows: sampled at once, without unconditional twins.
        response: positions of each.
        columns: of its vocabulary.
    """
    rows *= sampler.guidance.sides
    return rows * 4 * 4.0 * min(response, sampler.block_size or response) * columns


def _response_shape(
    config: RLConfig, network: Network, raw: Mapping[str, Any], task: Task
) -> tuple[int, int]:
    """Response positions of a task and columns of their vocabulary, all of it for a text."""
    images = writes_images(task.config.task)
    columns = raw.get("codebook_size", MMADA_8B["codebook_size"]) if images else network.vocab_size
    return completion_length(task.config, config.model, raw), columns


def adapter_size(network: Network, rank: int, roles: list[str]) -> int:
    """Parameters of a LoRA adapter of a rank on the layers of some roles."""
    ends = tuple(end for role in roles for end in network.layer_roles[role])
    layers = [module for name, module in network.named_modules() if name.endswith(ends)]
    return sum(rank * (m.in_features + m.out_features) for m in layers)  # type: ignore[operator]
