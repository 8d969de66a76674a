"""The disk that a run of reinforcement learning needs."""

from collections.abc import Sequence

from mmrl.models.families import get_family
from mmrl.preflight.disk import VQ_BYTES, Disk, list_written
from mmrl.preflight.memory import estimate
from mmrl.preflight.policy_sizes import count_weights
from mmrl.preflight.public_sizes import BYTES, sizes
from mmrl.pretrained.known import own_vq
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task


def plan_disk(config: RLConfig, tasks: Sequence[Task]) -> Disk:
    """The disk of a run; of an adapter, checkpoints hold the adapter alone."""
    model, raw = config.model, sizes(config)[1]
    alone = estimate(config, raw, tasks)
    parts, count = alone.host | alone.device, count_weights(raw)
    whole, lora = count * BYTES[config.save_dtype or model.dtype], model.lora is not None
    trained = parts["gradients"]
    state = trained + parts["optimiser"] + parts["value"] + parts.get("average", 0)
    # weights are published in bfloat16, those of a pipeline in float32
    downloads: dict[str, float] = {model.path: count * (4 if "_class_name" in raw else 2)}
    vq = own_vq(model)
    if vq is not None and any(layout.needs_vq for layout in get_family(raw).LAYOUTS.values()):
        downloads.setdefault(vq, VQ_BYTES)
    merged = whole if config.merge_adapter else None
    written = list_written(config, trained if lora else whole, state, merged)
    return Disk(config.output_dir, written, downloads)
