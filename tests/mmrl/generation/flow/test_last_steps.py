"""Steps that are taken again with a gradient, against derivatives of the walk itself, and whole
chains from prompt to reward."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig
from mmrl.estimators import draw_passes, score
from mmrl.generation.flow.last_steps import LastStepsConfig
from mmrl.randomness import generator
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Passes, Rollout, Scores
from tests.mmrl.generation.flow.test_learning import Line, start
from tests.models.flow import TEXTS, ask, load_sd3, seeded

STEPS = 6
WAYS: dict[str, dict[str, Any]] = {
    "last": {},
    "late": {"exit_range": 0.5},
    "chained": {"grad_steps": 3, "chained": True},
    "whole": {"grad_steps": STEPS, "chained": True},
    "spread": {"grad_steps": 3, "spread": True},
    "spread_late": {"grad_steps": 3, "spread": True, "exit_range": 0.5},
}


def walk(**options: Any) -> tuple[Any, Rollout, Passes]:
    """A policy on numbers, its rollout of `STEPS` steps, and the passes over it."""
    network = SimpleNamespace(
        dtype=torch.float64,
        count_tokens=lambda shape: 1,
        guide=lambda branches, guidance: branches[0],
    )
    policy: Any = SimpleNamespace(
        model=Line().double(), network=network, shares_forwards=False, version=0
    )
    sampler: Any = SamplerConfig(name="ode", steps=STEPS)
    rollout = sample(policy, start(), sampler, generator(0, "draws"))
    config = AlgorithmConfig(strategy="last_steps", **options)
    return policy, rollout, draw_passes(rollout, config, seeded(range(len(rollout))))


def finish(policy: Any, rollout: Rollout, passes: Passes) -> Tensor:
    """[n, B] the latents that passes finish."""
    finished = score(policy, rollout.canvas, passes).finished
    assert finished is not None
    return finished[..., 0]


def slope_of(finished: Tensor, policy: Any) -> float:
    """Of the sum of latents by the constant of the policy."""
    (found,) = torch.autograd.grad(finished.sum(), policy.model.constant)
    return float(found)


@pytest.mark.parametrize("way", ["last", "chained", "whole", "spread"])
def test_an_exit_after_the_last_step_finishes_the_latent_that_was_sampled(way: str) -> None:
    policy, rollout, passes = walk(**WAYS[way])
    finished = finish(policy, rollout, passes)
    torch.testing.assert_close(
        finished[0].double(), rollout.canvas.path[:, -1, 0], atol=1e-6, rtol=0
    )


def walk_again(policy: Any, rollout: Rollout, steps: Tensor, shift: float, chained: bool) -> float:
    """The sum of the latents where the steps [K, B] are taken by a velocity that is shifted, and
    those between them by the recorded one; without `chained` it is that of recorded states."""
    total, canvas = 0.0, rollout.canvas
    levels = canvas.sigmas[0].double()
    for row, own in enumerate(steps.T.tolist()):
        state = canvas.path[row, own[0]]
        for n in range(own[0], own[-1] + 1):
            shown = state if chained else canvas.path[row, n]
            velocity = policy.model(shown[None], levels[n : n + 1], None)[0].detach()
            velocity = velocity + shift * (n in own)
            state = state + ((0 if n == own[-1] else levels[n + 1]) - levels[n]) * velocity
        total += float(state[0])
    return total


@pytest.mark.parametrize("way", WAYS)
def test_the_gradient_is_that_of_the_steps_which_are_named(way: str) -> None:
    policy, rollout, passes = walk(**WAYS[way])
    given = policy, rollout, passes.query.step  # type: ignore[attr-defined]
    chained = WAYS[way].get("chained", False)
    ends = [walk_again(*given, shift, chained) for shift in (1e-3, -1e-3)]
    found = slope_of(finish(policy, rollout, passes), policy)
    assert found == pytest.approx((ends[0] - ends[1]) / 2e-3, rel=1e-5)


def test_copies_are_noised_to_the_level_of_the_last_step() -> None:
    policy, rollout, passes = walk(num_draws=3)
    assert passes.query.step.tolist() == [[STEPS - 1] * len(rollout)] * 3  # type: ignore[attr-defined]
    finished = finish(policy, rollout, passes)
    assert finished.shape == (3, len(rollout)) and not torch.equal(finished[0], finished[1])
    level = rollout.canvas.sigmas[0, -2]
    clean, noise = rollout.canvas.finished, passes.query.noise  # type: ignore[attr-defined]
    shown = (1 - level) * clean + level * noise
    velocity = policy.model(shown.flatten(0, 1), level.expand(shown[..., 0].numel()), None)
    expected = shown.flatten() - level * velocity.flatten()
    torch.testing.assert_close(finished.flatten().double(), expected.double(), atol=1e-6, rtol=0)


def test_exits_are_drawn_among_the_last_steps_and_spread_steps_end_there() -> None:
    _, _, passes = walk(grad_steps=2, spread=True, exit_range=0.5)
    step = passes.query.step  # type: ignore[attr-defined]
    assert set(step[-1].tolist()) == {3, 4, 5}
    assert torch.equal(step[0], (step[-1] + 1) // 2 - 1)
    assert passes.scored.sum(-1).eq(1).all() and passes.scored.sum() == step.numel()


def test_a_reference_is_shown_what_was_recorded() -> None:
    policy, rollout, passes = walk(**WAYS["chained"])
    other = SimpleNamespace(**{**vars(policy), "model": Line().double()})
    with torch.no_grad():
        other.model.constant += 0.1
        found: Scores = score(other, rollout.canvas, passes)
    new = score(policy, rollout.canvas, passes)
    assert new.prediction and found.prediction
    difference = found.prediction.error - new.prediction.error
    torch.testing.assert_close(difference, torch.full_like(difference, 0.1), atol=1e-6, rtol=0)


def test_a_row_alone_is_the_row_in_a_batch_and_pixels_are_those_of_its_image() -> None:
    policy = load_sd3(dtype="float64")
    prompts = [*ask(*TEXTS, height=32, width=32), *ask("A fish", height=48, width=32)]
    sampler: Any = SamplerConfig(name="ode", steps=3)
    rollout = sample(policy, policy.canvas(prompts), sampler, seeded(range(3)))
    config = AlgorithmConfig(strategy="last_steps", grad_steps=2, chained=True)
    passes = draw_passes(rollout, config, seeded(range(3)))
    finished = score(policy, rollout.canvas, passes).finished
    assert finished is not None
    alone = score(policy, rollout.canvas[2:], passes[2:]).finished
    torch.testing.assert_close(finished[:, 2:], alone, atol=1e-6, rtol=1e-6)
    pixels = policy.render(rollout.canvas, prompts)
    images: Any = policy.decode(rollout.canvas, prompts)
    assert [tuple(each.shape) for each in pixels] == [(3, 32, 32), (3, 32, 32), (3, 48, 32)]
    for each, image in zip(pixels, images, strict=True):
        assert (each * 255).round().byte().permute(1, 2, 0).numpy().tobytes() == image.tobytes()


def test_options_that_contradict_each_other_are_named() -> None:
    for options, key in (
        ({"num_draws": 2, "grad_steps": 2}, "num_draws"),
        ({"num_draws": 2, "exit_range": 0.5}, "num_draws"),
        ({"chained": True, "spread": True}, "spread"),
    ):
        with pytest.raises(ValueError, match=f"algorithm.{key}"):
            LastStepsConfig(**options)
