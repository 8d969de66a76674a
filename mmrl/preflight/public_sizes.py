"""Sizes of public checkpoints, for estimates of runs whose checkpoint is not on this machine."""

from collections.abc import Mapping
from typing import Any

from mmrl.config import check
from mmrl.models.families import find_family
from mmrl.pretrained.known import PUBLIC_SIZES, known_config
from mmrl.rl_config import RLConfig

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


def sizes(config: RLConfig) -> tuple[str | None, Mapping[str, Any]]:
    """`find_sizes` of the policy of a run."""
    return find_sizes(config.model.path)


def find_sizes(path_or_hub_id: str) -> tuple[str | None, Mapping[str, Any]]:
    """None and `config.json` of a checkpoint; where that is not on this machine, name and sizes of
    the published one that it is.

    Raises:
        ConfigError: it is neither here nor published.
    """
    raw = known_config(path_or_hub_id)
    if raw is not None and find_family(raw) is not None:
        return None, raw
    starts = [start for start in PUBLIC_SIZES if path_or_hub_id.startswith(start)]
    check(bool(starts), "model.path", path_or_hub_id, "a checkpoint whose sizes are known")
    name = PUBLIC_SIZES[starts[0]]
    return name, SIZES[name]
