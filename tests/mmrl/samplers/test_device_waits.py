"""How often a step makes the host wait for a GPU, and how many kernels it asks for.

The ceilings are those of the code; a change that passes one of them prints the counts by line.
"""

from typing import Any

import pytest
import torch
from torch import nn

from mmrl.algorithms import AlgorithmConfig
from mmrl.config import merge
from mmrl.estimators import score
from mmrl.generation.masked.samplers import RULES
from mmrl.generation.masked.strategies import STRATEGIES
from mmrl.runtime.precision import autocast_forward
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Rollout
from tests.device_counts import DeviceCounts
from tests.mmrl.canvases import generators
from tests.models.small_policies import POLICIES, small_policy, small_prompts

STEPS = 8
WAITS = {"step": 3, "block": 12, "pass": 3, "padding": 1}
"""Most waits of a denoising step, of what a block needs once, of a pass of scoring, and of finding
the padding of a batch that is scored."""
LAUNCHES = {"llada": 160, "sdar": 200, "mmada": 160}
"""Most kernels of a step, of two layers, without what a rollout needs once."""
CACHES: list[tuple[str, dict[str, Any]]] = (
    [("llada", {}), ("llada", {"cache": "prefix", "block_size": 4})]
    + [("llada", {"cache": "dual", "block_size": 4}), ("llada", {"cache": "refresh"})]
    + [("sdar", {}), ("sdar", {"cache": "prefix"}), ("mmada", {"cfg_scale": 2.0})]
)


def count(family: str, steps: int = STEPS, **settings: Any) -> tuple[int, int, DeviceCounts]:
    """Waits and launches of a rollout, and where they are."""
    policy = small_policy(family)
    task = "text_to_image" if family == "mmada" else "text"
    canvas = policy.canvas(small_prompts(task))
    config = merge(SamplerConfig, {"steps": steps, "threshold": 1.0, **settings})
    with DeviceCounts() as seen:
        sample(policy, canvas, config, generators(len(canvas)))
    return sum(seen.waits.values()), sum(seen.launches.values()), seen


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_step_waits_for_the_device_at_most_three_times(rule: str) -> None:
    waits, _, seen = count("llada", name=rule, temperature=1.0)
    assert waits <= WAITS["block"] + STEPS * WAITS["step"], seen.table()


@pytest.mark.parametrize(("family", "settings"), CACHES)
def test_a_step_with_a_cache_has_few_waits_and_launches(family: str, settings: dict) -> None:
    few = count(family, STEPS // 2, name="static", temperature=0.0, **settings)
    waits, launches, seen = count(family, name="static", temperature=0.0, **settings)
    blocks = 3 if family == "sdar" else 1 + ("block_size" in settings)
    assert waits <= blocks * WAITS["block"] + STEPS * WAITS["step"], seen.table()
    assert launches - few[1] <= STEPS // 2 * LAUNCHES[family], seen.table()


@pytest.mark.parametrize("family", ["llada", "sdar"])
@pytest.mark.parametrize("mask", sorted(STRATEGIES))
def test_a_pass_of_scoring_waits_for_the_device_at_most_three_times(mask: str, family: str) -> None:
    policy = small_policy(family)
    canvas = policy.canvas(small_prompts("text"))
    done = sample(policy, canvas, SamplerConfig(steps=8), generators(len(canvas)))
    config = AlgorithmConfig(strategy=mask, block_size=4 if mask == "blockwise" else None)
    passes = STRATEGIES[mask](done, config, generators(len(canvas)))
    with DeviceCounts() as seen:
        score(policy, done.canvas, passes)
    assert sum(seen.waits.values()) <= WAITS["padding"] + WAITS["pass"] * len(passes), seen.table()


def test_slices_of_a_trace_are_found_with_waits_that_do_not_grow_with_the_batch() -> None:
    def count(rows: int) -> int:
        policy = small_policy("sdar")
        canvas = policy.canvas(small_prompts("text", rows))
        done = sample(policy, canvas, SamplerConfig(steps=8), generators(rows))
        with DeviceCounts() as seen:
            STRATEGIES["trace"](done, AlgorithmConfig(strategy="trace"), generators(rows))
        return sum(seen.waits.values())

    assert count(2) == count(6) <= 6


class Casts(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts conversions of weights."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        if function.overloadpacket.__name__ == "_to_copy" and isinstance(args[0], nn.Parameter):
            self.number += 1
        return function(*args, **(kwargs or {}))


def count_casts(steps: int, family: str = "llada") -> tuple[int, Rollout]:
    policy = POLICIES[family]()
    autocast_forward(policy.network, torch.device("cpu"))
    canvas = policy.canvas(small_prompts("text"))
    with Casts() as seen:
        config = SamplerConfig(steps=steps)
        if family == "causal_lm":
            canvas = policy.canvas(small_prompts("text"), steps)
            config = SamplerConfig(name="autoregressive")
        done = sample(policy, canvas, config, generators(len(canvas)))
    return seen.number, done


@pytest.mark.parametrize("family", ["llada", "causal_lm"])
def test_autocast_converts_each_weight_once_in_a_rollout(family: str) -> None:
    few, _ = count_casts(2, family)
    many, _ = count_casts(8, family)
    assert few == many > 0
