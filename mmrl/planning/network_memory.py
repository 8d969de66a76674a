"""Memory of a process, from sizes alone: one formula for every network, work and launch.

    rollout   held + gathered weights + cache + a step's activations or logits
    update    held + gradients + the larger of: the optimiser's step; and gathered weights,
              activations and logits of a micro-batch

Held is also the copy of the state that a thread writes as a checkpoint.

What is there for a moment counts as if it stayed. Text encoders that are freed before the first
step have the phase `encoding` alone; what is offloaded counts in the phase that needs it. An
image tokenizer, rewards that are not on this machine and the reserve of the allocator come on top.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

from mmrl.generation.kinds import SAMPLERS
from mmrl.models.network.network import Network, find_networks
from mmrl.models.source import LORA
from mmrl.run_config import RunConfig
from mmrl.runtime.computation import Computation
from mmrl.runtime.logits_budget import rows_at_once
from mmrl.runtime.placement import Placement
from mmrl.samplers import SamplerConfig

BUCKET, LIVE = 2e9, 4e9
"""Bytes in float32 of DeepSpeed's `reduce_bucket_size` and `stage3_max_live_parameters`."""
PHASES = ENCODING, ROLLOUT, UPDATE = "encoding", "rollout", "update"
"""Of a run."""
PRESENT = {"weights": PHASES, "adapter": PHASES, "sampling": (ROLLOUT,)}
PRESENT |= dict.fromkeys(("gradients", "update"), (UPDATE,))
"""The phases in which a part is there; of others, rollout and update."""
WORKING = ("sampling", "update")
"""Parts of what is at work."""


@dataclass
class Needs:
    """Bytes of a process by what holds them: on its device, where one on a CPU has everything,
    and in the memory of its host; `present` has the phases of each, see `PRESENT`."""

    device: dict[str, float] = field(default_factory=dict)
    host: dict[str, float] = field(default_factory=dict)
    present: dict[str, tuple[str, ...]] = field(default_factory=lambda: {**PRESENT})

    def add(self, name: str, size: float, in_host: bool = False) -> None:
        """Add bytes to a part of the device, or of the host where they are offloaded."""
        place = self.host if in_host else self.device
        place[name] = place.get(name, 0.0) + size

    def add_for(self, phase: str | None, name: str, size: float) -> None:
        """Add a part that one phase alone, or None, has; that of rollouts waits on the host."""
        self.add(name, size)
        if phase is not None:
            self.present[name] = (phase,)
        if phase == ROLLOUT:
            self.add(name, size, in_host=True)

    def phases(self) -> dict[str, float]:
        """Bytes of the device in each phase that the run has."""
        alone = {each for name in self.device if len(each := self.present_in(name)) == 1}
        return {
            phase: sum(size for name, size in self.device.items() if phase in self.present_in(name))
            for phase in PHASES
            if (phase,) in alone
        }

    def present_in(self, name: str) -> tuple[str, ...]:
        """The phases in which a part is on the device."""
        return self.present.get(name, (ROLLOUT, UPDATE))

    def peak(self) -> tuple[str, float]:
        """The phase that needs most of the device, and its bytes."""
        return max(self.phases().items(), key=lambda phase: phase[1])


def combine_needs(policies: Mapping[str, Needs], offload: bool) -> Needs:
    """Those of all policies of a run, of which one works at a time; with `offload` the others are
    away while one is updated."""
    if len(policies) == 1:
        return next(iter(policies.values()))
    whole = Needs()
    largest = max(policies, key=lambda name: policies[name].phases().get(UPDATE, 0.0))
    for name, own in policies.items():
        for part, size in own.device.items():
            if part in WORKING:
                whole.device[part] = max(size, whole.device.get(part, 0.0))
                continue
            whole.add(f"{name} {part}", size)
            away = {UPDATE} if offload and name != largest else set()
            times = tuple(each for each in own.present_in(part) if each not in away)
            whole.present[f"{name} {part}"] = times
        for part, size in own.host.items():
            whole.add(f"{name} {part}", size, in_host=True)
    return whole


