"""Losses of denoising steps: worked numbers, public codes, the start of an update, and its parts.

`tests/fixtures/flow/losses.*` has losses and gradients of public codes on given log-probs and
means; each case names the function and its commit.
"""

import json
import math
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mmrl.algorithms import (
    AlgorithmConfig,
    LossInputs,
    group_advantages,
    load_algorithm,
    policy_loss,
)
from mmrl.algorithms.advantages import normalize_then_sum
from mmrl.algorithms.aggregation import BatchSize
from mmrl.algorithms.loss import Weights, batch_weights
from mmrl.algorithms.ratios import GAUSSIAN_KL
from mmrl.generation.flow.replay import STEP_WEIGHTS
from mmrl.generation.flow.transitions import Step, logprob_of, predict, transition
from mmrl.generation.masked.hidden import Hidden
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.rollouts.credit import assign_credit
from mmrl.types import Gaussian, Passes, Sample, Scores
from tests.mmrl.algorithms.test_presets import FLOW

FOLDER = Path(__file__).parents[2] / "fixtures" / "flow"
CASES: dict[str, Any] = json.loads((FOLDER / "losses.json").read_text())
X, V, Z = torch.tensor([[0.5, -1, 0.25, 2], [1, -0.5, 0.75, -1.25], [0.3, -0.7, 1.1, 0]]).split(1)
MOVED = V + torch.tensor([0.02, -0.01, 0.03, 0.01])
"""A state, two velocities and a draw, for a step from 0.8 to 0.7."""


def diagonal(steps: Tensor) -> Tensor:
    """[K, B] of the step of each pass -> [K, B, K] of all actions."""
    return steps[..., None] * torch.eye(len(steps), dtype=steps.dtype)[:, None]


def passes_of(used: Tensor, factor: Tensor | None = None) -> Passes:
    """Passes of which each scores a step of the rows `used` [K, B] bool."""
    scored = diagonal(used.float()).bool()
    return Passes(Hidden(scored), scored, scored.float(), factor=factor)


def size_of(used: Tensor) -> BatchSize:
    number = int(used.sum())
    return BatchSize(used.shape[1], number, number, len(used), number, number)


