"""Device memory of an evaluation, estimated from sizes alone."""

from collections.abc import Mapping
from typing import Any

import torch

from mmrl.evaluation.eval_config import EvalConfig
from mmrl.models.families import get_family
from mmrl.models.task_names import EDITS, writes_images
from mmrl.preflight.logits_memory import count_logits
from mmrl.preflight.policy_sizes import count_weights
from mmrl.preflight.public_sizes import BYTES, MMADA_8B
from mmrl.pretrained.known import image_tokens


def estimate_memory(config: EvalConfig, raw: Mapping[str, Any]) -> dict[str, float]:
    """Bytes per device of `weights`, `logits` of a step, and keys and values in a `cache`, of the
    row of the table that takes most.

    Args:
        config: of the evaluation.
        raw: `config.json` of the policy.
    """
    with torch.device("meta"):
        network = get_family(raw).network(raw)
    size = BYTES[config.model.dtype]
    images = writes_images(config.task)
    columns = raw.get("codebook_size", MMADA_8B["codebook_size"]) if images else network.vocab_size
    logits, caches = [], []
    for sampler, length in config.rows().values():
        positions = length or image_tokens(config.model, raw)
        logits.append(count_logits(network, sampler, config.batch_size, positions, columns))
        source = positions if config.task in EDITS else 0
        row = network.count_cached(config.model.max_prompt_length + source + positions)
        caches.append(0 if sampler.cache == "none" else config.batch_size * row * size)
    return {
        "weights": count_weights(raw) * size,
        "logits": max(logits),
        **({"cache": max(caches)} if any(caches) else {}),
    }
