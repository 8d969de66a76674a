"""What samplers and scoring of latents promise, on a tiny SD3."""

from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig
from mmrl.config import ConfigError
from mmrl.estimators import draw_passes, score
from mmrl.generation.flow.canvas import LatentCanvas
from mmrl.generation.generation import Place
from mmrl.models import Policy
from mmrl.randomness import generator
from mmrl.samplers import SamplerConfig, check_sampler, sample
from mmrl.types import Prompt, Rollout
from tests.models.flow import ask, load_sd3, seeded

PROMPTS = [
    *ask("a red square"),
    *ask("two blue circles", height=32, width=48),
    *ask("a red square", height=16, width=80),
    *ask("a green triangle", height=48, width=32),
]
"""Of latents of 1024, 384, 320 and 384 numbers, the second and last of the same number."""


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_sd3()


def write(
    policy: Policy,
    prompts: list[Prompt] = PROMPTS,
    seeds: tuple[int, ...] = (0, 1, 2, 3),
    place: Place | None = None,
    **settings: Any,
) -> Rollout:
    config = SamplerConfig(**{"name": "flow", "steps": 4, "cfg_scale": 1.0, **settings})
    return sample(policy, policy.canvas(prompts), config, seeded(seeds), None, place)


def same(found: Tensor, known: Tensor) -> None:
    torch.testing.assert_close(found, known, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", ["flow", "dance", "cps", "ode", "dpm2"])
def test_a_row_of_a_batch_of_mixed_sizes_is_the_row_alone(policy: Policy, kernel: str) -> None:
    whole = write(policy, name=kernel)
    path, sigmas = whole.canvas.written
    for row, prompt in enumerate(PROMPTS):
        alone = write(policy, [prompt], (row,), name=kernel)
        number = alone.canvas.path.shape[-1]
        same(path[row, :, :number], alone.canvas.path[0])
        assert not path[row, :, number:].any() and torch.equal(sigmas[row], alone.canvas.sigmas[0])
        torch.testing.assert_close(whole.logprobs[row], alone.logprobs[0], rtol=0, atol=1e-3)
        [image] = policy.decode(alone.canvas, [prompt])
        assert image.size == (prompt.metadata.get("width", 64), prompt.metadata.get("height", 64))
    again = write(policy, name=kernel)
    assert torch.equal(path, again.canvas.path) and torch.equal(whole.logprobs, again.logprobs)
    other = write(policy, seeds=(4, 5, 6, 7), name=kernel)
    assert not any(torch.equal(one, two) for one, two in zip(path, other.canvas.path, strict=True))


@pytest.mark.parametrize("kernel", ["flow", "dance", "cps"])
def test_the_replay_of_rows_that_are_joined_and_divided_is_what_was_sampled(
    policy: Policy, kernel: str
) -> None:
    wide = write(policy, PROMPTS[:2], (0, 1), name=kernel, window_size=2)
    narrow = write(policy, PROMPTS[2:], (2, 3), name=kernel)
    joined = LatentCanvas.join([wide.canvas, narrow.canvas])
    logprobs = torch.cat([wide.logprobs, narrow.logprobs])
    rollout = replace(wide, canvas=joined, logprobs=logprobs)
    config = AlgorithmConfig(strategy="replay")
    passes = draw_passes(rollout, config, seeded([0, 1, 2, 3]))
    assert torch.equal(passes.scored.any(0), joined.counted) and len(passes) == 3
    found = score(policy, joined, passes, 1.0)
    torch.testing.assert_close(found.logprobs.sum(0), logprobs, rtol=0, atol=1e-3)
    assert found.gaussian is not None and found.gaussian.size.tolist() == [1024, 384, 320, 384]
    order = torch.tensor([3, 0, 2])
    some = score(policy, joined[order], passes[order], 1.0)
    torch.testing.assert_close(some.logprobs, found.logprobs[:, order], rtol=0, atol=1e-3)
    assert found.gaussian.mean[:, 2, 320:].eq(0).all()


def test_noise_is_drawn_where_it_is_used_and_changes_nothing_elsewhere(policy: Policy) -> None:
    late, long, none = (
        write(policy, window_range=window, cfg_scale=0.0).canvas.written[0]
        for window in ([2, 3], [1, 3], [3, 4])
    )
    assert torch.equal(late[:, :2], long[:, :2]) and torch.equal(late[:, :3], none[:, :3])
    assert (late[:, 2] - long[:, 2]).abs().amax(-1).min() > 0.1
    walk = write(policy, name="ode", cfg_scale=0.0).canvas.written[0]
    same(walk[:, :3], late[:, :3])
    small, large = (
        write(policy, window_range=[2, 3], noise_level=level).canvas.written[0]
        for level in (0.1, 1.0)
    )
    assert torch.equal(small[:, :3], large[:, :3]) and not torch.equal(small, large)


def test_rows_of_a_group_share_their_start_and_window(policy: Policy) -> None:
    prompts, seeds = ask(*["a red square"] * 6), (0, 1, 2, 3, 4, 5)
    place = Place(0, [7, 7, 7, 9, 9, 9], [0, 1, 2, 0, 1, 2], 3)
    shared = write(policy, prompts, seeds, place, shared_noise=True, window_size=1, steps=9)
    path, _ = shared.canvas.written
    for rows in (path[:3], path[3:]):
        assert torch.equal(rows[0, 0], rows[1, 0]) and not torch.equal(rows[0, -1], rows[1, -1])
    assert not torch.equal(path[0, 0], path[3, 0])
    windows = [row.nonzero().flatten().tolist() for row in shared.canvas.counted]
    assert windows[0] == windows[1] == windows[2] and windows[3] == windows[4] == windows[5]
    part = Place(0, [9, 7], [2, 1], 3)
    own = write(policy, prompts[:2], (5, 1), part, shared_noise=True, window_size=1, steps=9)
    same(own.canvas.written[0], path[[5, 1]])
    spread = {"window_size": 1, "window_rule": "stratified", "steps": 4}
    counted = write(policy, prompts, seeds, place, **spread).canvas.counted
    assert counted[:3].sum(0).tolist() == [1, 1, 1, 0] == counted[3:].sum(0).tolist()


def test_a_shorter_tail_begins_where_the_window_ends_and_saves_forwards(policy: Policy) -> None:
    window: dict[str, Any] = {"window_size": 2, "window_rule": "progressive", "steps": 12}
    place = Place(25, [1, 2, 3, 4], [0, 0, 0, 0], 1)  # steps 2 and 3
    full, flash = (write(policy, place=place, tail_ratio=r, **window) for r in (1.0, 0.4))
    path, sigmas = flash.canvas.written
    assert flash.canvas.counted.sum(0).tolist() == [0, 0, 4, 4] + [0] * 8
    assert torch.equal(path[:, :5], full.canvas.written[0][:, :5])
    assert torch.equal(flash.logprobs, full.logprobs)
    assert sigmas[:, :7].gt(0).sum(1).tolist() == [6] * 4 and not sigmas[:, 6:].any()
    assert (path[:, 6:] == path[:, 6:7]).all() and flash.forwards == 24 == full.forwards // 2
    passes = draw_passes(flash, AlgorithmConfig(strategy="replay"), seeded([0, 1, 2, 3]))
    found = score(policy, flash.canvas, passes, 1.0).logprobs.sum(0)
    torch.testing.assert_close(found, flash.logprobs, rtol=0, atol=1e-3)


def test_a_shorter_tail_needs_one_window_for_all() -> None:
    for settings in ({}, {"window_rule": "stratified", "window_draw": "iteration"}):
        config = SamplerConfig(name="flow", window_size=1, tail_ratio=0.5, **settings)
        with pytest.raises(ConfigError, match=r"sampler\.tail_ratio.*0\.5.*window_rule: progress"):
            check_sampler(config)
    for settings in ({"window_size": None}, {"window_size": 1, "window_draw": "iteration"}):
        check_sampler(SamplerConfig(name="flow", tail_ratio=0.5, **settings))


def test_latents_not_finite_are_named(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    network, calls = policy.network, []
    forward = type(network).forward

    def spoiled(self: Any, latents: Tensor, *rest: Any, **more: Any) -> Tensor:
        calls.append(len(latents))
        found = forward(self, latents, *rest, **more)
        if len(calls) == 3:
            found[1] = torch.inf
        return found

    monkeypatch.setattr(type(network), "forward", spoiled)
    with pytest.raises(ValueError, match=r"'two' \(row 1\) are not finite after denoising step 3"):
        write(policy, ask("one", "two"), (0, 1), cfg_scale=0.0)


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