@dataclass
class NetworkBytes:
    """Bytes of a network: its weights without an adapter, an adapter beside them in float32, what
    is `trained`, as its gradients, the moments of the optimiser and an `average` in float32; of the
    weights those in float32 that are trained (`wide`), and that are not; and a `unit`: what is
    outside the blocks, and a block."""

    weights: float = 0.0
    adapter: float = 0.0
    trained: float = 0.0
    moments: float = 0.0
    average: float = 0.0
    wide: float = 0.0
    wide_frozen: float = 0.0
    unit: float = 0.0

    @property
    def frozen(self) -> float:
        """Of the weights that are not trained."""
        return self.weights + self.adapter - self.trained

    def cast(self, recompute: bool) -> float:
        """Of the bfloat16 copies that autocast keeps: of what is trained until the forward pass
        ends, of the rest for a backward pass that computes no block again."""
        return (self.wide + (0.0 if recompute else self.wide_frozen)) / 2


def count_network(
    network: nn.Module, optimizer: str, frozen: float, trained: float, bits: float | None, lora: int
) -> NetworkBytes:
    """Sizes of a network on any device, whose parameters say whether they are trained.

    `frozen` and `trained` are bytes of a number that is not trained and of one that is, `bits`
    those of a number of the matrices of blocks that are not trained, where these are packed, and
    `lora` the numbers of an adapter that the network does not have yet."""
    networks = find_networks(network)
    blocks = [block for each in networks for block in each.blocks]
    in_blocks, inside = {id(p) for block in blocks for p in block.parameters()}, 0.0
    found = NetworkBytes()
    for name, p in network.named_parameters():
        number, own = p.numel(), p.requires_grad
        size = trained if own else frozen
        if bits is not None and not own and p.ndim == 2 and id(p) in in_blocks:
            size = bits / 8
        if own:
            found.trained += number * size
            found.average += number * 4
            found.moments += count_moments(optimizer, number, size, "embed" in name)
        if LORA in name:
            found.adapter += number * size
            continue
        found.weights += number * size
        found.wide += number * size * (own and size == 4)
        found.wide_frozen += number * size * (not own and size == 4)
        inside += number * size * (id(p) in in_blocks)
    found.unit = found.weights - inside * (1 - 1 / max(1, len(blocks)))
    found.adapter += 4 * lora
    found.trained, found.average = found.trained + 4 * lora, found.average + 4 * lora
    found.moments += count_moments(optimizer, lora, 4)
    return found


def count_moments(optimizer: str, numbers: float, size: float, embedding: bool = False) -> float:
    """Bytes that an optimiser keeps for a tensor of some numbers of some bytes; bitsandbytes keeps
    the moments of embeddings and small tensors in 32 bits."""
    if optimizer.endswith("8bit") and numbers >= 4096 and not embedding:
        return 2 * numbers * (1 + 4 / 256)  # a float32 scale for each 256
    size = 4 if optimizer == "adamw_8bit" else size
    return (1 if optimizer == "sgd" else 2) * numbers * size