def compute(
    logprobs: Tensor, old: Scores, advantages: Tensor, columns: dict[str, Any], **more: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of K steps of B rows from their log-probs [K, B]."""
    used = torch.ones(logprobs.shape, dtype=torch.bool)
    new = Scores(diagonal(logprobs), gaussian=more.pop("gaussian", None))
    passes = passes_of(used, more.pop("factor", None))
    given = LossInputs(passes, new, advantages, old, **more)
    return policy_loss(given, AlgorithmConfig(**columns), size_of(used))


def worked(kernel: str, velocity: Tensor) -> tuple[Tensor, Gaussian]:
    """Log-prob and Gaussian of the step under a policy that predicts `velocity`."""
    level = {"flow": 0.7, "cps": 0.8}[kernel]
    known = {"noise": Z, "noise_level": level, "sigma_max": 0.9}
    following = transition(kernel, X, V, 0.8, 0.7, **known)[0]
    mean, deviation = predict(kernel, Step(X, velocity, 0.8, 0.7, level, 0.9))
    steps = Gaussian(mean[None], deviation[None], torch.tensor([[0.1]]), torch.tensor([4]))
    return logprob_of(kernel, following, mean, deviation)[None], steps


def worked_loss(kernel: str, advantage: float, **columns: Any) -> tuple[float, dict[str, float]]:
    (new, steps), (old, before) = worked(kernel, MOVED), worked(kernel, V)
    scores = Scores(diagonal(old), gaussian=before)
    more: dict[str, Any] = {"gaussian": steps, "reference": scores}
    loss, metrics = compute(new, scores, torch.tensor([advantage]), columns, **more)
    return loss.item(), {key: value.item() for key, value in metrics.items()}


def test_the_worked_example_of_every_surrogate_and_divisor() -> None:
    loss, metrics = worked_loss("flow", 1.5, epsilon=1e-4, beta=1.0, kl="gaussian")
    assert metrics["policy_loss"] == pytest.approx(-1.49513468, abs=1e-6)
    assert metrics["ratio"] == pytest.approx(0.99675645, abs=1e-6)
    assert metrics["kl"] * 1e5 == pytest.approx(1.482805, abs=1e-4)
    assert loss == pytest.approx(metrics["policy_loss"] + metrics["kl"])
    _, metrics = worked_loss("flow", -1.5, epsilon=1e-4, beta=1.0, kl="gaussian_rate")
    assert metrics["policy_loss"] == pytest.approx(1.49985, abs=1e-6)
    assert metrics["kl"] * 1e6 == pytest.approx(1.482805, abs=1e-4)
    loss, _ = worked_loss("flow", 1.5, epsilon=0.1, surrogate="guard")
    assert loss == pytest.approx(-14.978539, abs=2e-6)
    kept, _ = worked_loss("flow", 1.5, epsilon=1e-5, surrogate="flow_dppo")
    assert kept == pytest.approx(-1.5 * 0.99675645, abs=1e-6)
    assert worked_loss("flow", -1.5, epsilon=1e-5, surrogate="flow_dppo")[0] == 0
    assert worked_loss("flow", -1.5, epsilon=2e-5, surrogate="flow_dppo")[0] != 0
    assert worked_loss("cps", 1.0)[1]["ratio"] == pytest.approx(0.99697761, abs=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_are_those_of_the_public_code(name: str) -> None:
    known = load_file(FOLDER / "losses.safetensors")
    case = {key.rsplit("/", 1)[1]: each for key, each in known.items() if key.startswith(name)}
    new, columns = case["new"].requires_grad_(), CASES[name]["columns"]
    mean = case.get("mean", torch.zeros(*new.shape, 1)).requires_grad_()
    shape = case["deviation"], case["interval"], torch.full((new.shape[1],), mean.shape[-1])
    old = Scores(diagonal(case["old"]), gaussian=Gaussian(case.get("old_mean", mean), *shape))
    more: dict[str, Any] = {"gaussian": Gaussian(mean, *shape)}
    if "ref_mean" in case:
        steps = Gaussian(case["ref_mean"], *shape)
        more["reference"] = Scores(diagonal(case["old"]), gaussian=steps)
    loss, metrics = compute(new, old, case["advantages"], columns, **more)
    torch.testing.assert_close(loss, case["loss"], rtol=1e-6, atol=1e-6)
    if "kl" in case:
        torch.testing.assert_close(metrics["kl"], case["kl"], rtol=1e-6, atol=1e-6)
    found = torch.autograd.grad(loss, (new, mean), materialize_grads=True)
    torch.testing.assert_close(found[0], case["grad_new"], rtol=1e-5, atol=1e-6)
    if "grad_mean" in case:
        torch.testing.assert_close(found[1], case["grad_mean"], rtol=1e-5, atol=1e-6)


METHODS = [load_algorithm({"name": name, "beta": 0.1}) for name in FLOW]
METHODS += [load_algorithm({"name": "flow_grpo", "kl": "gaussian", "kl_to": "old"})]
BY_METHOD = pytest.mark.parametrize("method", METHODS, ids=lambda m: f"{m.name}-{m.kl}")


def draw(used: Tensor, moved: float) -> tuple[LossInputs, Tensor]:
    """Steps of Gaussians [K, B] in latents of 4 and of 2 numbers, 0 where none is used; and the
    means, with a gradient."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.double)

    inside = torch.tensor([[True] * 4, [True, True, False, False]])
    kept = used[..., None] * inside
    deviation, interval = 0.4 * used.double(), 0.1 * used.double()
    shape, before = (deviation, interval, inside.sum(-1)), normal(*used.shape, 4) * kept
    following = (before + 0.4 * normal(*before.shape)) * kept

    def scores(mean: Tensor) -> Scores:
        squared = ((following - mean) / deviation.where(used, 1.0)[..., None]).square()
        logprobs = -squared.sum(-1) / shape[2] / 2
        return Scores(diagonal(logprobs * used), gaussian=Gaussian(mean, *shape))

    mean = ((before + moved * normal(*before.shape)) * kept).requires_grad_()
    factor = normal(2, len(used)).abs()
    reference = scores((before + moved * normal(*before.shape)) * kept)
    passes, advantages = passes_of(used, factor), torch.tensor([1.0, -2.0])
    return LossInputs(passes, scores(mean), advantages, scores(before), reference), mean


@BY_METHOD
def test_an_update_starts_at_ratio_one_and_kl_zero_and_moves_towards_what_was_good(
    method: AlgorithmConfig,
) -> None:
    used = torch.ones(3, 2, dtype=torch.bool)
    given, mean = draw(used, 0.0)
    assert given.old is not None
    loss, metrics = policy_loss(given, method, size_of(used))
    assert float(metrics["ratio"]) == 1 and float(metrics["kl"]) == 0
    assert metrics["clip_ratio/low_mean"] == metrics["clip_ratio/high_mean"] == 0
    [step] = torch.autograd.grad(-loss, mean, retain_graph=True)
    given.old = None  # the same policy, which is then not scored
    same, _ = policy_loss(given, method, size_of(used))
    assert torch.equal(torch.autograd.grad(-same, mean, retain_graph=True)[0], step)
    [upward] = torch.autograd.grad(given.new.logprobs.sum(), mean)
    gain = (step * upward).sum((0, 2))
    assert gain[0] > 0 > gain[1], "advantages are 1 and -2"


@BY_METHOD
def test_passes_one_by_one_add_up_to_the_whole_and_empty_ones_are_harmless(
    method: AlgorithmConfig,
) -> None:
    used = torch.tensor([[True, True], [True, True], [True, False]])
    given, mean = draw(used, 0.05)
    assert given.old is not None and given.reference is not None
    size = size_of(used)
    whole, metrics = policy_loss(given, method, size)
    [expected] = torch.autograd.grad(whole, mean, retain_graph=True)
    assert bool(expected.isfinite().all()) and not bool(expected[2, 1].any())
    weights = batch_weights(given.passes, method, size)
    total, sums = torch.zeros(()), dict.fromkeys(metrics, 0.0)
    for k in range(len(used)):
        one = slice(k, k + 1)
        scores = (each.select_draws(one) for each in (given.new, given.old, given.reference))
        new, old, reference = scores
        passes, share = given.passes.select_draws(one), Weights(*(each[one] for each in weights))
        part = LossInputs(passes, new, given.advantages, old, reference, share)
        loss, some = policy_loss(part, method, size)
        total = total + loss
        sums = {key: sums[key] + float(some[key]) for key in sums}
    torch.testing.assert_close(total, whole)
    torch.testing.assert_close(torch.autograd.grad(total, mean)[0], expected)
    assert sums == pytest.approx({key: float(value) for key, value in metrics.items()})


def test_a_smaller_latent_has_the_kl_of_its_own_numbers() -> None:
    mean, other = torch.tensor([[[3.0, 1, 2, 0], [3, 1, 0, 0]]]), torch.zeros(1, 2, 4)
    shape = torch.full((1, 2), 0.5), torch.full((1, 2), 0.2), torch.tensor([4, 2])
    policy, reference = Gaussian(mean, *shape), Gaussian(other, *shape)
    expected = torch.tensor([[14 / 4, 10 / 2]]) / (2 * 0.25)
    torch.testing.assert_close(GAUSSIAN_KL["gaussian"](policy, reference), expected)
    torch.testing.assert_close(GAUSSIAN_KL["gaussian_rate"](policy, reference), 0.2 * expected)


def test_step_weights_multiply_the_policy_and_not_its_kl() -> None:
    sigmas = torch.tensor([[0.8, 0.7, 0.0]])
    deviation, pool = torch.tensor([[0.442719, 0.0]]), torch.tensor([[True, False]])
    tempflow = STEP_WEIGHTS["tempflow"](sigmas, deviation, pool)
    assert tempflow[0, 0].item() == pytest.approx(0.996117, abs=1e-5)
    assert STEP_WEIGHTS["flash"](sigmas, deviation, pool).tolist() == [[1, 0]]
    wide, deviations = torch.tensor([[True, True]]), torch.tensor([[0.442719, 0.3]])
    flash = STEP_WEIGHTS["flash"](sigmas, deviations, wide)
    assert flash.mean().item() == pytest.approx(1)
    second = 1 / (0.7 / 0.3 + 0.3 * 0.3 / 1.4)
    assert (flash[0, 0] / flash[0, 1]).item() == pytest.approx(3.555975 / second, rel=1e-5)
    assert math.isclose(flash[0, 0].item(), 3.555975 * 2 / (3.555975 + second), rel_tol=1e-5)

    given, _ = draw(torch.ones(3, 2, dtype=torch.bool), 0.05)
    size, method = size_of(torch.ones(3, 2)), AlgorithmConfig(beta=0.1, kl="gaussian")
    _, weighted = policy_loss(given, method, size)
    given.passes.factor = torch.full((2, 3), 2.0)
    _, doubled = policy_loss(given, method, size)
    given.passes.factor = None
    _, plain = policy_loss(given, method, size)
    assert doubled["kl"] == plain["kl"] == weighted["kl"]
    assert doubled["policy_loss"] == 2 * plain["policy_loss"] != weighted["policy_loss"]


FILE = Path(__file__).parents[2] / "fixtures" / "flow" / "advantages.json"
KNOWN: dict[str, Any] = json.loads(FILE.read_text())
TWO = torch.tensor([KNOWN["in/two"][key] for key in "ab"]).T
NAN = float("nan")


def expected(name: str) -> Tensor:
    return torch.tensor(KNOWN[name]["advantages"])


def test_the_worked_example_of_population_and_sample() -> None:
    rewards = torch.tensor([1, 0, 0.5, 0.2, 0.2, 0.8])

    def of(scale: str, deviation: str) -> list[float]:
        return group_advantages(rewards, 3, scale, deviation=deviation).tolist()

    group = [1.224445, -1.224445, 0, -0.706857, -0.706857, 1.413714]
    assert of("group", "population") == pytest.approx(group, abs=1e-6)
    batch = [1.409126, -1.409126, 0, -0.56365, -0.56365, 1.127301]
    assert of("batch", "population") == pytest.approx(batch, abs=1e-6)
    assert of("group", "sample")[:3] == pytest.approx([1, -1, 0], abs=3e-4)


@pytest.mark.parametrize("scale", ["group", "batch"])
def test_the_statistics_of_prompts_are_those_of_flow_grpo(scale: str) -> None:
    known, places = KNOWN["in/prompts"], defaultdict(list)
    for n, prompt in enumerate(known["prompts"]):
        places[prompt].append(n)
    longest = max(map(len, places.values()))
    rewards = torch.full((len(places), longest), NAN, dtype=torch.double)
    for row, own in zip(rewards, places.values(), strict=True):
        row[: len(own)] = torch.tensor(known["rewards"]).double()[own]
    found = group_advantages(rewards.flatten(), longest, scale, deviation="population")
    name = f"flow_grpo/tracker/grpo/global_std={scale == 'batch'}"
    order = torch.tensor([n for own in places.values() for n in own])
    shown = found[~rewards.flatten().isnan()]
    torch.testing.assert_close(shown, expected(name)[order], rtol=1e-6, atol=1e-6)


def test_the_statistics_of_groups_are_those_of_dance_grpo_and_unirl() -> None:
    rewards = torch.tensor(KNOWN["in/normal"]["rewards"])
    close = {"rtol": 5e-4, "atol": 1e-6}  # they add less than 1e-4 to the deviation
    found = group_advantages(rewards, 6, "group")
    torch.testing.assert_close(found, expected("dance/normal/use_group=True"), **close)
    name = "unirl/normalize_grouped/normal/"
    batch = group_advantages(rewards, 6, "batch")
    torch.testing.assert_close(batch, expected(name + "use_global_std=True"), **close)


def test_rewards_normalized_one_by_one_are_those_of_mixgrpo_and_of_gdpo() -> None:
    close, weights = {"rtol": 1e-3, "atol": 1e-4}, torch.tensor([0.75, 0.25])
    total = normalize_then_sum(TWO, weights, 6)
    mixed = group_advantages(total, 6, "none")
    torch.testing.assert_close(mixed, expected("mixgrpo/advantage_aggr/trim0"), **close)
    total = normalize_then_sum(TWO, weights, 6, "population")
    found = group_advantages(total, 6, "batch", deviation="population")
    name = "flow_factory/group_contiguous/gdpo/global_std=True"
    torch.testing.assert_close(found, expected(name), **close)
    partly = TWO.clone()
    partly[0], partly[1, 0] = NAN, NAN
    total = normalize_then_sum(partly, weights, 6)
    alone = 0.25 * group_advantages(partly[:, 1], 6, "group").double()
    assert total[0].isnan() and total[1] == alone[1], "a reward that does not apply adds nothing"


def test_a_step_credits_rewards_one_by_one_and_clips_what_is_far_out() -> None:
    """Through the weights, scales and names that a task gives its rewards."""
    entries = [
        {"name": name, "weight": weight, "scale": scale, "offset": 3.0, "reward": reward}
        for name, weight, scale, reward in (
            ("a", 0.75, 2.0, lambda batch: [TWO[int(s.completion), 0].item() for s in batch]),
            ("b", 0.25, -1.0, lambda batch: [TWO[int(s.completion), 1].item() for s in batch]),
        )
    ]
    scorer = Scorer(entries)
    scores = scorer.score([Sample("p", str(n)) for n in range(len(TWO))])
    config = SimpleNamespace(
        num_generations=6, shuffle_advantages=False, skip_zero_std_groups=False, accuracy_band=None
    )

    def credit(**columns: Any) -> Tensor:
        columns = {"multi_objective_aggregation": "normalize_then_sum", **columns}
        method = AlgorithmConfig(scale_rewards="none", **columns)
        task: Any = SimpleNamespace(name="t", config=config, algorithm=method, scorer=scorer)
        return assign_credit(task, scores, 0, 0, 0, 1).advantages

    each = [group_advantages(column, 6, "group") for column in TWO.T]
    wanted = 0.75 * each[0] - 0.25 * each[1]
    torch.testing.assert_close(credit(), wanted, rtol=1e-3, atol=1e-4)
    clipped = credit(adv_clip_max=0.5)
    torch.testing.assert_close(clipped, credit().clamp(-0.5, 0.5))
    assert float(wanted.abs().max()) > 0.6
    summed = credit(multi_objective_aggregation="sum_then_normalize")
    torch.testing.assert_close(
        summed, group_advantages(1.5 * TWO[:, 0] - 0.25 * TWO[:, 1], 6, "none")
    )
