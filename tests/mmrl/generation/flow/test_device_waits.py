"""A denoising step of latents hardly makes the host wait for a GPU."""

import pytest

from mmrl.algorithms import AlgorithmConfig
from mmrl.estimators import draw_passes, score
from mmrl.models import Policy
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt
from tests.device_counts import DeviceCounts
from tests.models.flow import load_sd3, seeded

PROMPTS = [Prompt(str(n), "text_to_image", text) for n, text in enumerate(["one", "two"])]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_sd3()


def count(policy: Policy, steps: int, **settings: float | str) -> tuple[int, str]:
    """Waits of a rollout, and where they are."""
    canvas = policy.canvas(PROMPTS)
    config = SamplerConfig(**{"steps": steps, **settings})
    with DeviceCounts() as seen:
        sample(policy, canvas, config, seeded([0, 1]))
    return sum(seen.waits.values()), seen.table()


@pytest.mark.parametrize("name", ["flow", "cps", "ode", "dpm2"])
def test_a_step_waits_at_most_four_times(name: str, policy: Policy) -> None:
    few, _ = count(policy, 4, name=name, cfg_scale=3.0)
    more, table = count(policy, 12, name=name, cfg_scale=3.0)
    assert more - few <= 4 * 8 and few <= 4 * 4 + 12, table


def test_a_pass_of_scoring_waits_at_most_four_times(policy: Policy) -> None:
    rollout = sample(policy, policy.canvas(PROMPTS), SamplerConfig(name="flow"), seeded([0, 1]))
    passes = draw_passes(rollout, AlgorithmConfig(strategy="replay"), seeded([0, 1]))
    with DeviceCounts() as seen:
        score(policy, rollout.canvas, passes)
    assert sum(seen.waits.values()) <= 4 * len(passes) + 4, seen.table()
