"""Device memory and disk of an evaluation, estimated from sizes alone."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from mmrl.evaluation.eval_config import EvalConfig
from mmrl.models.families import get_family
from mmrl.models.task_names import EDITS, writes_images
from mmrl.preflight.disk import VQ_BYTES, format_size
from mmrl.preflight.logits_memory import count_logits
from mmrl.preflight.policy_sizes import count_weights
from mmrl.preflight.public_sizes import BYTES, MMADA_8B, find_sizes
from mmrl.pretrained.known import image_tokens, known_config, own_vq


def describe_needs(config: EvalConfig) -> Iterator[str]:
    """Lines about memory per device and disk; of several checkpoints the largest counts."""
    found = [
        (path, *find_sizes(replace(config.model, path=path), [config.task]))
        for path in (config.model.path, *config.compare_to)
    ]
    for path, name, _ in found:
        if name is not None:
            yield f"{path} is not on this machine; sizes are those of {name}"
    needs = [estimate_memory(config, raw) for _, _, raw in found]
    parts = max(needs, key=lambda parts: sum(parts.values()))
    yield "memory per device, estimated; image tokenizer and rewards on top"
    for key, size in [*parts.items(), ("total", sum(parts.values()))]:
        yield f"  {key:<12}{format_size(size)}"
    downloads: dict[str, float]
    downloads = {path: 2 * count_weights(raw) for path, name, raw in found if name is not None}
    for path, size in _image_tokenizer(config).items():
        downloads.setdefault(path, size)
    yield "disk, estimated; rewards and data on top"
    for path, size in downloads.items():
        yield f"  download    {format_size(size)}  {path}"
    place = Path(config.output_dir).expanduser().absolute()
    here = next(folder for folder in (place, *place.parents) if folder.is_dir())
    free = format_size(shutil.disk_usage(here).free).strip()
    yield f"  total       {format_size(sum(downloads.values()))}  of {free} free in {here}"


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


def _image_tokenizer(config: EvalConfig) -> dict[str, float]:
    vq = own_vq(config.model)
    here = vq is None or Path(vq).expanduser().is_dir() or known_config(vq) is not None
    return {} if vq is None or here else {vq: VQ_BYTES}
