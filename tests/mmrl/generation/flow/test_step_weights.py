"""Weights of replayed steps, by the settings a rollout was sampled with."""

from dataclasses import asdict
from typing import Any

import pytest
import torch

from mmrl.algorithms import AlgorithmConfig
from mmrl.estimators import draw_passes
from mmrl.generation.flow.canvas import LatentCanvas
from mmrl.randomness import generator
from mmrl.samplers import SamplerConfig
from mmrl.types import Rollout

SIGMAS = torch.tensor([[1.0, 0.9, 0.8, 0.7, 0.0]]).expand(2, -1)
RAW = 1 / (0.1 / 0.442719 + 0.442719 * 0.2 / 1.6)
"""What flash gives the step from 0.8 to 0.7 of the kernel flow at a noise level of 0.7."""


def written(stochastic: list[list[bool]], **settings: Any) -> Rollout:
    """A rollout of two rows in four steps, of which some were stochastic."""
    chosen, config = torch.tensor(stochastic), SamplerConfig(name="flow", steps=4, **settings)
    place = {"path": torch.zeros(2, 5, 3), "sigmas": SIGMAS, "stochastic": chosen}
    empty = torch.zeros(2, dtype=torch.long)
    canvas = LatentCanvas([(3,), (3,)], {"text": torch.zeros(1)}, empty, empty, None, **place)
    trace = torch.arange(4).where(chosen, -1)
    return Rollout(canvas, trace, torch.zeros(2, 4), asdict(config))


@pytest.mark.parametrize("name", ["tempflow", "flash"])
def test_a_step_has_the_weight_of_its_place_in_the_range_of_the_sampler(name: str) -> None:
    one_each = [[False, True, False, False], [False, False, True, False]]
    rollout = written(one_each, window_range=[1, 3], window_size=1, window_rule="stratified")
    method = AlgorithmConfig(strategy="replay", step_weights=name)
    passes = draw_passes(rollout, method, [generator(0, n) for n in range(2)])
    assert passes.factor is not None and passes.scored[0].tolist() == one_each
    deviation = 0.7 * torch.tensor([[0.9 / 0.1, 0.8 / 0.2]]).sqrt() * 0.1**0.5
    weight = passes.factor[:, 1:3]
    wanted = 2.25 * deviation
    if name == "flash":
        first = 1 / (0.1 / deviation[0, 0] + deviation[0, 0] * 0.1 / 1.8)
        raw = torch.tensor([[first, RAW]])
        wanted = raw / raw.mean()
    torch.testing.assert_close(weight, wanted.expand(2, -1))
    torch.testing.assert_close(passes.drop_columns(1).factor, passes.factor[:, 1:])
    torch.testing.assert_close(passes[1:].factor, passes.factor[1:])
