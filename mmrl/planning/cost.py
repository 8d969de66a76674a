"""Seconds of a step, disk and downloads of a run, by arithmetic.

A forward pass over T tokens of a network of P parameters takes 2 P T operations; a backward pass
as many, twice as many where the weights themselves are trained; and again a forward where
activations are recomputed. Large products reach the share `EFFICIENCY` of a device's peak. Samplers
that append tokens, or write a block after the other, compute what is new in a step, and there it
takes longer to read the weights from memory; approximate caches are not counted. Attention,
decoding and rewards come on top.
"""

from collections.abc import Iterator

from mmrl.algorithms.forwards import Forwards
from mmrl.generation.kinds import SAMPLER_KINDS
from mmrl.models.network.network import Network
from mmrl.planning.memory import count_row, count_value
from mmrl.planning.network_memory import NetworkBytes
from mmrl.planning.plan_page import format_size
from mmrl.pretrained.known import BYTES, Known, count_weights
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task
from mmrl.runtime.placement import Placement
from mmrl.samplers import count_steps

EFFICIENCY = 0.4
"""Of the peak, in products of the usual sizes."""
PUBLISHED = 2
"""Bytes of a parameter of a published checkpoint."""
NEW_TOKENS = {"causal": 1}
"""Kind of generation -> tokens of a row that a step of a sampler computes; others all."""


def describe_seconds(
    config: RLConfig, network: Network, task: Task, known: Known, cost: Forwards, where: Placement
) -> Iterator[str]:
    """A line on the time that a task takes of a step, with the forwards of its update, which has
    its share of the hours where policies take turns; none where the device's peak is not known."""
    named, settings, sampler = where.named, task.config, task.config.sampler
    if named is None or named.peak is None:
        return
    speed, width = EFFICIENCY * named.peak[0] * 1e12, named.peak[1] * 1e12
    number = sum(p.numel() for p in network.parameters())
    written, _, length, trained = count_row(config, network, known, task)
    rows = task.rollouts_per_step / where.world_size
    at_once = min(rows, settings.rollouts_at_once)
    new = network.block_size or NEW_TOKENS.get(SAMPLER_KINDS[sampler.name], length)
    computed = 2 * number * new * at_once * sampler.guidance.branches / speed
    each = max(computed, 2 * number / width) * rows / at_once
    rollout = count_steps(sampler, written) * each
    backward = (2 if config.model.lora is None else 1) + config.model.gradient_checkpointing
    passes = (cost.total + backward * cost.backward) * task.algorithm.num_iterations
    update = 0 if config.frozen else 2 * number * trained * rows * passes / speed
    hours = config.max_steps * (rollout + update / config.turns) / 3600
    peak = f"arithmetic at {EFFICIENCY:.0%} of {named.name}'s peak, without rewards"
    updates = "" if config.frozen else f", {update:.0f} s of update"
    yield f"{rollout:.0f} s of rollouts{updates} a step, {hours:.0f} hours in all: {peak}"


def count_kept(config: RLConfig) -> int:
    """Checkpoints that a run leaves."""
    written = config.max_steps // config.save_steps if config.save_steps else 0
    return min(written, config.save_total_limit or written)


def count_disk(config: RLConfig, network: Network, sizes: NetworkBytes) -> float:
    """Bytes of a policy's checkpoints, with the state of its trainer, and of its final model; other
    parts of a pipeline are copied to where its network is written."""
    stored = BYTES[config.save_dtype or config.model.dtype] / BYTES[config.model.dtype]
    whole = sizes.weights * stored + PUBLISHED * sum(network.count_parts().values())
    model = sizes.adapter + (sizes.trained - sizes.adapter) * stored if sizes.adapter else whole
    state = sizes.trained * (1 + (config.sync_ref_model and config.needs_reference)) + sizes.moments
    state += sizes.average * (config.old_policy is not None)
    state += 0.0 if config.value is None else count_value(config, network, sizes)[1]
    return count_kept(config) * (model + state) + (whole if config.merge_adapter else model)


def describe_download(network: Network) -> str:
    """What a checkpoint that is not here weighs, with the parts that are loaded beside it."""
    return f"{format_size(PUBLISHED * count_weights(network))} to download"