def estimate_network(
    sizes: NetworkBytes,
    placement: Placement,
    config: RunConfig,
    found: Computation,
    update: float,
    recompute: bool,
    sampling: float | None = None,
    whole: bool = False,
) -> Needs:
    """Bytes of a process that trains a network, by what holds them, with `update` bytes of
    activations and logits of a micro-batch and `sampling` bytes of a batch of rollouts, None
    without.

    FSDP2 and ZeRO-3 divide weights, gradients and moments, ZeRO-2 all but the weights. DDP reduces
    a copy of the gradients, ZeRO buckets of them, and ZeRO keeps float32 weights of its part.
    `recompute`: blocks are computed again for the backward pass. `whole`: rollouts gather weights
    once, so that what is not trained is whole then."""
    needs, way = Needs(), placement.way
    away, apart = placement.weights_apart, placement.state_apart
    parts = placement.shards if way in ("fsdp2", "zero3") else 1
    divided = 1 if way == "whole" else placement.shards
    needs.add("weights", sizes.weights / parts + whole * sizes.frozen * (1 - 1 / parts), away)
    needs.add("adapter", sizes.adapter / parts, away)
    name = "kept gradients" if way == "zero3" else "gradients"
    needs.add(name, sizes.trained / divided, apart)
    needs.add("optimiser", sizes.moments / divided, apart)
    if way in ("zero2", "zero3"):
        needs.add("optimiser", sizes.trained / divided, apart)
    bucket = min(BUCKET, sizes.trained) if way in ("zero2", "zero3") else 0.0
    if way == "zero3":  # one that stays; in an update there are two
        needs.add("buckets", bucket)
    if placement.buckets:
        needs.add("buckets", sizes.trained)
    if getattr(config, "ema_decay", None):
        needs.add("average", sizes.trained / parts, away)
    if config.save_steps and config.async_save and sizes.trained:  # of the first process
        model = sizes.trained if sizes.adapter else sizes.weights
        needs.add("snapshot", model + sizes.trained + sizes.moments, placement.device != "cpu")
    # FSDP2 keeps the buffer of a unit until the next one has arrived, and gathers bfloat16
    gathered = {"fsdp2": 2 * sizes.unit, "zero3": min(sizes.weights, LIVE)}.get(way, 0.0)
    narrow = way == "fsdp2" and found.bf16 and not config.torch_compile
    casts = found.bf16 and not narrow
    if sampling is not None:
        everything = sizes.trained - (sizes.wide / 2 if narrow else 0.0)
        step = sampling + sizes.cast(recompute=True) * casts
        needs.add("sampling", step + (everything if whole else gathered))
    if whole:  # only what is trained is gathered
        gathered *= sizes.trained / (sizes.trained + sizes.frozen)
    step = sizes.trained / divided if placement.device != "cpu" and not apart else 0.0
    update += bucket if way == "zero3" else 2 * bucket
    if sizes.trained:
        needs.add("update", max(step, update + gathered + sizes.cast(recompute) * casts))
    return needs


@dataclass(frozen=True)
class Pass:
    """A forward pass of a network on a type of device, which decides how many logits exist at once,
    with numbers of `size` bytes: `rows` on one of the `branches` of guidance, of `length`
    positions, of which `shown` have images that no other row shows, and the logits of `scored`, of
    so many `columns`, are read."""

    network: Network
    device: str
    size: int
    rows: int
    length: int
    scored: int
    columns: int
    branches: int = 1
    shown: int = 0

    def train(self, recompute: bool, held: int = 1) -> float:
        """Bytes of activations and logits of some passes whose graphs are held together. Logits are
        scored in parts where there are many: then two gradients of the final states are kept, and
        beside them are log-probs, their exponential and a product of both."""
        kept, working = self.network.count_activations(self.length, recompute, self.size)
        rows = self.rows * self.scored
        logits = 4.0 * rows * self.columns * self.branches
        beside = 3 * logits
        if self.network.can_reduce:
            part = rows_at_once(self.columns, device=self.device)
            if rows > part:
                logits = 2 * 4.0 * rows * self.network.width
                beside = (3.0 + (self.branches > 1)) * 4 * part * self.columns
        every = self.branches * self.rows
        seen, seeing = self.network.count_images(self.rows * self.shown, recompute, self.size)
        return held * (every * kept + seen + logits) + max(every * working, beside, seeing)

    def sample(self, sampler: SamplerConfig) -> float:
        """Bytes of a step of a sampler: its cache, and a block of the network or its tower at work
        or logits and what is computed from them."""
        _, working = self.network.count_activations(self.length, False, self.size)
        row = SAMPLERS[sampler.name]
        positions = self.rows * row.count_logits(sampler, self.scored)
        if self.network.can_reduce and row.streams(sampler):
            positions = min(positions, rows_at_once(self.columns, device=self.device))
        logits = 4 * 4.0 * positions * self.columns * self.branches
        cached = row.keeps_cache(sampler) and self.network.count_cached(self.length) * self.size
        every = self.branches * self.rows
        _, seeing = self.network.count_images(self.rows * self.shown, False, self.size)
        return max(every * working, logits, seeing) + every * cached
