"""Sizes of what ways of sharding hold, from sizes of tensors."""

from dataclasses import replace

from mmrl.preflight.state_memory import (
    AHEAD,
    LIVE,
    count_model,
    gather_share,
    gather_units,
    peak_of_update,
)
from mmrl.runtime.placement import Placement

TENSORS = [("embed.weight", 40.0, 40.0)]
TENSORS += [(f"blocks.{n}.mlp.up.weight", 100.0, 100.0) for n in range(4)]


def test_fsdp2_gathers_half_of_a_float32_block_under_autocast_and_nothing_less_outside() -> None:
    place = Placement("fsdp2", 8, 8, 8, device="cuda")
    model = count_model(TENSORS, "adamw", 4)
    assert gather_share(True, False, 4) == 0.5
    assert gather_share(True, True, 4) == gather_share(False, False, 4) == 1
    assert gather_share(True, False, 2) == 1, "weights in bfloat16 are gathered as they are"
    half = replace(model, gathered=0.5)
    assert gather_units(model, place) == 40 + 2 * 100 + 100
    assert gather_units(half, place) == 40 + 2 * 50 + 50
    assert gather_units(model, place, whole=True) == 440 + 100
    assert gather_units(half, place, whole=True) == 240 + 50
    # the block at the end of the backward pass, its gradient in bfloat16, and what is reduced
    assert peak_of_update(model, place, 0, 0) == 40 + 3 * 100
    assert peak_of_update(half, place, 0, 0) == 40 + 50 + 50 + 100


def test_zero3_holds_all_weights_in_rollouts_that_gather_them_once() -> None:
    place = Placement("zero3", 8, 8, 8, device="cuda")
    model = count_model([("blocks.0.mlp.up.weight", 16e9, 0.0)], "adamw", 2, adapter=1e9)
    kept = 2 * LIVE  # by module, as many numbers as DeepSpeed keeps
    assert gather_units(model, place) == kept + 2 * AHEAD, "and the bucket they are copied from"
    assert gather_units(model, place, whole=True) == 17e9, "the frozen base and the adapter"


def test_fsdp2_gathers_no_frozen_weights_in_rollouts_that_gather_once() -> None:
    place = Placement("fsdp2", 8, 8, 8, device="cuda")
    frozen = [(name, size, 0.0) for name, size, _ in TENSORS]
    model = count_model(frozen, "adamw", 4, adapter=40.0)
    assert gather_units(model, place, whole=True) == 40 + 10, "the adapter, and that of a block"
