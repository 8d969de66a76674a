"""Memory of weights, gradients and optimiser of a process, by the way in which they are shared.

Sizes in, sizes out; nothing here knows a run. What is not resident is counted at its peak:

- DDP keeps a copy of the gradients, the buckets that it reduces.
- FSDP2 gathers a unit (a block, or everything outside the blocks) into a buffer and copies it out,
  so a unit is there twice for a moment. Its gradients are copied into a buffer that is reduced;
  gloo, between CPUs, reduces another copy of that.
- A checkpoint is a copy of the state in the memory of the main process's host, which a thread
  writes while training goes on.
- ZeRO keeps a float32 copy of its part of the trained weights. Gradients of a backward pass are
  collected in a bucket before they are reduced in a copy: of `BUCKET` numbers on a GPU, on a CPU
  as much of it as is used. The optimiser steps on one tensor of all gradients, which is a copy.
- ZeRO-3 keeps that bucket and its part of the gradients from step to step, and what it gathers of
  up to `LIVE` numbers until the end of the backward pass. It gathers ahead, in buckets of `AHEAD`
  numbers, each of which stays until the last of its modules computes, beside the copies that
  modules get. With an offloaded optimiser the host has these gradients twice.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mmrl.runtime.placement import Placement

BUCKET, LIVE, AHEAD = 5e8, 1e9, 5e7
"""Numbers: `reduce_bucket_size` of DeepSpeed, its `stage3_max_live_parameters`, and its
`stage3_prefetch_bucket_size`."""
RESIDENT = (
    "weights",
    "adapter",
    "kept weights",
    "optimiser",
    "buckets",
    "kept gradients",
    "reference",
    "average",
    "value",
    "snapshot",
)
"""What is held from the first step on."""
PHASES = {
    "loading": ("weights", "reference", "loading"),
    "rollout": (*RESIDENT, "sampling"),
    "update": (*RESIDENT, "gradients", "update"),
    "optimiser step": (*RESIDENT, "gradients", "step"),
    "checkpoint": (*RESIDENT, "saving"),
}
"""Phases of a run, and what they hold."""
BLOCK = re.compile(r"(?:^|\.)blocks\.(\d+)\.")
"""Names of tensors of a block."""


class Peak(NamedTuple):
    """Bytes of a process in a phase: on its device, and beside it in the memory of the host."""

    phase: str
    device: float
    host: float


@dataclass
class Needs:
    """Bytes of a process, by what holds them.

    Attributes:
        device: on its device; a process on a CPU has everything there.
        host: in the memory of its host, where the device has its own.
    """

    device: dict[str, float] = field(default_factory=dict)
    host: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, size: float, in_host: bool = False) -> None:
        """Add bytes to a part of the device, or of the host where they are offloaded."""
        place = self.host if in_host else self.device
        place[name] = place.get(name, 0.0) + size

    def phases(self) -> list[Peak]:
        """What each phase holds at its peak."""
        return [
            Peak(phase, *(sum(place.get(name, 0.0) for name in names) for place in self.places))
            for phase, names in PHASES.items()
        ]

    def peak(self) -> Peak:
        """The phase that holds most on the device."""
        return max(self.phases(), key=lambda phase: phase.device)

    @property
    def places(self) -> tuple[dict[str, float], dict[str, float]]:
        """Device and host."""
        return self.device, self.host


@dataclass(frozen=True)
class ModelBytes:
    """Bytes of a network.

    Attributes:
        weights: all of them.
        trained: those that are trained, the size of their gradients.
        moments: what the optimiser keeps.
        outer: weights outside the blocks: embedding, head, vision.
        block: weights of a block.
        trained_outer, trained_block: gradients of these.
        head: gradient of the head, twice that of its columns where a slice is trained.
        largest: of one trained tensor.
        blocks: number of blocks.
        pages: whether moments are in pages that move to the host.
        size: bytes of a number of the weights.
        gathered: share of the bytes of a block that are gathered; half where float32 is gathered in
            bfloat16.
        adapter: bytes of an adapter that is beside the weights.
    """

    weights: float
    trained: float
    moments: float
    outer: float
    block: float
    trained_outer: float
    trained_block: float
    head: float = 0.0
    largest: float = 0.0
    blocks: int = 1
    pages: bool = False
    size: int = 4
    gathered: float = 1.0
    adapter: float = 0.0

    @property
    def gathered_block(self) -> float:
        """Bytes of a block when it is gathered."""
        return self.block * self.gathered


def count_model(
    tensors: Iterable[tuple[str, float, float]], optimizer: str, size: int, adapter: float = 0.0
) -> ModelBytes:
    """Sizes of a network from those of its tensors.

    Args:
        tensors: name, bytes of the weight, and bytes of its gradient, 0 where it is not trained.
        optimizer: name of it.
        size: bytes of a number of a gradient.
        adapter: bytes of an adapter of float32 on the layers of the blocks, beside the tensors.
    """
    listed = list(tensors)
    blocks = {found[1] for name, *_ in listed if (found := BLOCK.search(name))}
    number = max(1, len(blocks))

    def total(which: Callable[[str], Any] = bool) -> tuple[float, float]:
        chosen = [each for each in listed if which(each[0])]
        return sum(weight for _, weight, _ in chosen), sum(trained for *_, trained in chosen)

    (weights, full), (inside, inside_trained) = total(), total(BLOCK.search)
    _, head = total(lambda name: name.split(".")[-2:-1] == ["head"])
    return ModelBytes(
        weights=weights,
        trained=full + adapter,
        moments=sum(
            count_moments(optimizer, gradient / size, size, "embed" in name)
            for name, _, gradient in listed
        )
        + count_moments(optimizer, adapter / 4, 4),
        outer=weights - inside,
        block=inside / number,
        trained_outer=full - inside_trained,
        trained_block=(inside_trained + adapter) / number,
        # the gradient of some columns, and the zeros around it
        head=2 * head,
        largest=max((each[2] for each in listed), default=0.0),
        blocks=number,
        pages=optimizer.startswith("paged"),
        size=size,
        adapter=adapter,
    )


def gather_share(bf16: bool, compiled: bool, size: int) -> float:
    """Share of the bytes of a block that FSDP2 gathers, see `mmrl.runtime.sharding.fsdp2`.

    Args:
        bf16: whether the run is under autocast.
        compiled: whether its blocks are compiled.
        size: bytes of a number of its weights.
    """
    return 0.5 if bf16 and not compiled and size == 4 else 1.0


class CastBytes(NamedTuple):
    """Bytes of the bfloat16 copies of float32 weights that autocast makes: kept for the backward
    pass, beside these in an update, and in a forward pass without gradient."""

    kept: float
    working: float
    sampling: float


def count_casts(
    tensors: Iterable[tuple[str, float, float]], model: ModelBytes, recompute: bool
) -> CastBytes:
    """Copies of the weights of matrix products; see `torch.autocast`.

    Autocast keeps those of trained weights until the forward pass ends. A product keeps its copy
    for the backward pass, unless its block is computed again there.

    Args:
        tensors: name, bytes of the float32 weight, and bytes of its gradient, 0 where not trained.
        model: sizes of the network.
        recompute: whether blocks are computed again.
    """
    read = [(weight / 2, trained > 0) for name, weight, trained in tensors if "embed" not in name]
    trained = sum(size for size, own in read if own)
    sampling = max(trained, max((size for size, _ in read), default=0.0))
    if recompute:
        return CastBytes(0.0, max(trained, model.block / 2), sampling)
    return CastBytes(sum(size for size, _ in read), 0.0, sampling)


def count_moments(optimizer: str, numbers: float, size: int, embedding: bool = False) -> float:
    """Bytes that an optimiser keeps for a tensor.

    Args:
        optimizer: name of it.
        numbers: in the tensor.
        size: bytes of one.
        embedding: whether it is an embedding, whose moments bitsandbytes keeps in 32 bits.
    """
    if optimizer.endswith("8bit") and numbers >= 4096 and not embedding:
        return 2 * numbers * (1 + 4 / 256)  # a float32 scale for each 256
    if optimizer in ("adamw_8bit", "paged_adamw", "paged_adamw_8bit"):
        return 2 * numbers * 4
    return (1 if optimizer == "sgd" else 2) * numbers * size


def hold_state(model: ModelBytes, placement: Placement) -> Needs:
    """Weights, gradients, optimiser and buckets of one network."""
    needs, parts, way = Needs(), placement.shards, placement.way
    weights_away, state_away = placement.weights_apart, placement.state_apart
    sharded = way in ("fsdp2", "zero3")
    needs.add("weights", model.weights / (parts if sharded else 1), weights_away)
    divided = 1 if way == "whole" else parts
    gradients = "kept gradients" if way == "zero3" else "gradients"
    twice = way == "zero3" and placement.offload_optimizer
    needs.add(gradients, model.trained / divided * (1 + twice), state_away)
    needs.add("optimiser", model.moments / divided, state_away or model.pages)
    if way in ("zero2", "zero3"):
        needs.add("optimiser", model.trained / parts, state_away)
    if way == "zero3":
        needs.add("buckets", _bucket(model, placement))
    if placement.buckets:
        needs.add("buckets", model.trained)
    return needs


def _bucket(model: ModelBytes, placement: Placement) -> float:
    """Bytes of the bucket in which ZeRO collects gradients."""
    size = BUCKET * model.size
    return min(size, model.trained) if placement.device == "cpu" else size


def gather_units(model: ModelBytes, placement: Placement, whole: bool = False) -> float:
    """Bytes of weights that forward passes without gradient gather at most.

    Args:
        model: sizes.
        placement: of its parts.
        whole: whether they are gathered once for a phase of rollouts: by FSDP2 those that are
            trained, as the others are not sharded then; by ZeRO-3 all that it does not keep whole.
    """
    if placement.way == "fsdp2" and whole:
        outer, block = model.trained_outer, model.trained_block * model.gathered
        return outer + block * model.blocks + max(outer, block)
    if placement.way == "fsdp2":
        # the buffer of a unit is kept until the next one has arrived
        return model.outer + 2 * model.gathered_block + max(model.outer, model.gathered_block)
    if placement.way == "zero3" and whole:
        return model.weights + model.adapter
    if placement.way == "zero3":
        return min(model.weights, LIVE * model.size) + min(model.weights, AHEAD * model.size)
    return 0.0


def peak_of_update(model: ModelBytes, placement: Placement, kept: float, working: float) -> float:
    """Bytes beside the resident ones while gradients of a micro-batch are added.

    Args:
        model: sizes.
        placement: of its parts.
        kept: activations that the backward pass needs.
        working: what is beside them at the end of the forward pass.
    """
    if placement.way == "whole":
        return kept + max(working, model.head)
    if placement.way in ("zero2", "zero3"):
        reduced = min(BUCKET * model.size, model.trained)
        left = kept * (1 - reduced / model.trained) if model.trained else 0.0  # when it is full
        peak = max(kept + max(working, model.head), left + reduced)
        if placement.way == "zero3":
            return peak + gather_units(model, placement)
        return peak + _bucket(model, placement)
    copies = 3 if placement.device == "cpu" else 2
    return max(
        kept + working + 2 * model.outer,  # gathered again for the backward pass
        kept + model.outer + model.head + 2 * model.gathered_block,
        kept * (1 - 1 / model.blocks)  # the first block to be reduced, the next one gathered
        + model.outer
        + model.head / 2
        + model.gathered_block
        + (copies - 1 + model.gathered) * model.trained_block,  # float32 is reduced
        copies * model.trained_outer,  # reduced last
    )


def peak_of_step(model: ModelBytes, placement: Placement) -> float:
    """Bytes beside the resident ones in a step of AdamW: on a GPU a number per trained weight, as
    all tensors are updated at once, elsewhere of the largest tensor. ZeRO's are one tensor, for
    which torch needs two more beside its gradient; an offloaded step is fused."""
    divided = 1 if placement.way == "whole" else placement.shards
    if placement.way in ("zero2", "zero3"):
        part = 0.0 if placement.offload_optimizer else model.trained / divided
        return part * (3 if placement.device == "cpu" else 2)
    return (model.largest if placement.device == "cpu" else model.trained) / divided


def add_checkpoints(
    needs: Needs, model: ModelBytes, placement: Placement, saved: float, copied: bool
) -> None:
    """Add what the main process holds of a checkpoint, in the memory of its host.

    Args:
        needs: to add to.
        model: sizes.
        placement: of its parts.
        saved: bytes of the model that is saved, or its adapter.
        copied: whether a thread writes a copy while training goes on.
    """
    state, apart = model.trained + model.moments, placement.device != "cpu"
    if copied:
        needs.add("snapshot", saved + state, apart)
    else:
        needs.add("saving", max(saved, state), apart)


def peak_of_loading(model: ModelBytes, placement: Placement, drawn: bool = False) -> float:
    """Bytes beside the weights while they are loaded and placed.

    Args:
        model: its sizes.
        placement: how processes share it.
        drawn: whether the weights are new and not read from a checkpoint.
    """
    if placement.way in ("zero2", "zero3"):
        whole = drawn and placement.way == "zero3"  # the weights, before they are divided
        # float32 weights of the engine, and zeros in the place of gradients
        engine = 2 * model.trained / placement.shards
        return max(engine, model.weights if whole else 0.0)
    if placement.way == "fsdp2":
        return model.weights if drawn else 0.0  # each process reads its rows alone
    # DDP sends the weights of the first process by buffers of 250 MiB
    return min(model.weights, 250 * 2**20) if placement.world_size > 1 else 0.0
