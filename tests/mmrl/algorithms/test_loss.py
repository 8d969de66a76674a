"""The loss: cases by hand, the direction of its gradient, clipping, and what it counts."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig, LossInputs, load_algorithm, policy_loss
from mmrl.algorithms.aggregation import AGGREGATIONS, BatchSize
from mmrl.algorithms.bounds import BOUNDS
from mmrl.algorithms.presets import find_conflicts
from mmrl.algorithms.ratios import GAUSSIAN_KL, KL, RATIO_LEVELS
from mmrl.algorithms.surrogates import SURROGATES
from mmrl.config import ConfigError
from mmrl.generation.masked.hidden import Hidden
from mmrl.types import Gaussian, Passes, Scores

# one draw, two rollouts: two scored positions and one
SCORED = torch.tensor([[[True, False, True], [False, True, False]]])
SIZE = BatchSize(rollouts=2, tokens=3, entries=3, longest=3)
RATIOS = torch.tensor([[[1.1, 1.0, 0.5], [1.0, 1.5, 1.0]]])
ADVANTAGES = torch.tensor([1.0, -2.0])
REFERENCE = torch.full((1, 2, 3), -1.3)
BLOCKS = torch.tensor([[0, 0, 1], [0, 0, 1]])
SHAPE = torch.full((1, 2), 0.5), torch.full((1, 2), 0.1), torch.tensor([4, 2])
"""Deviation, interval and size of Gaussian steps, for the methods that read them."""
MEANS = [Gaussian(torch.full((1, 2, 4), mean), *SHAPE) for mean in (0.1, 0.1, 0.2)]
"""Of the policy, the old and the reference policy."""


def inputs(
    log_ratio: Tensor | None = None,
    advantages: Tensor = ADVANTAGES,
    scored: Tensor = SCORED,
    reference: Tensor | None = None,
) -> LossInputs:
    """New log-probs of -1 at the scored positions, old ones so that the ratios are `RATIOS`."""
    log_ratio = RATIOS.log() if log_ratio is None else log_ratio
    new = torch.full(scored.shape, -1.0) * scored
    old = (new - log_ratio) * scored
    passes = Passes(Hidden(scored), scored, scored.float(), blocks=BLOCKS)
    kept = None if reference is None else reference * scored
    scores = Scores(new.requires_grad_(), torch.ones_like(old), MEANS[0])
    other = None if kept is None else Scores(kept, gaussian=MEANS[2])
    return LossInputs(passes, scores, advantages, Scores(old, gaussian=MEANS[1]), other)


def loss(given: LossInputs, size: BatchSize = SIZE, **columns: Any) -> tuple[Tensor, dict]:
    return policy_loss(given, AlgorithmConfig(block_size=2, **columns), size)


def gradient(given: LossInputs, size: BatchSize = SIZE, **columns: Any) -> Tensor:
    given.new.logprobs.grad = None
    loss(given, size, **columns)[0].backward()
    assert given.new.logprobs.grad is not None
    return given.new.logprobs.grad


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        # clipped terms: 1.1 and 0.5 with advantage 1 (0.5 lies below the range, but the minimum
        # keeps it), 1.5 with advantage -2 (the minimum keeps -3 although the ratio is clipped)
        ("grpo", -((1.1 + 0.5) / 2 + (-3.0)) / 2),
        ("dapo", -(1.1 + 0.5 - 3.0) / 3),
        ("dr_grpo", -(1.1 + 0.5 - 3.0) / (2 * 3)),
    ],
)
def test_a_batch_by_hand(aggregation: str, expected: float) -> None:
    value, _ = loss(inputs(), aggregation=aggregation, epsilon=0.2)
    assert value.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("aggregation", "share"), [("grpo", 1.0), ("dapo", 1.0), ("dr_grpo", 3 / 6)]
)
def test_the_divergence_is_added_with_its_weight(aggregation: str, share: float) -> None:
    k3 = math.exp(-0.3) + 0.3 - 1
    columns = {"aggregation": aggregation, "kl": "k3"}
    with_kl, metrics = loss(inputs(reference=REFERENCE), beta=0.5, **columns)
    without, _ = loss(inputs(), beta=0.5, **columns)
    assert (with_kl - without).item() == pytest.approx(0.5 * k3 * share, rel=1e-5)
    assert float(metrics["kl"]) == pytest.approx(k3, rel=1e-5)


ROW = load_algorithm({"block_size": 2})
COLUMNS = [
    columns
    for bound in BOUNDS
    for level in RATIO_LEVELS
    for aggregation in AGGREGATIONS
    for columns in [{"bound": bound, "ratio_level": level, "aggregation": aggregation}]
    if not find_conflicts(replace(ROW, **columns))
] + [
    {"bound": "token", "ratio_level": "token", "aggregation": "dapo", "surrogate": name}
    for name in SURROGATES
]


def size_of(columns: dict[str, str]) -> BatchSize:
    """Of `SCORED`, whose bounds have one entry per rollout unless they keep the tokens."""
    return BatchSize(2, 3, 3 if columns["bound"] == "token" else 2, 3)


@pytest.mark.parametrize("columns", COLUMNS, ids=lambda c: "-".join(c.values()))
def test_a_positive_advantage_raises_logprobs_and_a_negative_lowers_them(columns: dict) -> None:
    size = size_of(columns)
    step = -gradient(inputs(torch.zeros(1, 2, 3)), size, **columns)
    assert bool((step[0, 0][SCORED[0, 0]] > 0).all())
    assert bool((step[0, 1][SCORED[0, 1]] < 0).all()) and bool((step[~SCORED] == 0).all())


def test_outside_the_range_a_ratio_has_a_gradient_only_back_towards_it() -> None:
    ratios = torch.tensor([[[1.5, 1.0, 0.5], [1.5, 1.0, 0.5]]]).log()
    scored = torch.tensor([[[True, False, True], [True, False, True]]])
    size = BatchSize(2, 4, 4, 3)
    step = gradient(inputs(ratios, torch.tensor([1.0, -1.0]), scored), size, epsilon=0.2)
    # advantage 1: 1.5 is far enough up; advantage -1: 0.5 is far enough down
    assert (step[0] != 0).tolist() == [[False, False, True], [True, False, False]]


def test_the_upper_range_can_be_wider_than_the_lower_one() -> None:
    given = inputs(torch.full((1, 2, 3), 1.25).log(), torch.tensor([1.0, 1.0]))
    narrow, clipped = loss(given, epsilon=0.2)
    wide, free = loss(given, epsilon=0.2, epsilon_high=0.3)
    assert narrow.item() == pytest.approx(-1.2) and wide.item() == pytest.approx(-1.25)
    assert float(clipped["clip_ratio/high_mean"]) == pytest.approx(1.0)
    assert float(free["clip_ratio/high_mean"]) == 0


def test_delta_bounds_the_ratio_of_negative_advantages_alone() -> None:
    ratios = torch.tensor([[[9.0, 1.0, 1.1], [9.0, 1.0, 1.1]]]).log()
    scored = torch.tensor([[[True, False, True], [True, False, True]]])
    given, size = inputs(ratios, torch.tensor([1.0, -1.0]), scored), BatchSize(2, 4, 4, 3)
    # advantage 1: the clip holds 9 at 1.2; advantage -1: only delta holds it
    free, held = loss(given, size)[0].item(), loss(given, size, delta=4.0)[0].item()
    assert free == pytest.approx(-((1.2 + 1.1) - (9 + 1.1)) / 4)
    assert held == pytest.approx(-((1.2 + 1.1) - (4 + 1.1)) / 4)
    step = gradient(given, size, delta=4.0)
    assert (step[0] != 0).tolist() == [[False, False, True], [False, False, True]]
    assert torch.equal(step[0, :, 2], gradient(given, size)[0, :, 2])


def test_clip_metrics_count_only_ratios_that_are_held_back() -> None:
    _, metrics = loss(inputs(), epsilon=0.2)
    # 0.5 with advantage 1 and 1.5 with advantage -2 move back into the range
    assert float(metrics["clip_ratio/low_mean"]) == 0 == float(metrics["clip_ratio/high_mean"])
    _, metrics = loss(inputs(advantages=-ADVANTAGES), epsilon=0.2)
    assert float(metrics["clip_ratio/low_mean"]) == pytest.approx(1 / 3)
    assert float(metrics["clip_ratio/high_mean"]) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "columns",
    [
        {"ratio_level": level, "kl": kl}
        for level in sorted(RATIO_LEVELS)
        for kl in [*KL, *GAUSSIAN_KL]
    ]
    + [{"surrogate": name} for name in SURROGATES],
    ids=lambda c: "-".join(c.values()),
)
def test_positions_that_were_not_hidden_change_nothing(columns: dict) -> None:
    columns = {**columns, "beta": 0.1}
    given, other = inputs(reference=REFERENCE), inputs(reference=REFERENCE)
    with torch.no_grad():
        for scores, value in ((other.new, 500.0), (other.old, -500.0), (other.reference, 500.0)):
            assert scores is not None
            scores.logprobs[~SCORED] = value
    one, another = (loss(case, **columns) for case in (given, other))
    assert torch.equal(one[0], another[0]) and torch.equal(one[1]["kl"], another[1]["kl"])
    assert torch.equal(one[1]["ratio"], another[1]["ratio"])
    assert torch.equal(gradient(given, **columns), gradient(other, **columns))


def of_rows(scores: Scores | None, rows: slice) -> Scores:
    assert scores is not None and scores.gaussian is not None
    mean, deviation, interval, size = scores.gaussian
    steps = Gaussian(mean[:, rows], deviation[:, rows], interval[:, rows], size[rows])
    entropy = None if scores.entropy is None else scores.entropy[:, rows]
    return Scores(scores.logprobs[:, rows], entropy, steps)


@pytest.mark.parametrize("columns", COLUMNS, ids=lambda c: "-".join(c.values()))
def test_parts_of_a_batch_add_up_to_its_loss_and_metrics(columns: dict) -> None:
    size = size_of(columns)
    whole, metrics = loss(inputs(reference=REFERENCE), size, beta=0.1, **columns)
    total, sums = torch.zeros(()), dict.fromkeys(metrics, 0.0)
    for row in (slice(0, 1), slice(1, 2)):
        full = inputs(reference=REFERENCE)
        new, old, reference = (of_rows(each, row) for each in (full.new, full.old, full.reference))
        part = LossInputs(full.passes[row], new, full.advantages[:, row], old, reference)
        value, some = loss(part, size, beta=0.1, **columns)
        total = total + value
        sums = {name: sums[name] + float(some[name]) for name in sums}
    torch.testing.assert_close(total, whole)
    assert sums == pytest.approx({name: value.item() for name, value in metrics.items()})


def test_gmpo_is_the_geometric_mean_of_ratios_clipped_where_they_gain() -> None:
    # rollout 0 (advantage 1): 1.1 and 0.5, below the range but losing; rollout 1 (-2): 1.5, gaining
    value, metrics = loss(inputs(), aggregation="gmpo", epsilon=0.2)
    expected = -((1.1 * 0.5) ** 0.5 - 2 * 1.5) / 2
    assert value.item() == pytest.approx(expected)
    value, metrics = loss(inputs(advantages=-ADVANTAGES), aggregation="gmpo", epsilon=0.2)
    expected = -(-((1.1 * math.exp(-0.2)) ** 0.5) + 2 * math.exp(0.2)) / 2
    assert value.item() == pytest.approx(expected)
    assert float(metrics["clip_ratio/low_mean"]) == pytest.approx(1 / 3)
    assert float(metrics["clip_ratio/high_mean"]) == pytest.approx(1 / 3)


def test_the_divergence_can_be_that_of_the_bounds_per_response_token() -> None:
    given = inputs(reference=REFERENCE)
    given.passes.length = torch.tensor([4, 2])
    columns = {"bound": "elbo", "ratio_level": "sequence", "kl": "k2", "kl_level": "bound"}
    with_kl, metrics = loss(given, size_of(columns), beta=0.5, **columns)
    without, _ = loss(given, size_of(columns), **columns)
    # sums of log-probs: -2 against -2.6, -1 against -1.3
    expected = (0.6**2 / 2 / 4 + 0.3**2 / 2 / 2) / 2
    assert (with_kl - without).item() == pytest.approx(0.5 * expected, rel=1e-4)
    assert float(metrics["kl"]) == pytest.approx(expected, rel=1e-4)


def test_the_worked_example_of_the_public_trace_loss() -> None:
    # one row of three tokens; the public policy script divides both terms by their number
    new, old = torch.tensor([[[-1.0, -0.5, -2.0]]]), torch.tensor([[[-1.2, -0.9, -1.9]]])
    scored = torch.ones(1, 1, 3, dtype=torch.bool)
    passes, size = Passes(Hidden(scored), scored, scored.float()), BatchSize(1, 3, 3, 3)
    given = LossInputs(passes, Scores(new), torch.tensor([1.5]), Scores(old), Scores(old))
    value, metrics = policy_loss(given, AlgorithmConfig(beta=0.01, kl="k3"), size)
    assert float(metrics["policy_loss"]) == pytest.approx(-1.6524187, abs=1e-6)
    assert 3 * float(metrics["kl"]) == pytest.approx(0.0942217, abs=1e-6)
    assert value.item() == pytest.approx(-1.6521046, abs=1e-6)
    _, metrics = policy_loss(given, AlgorithmConfig(beta=0.01, kl="k1"), size)
    assert 3 * float(metrics["kl"]) == pytest.approx(0.5, abs=1e-6)


def test_the_weight_of_the_kl_follows_its_target() -> None:
    method = AlgorithmConfig(beta=0.04, kl_target=0.1, kl_horizon=10)
    for divergence, factor in ((0.11, 1.01), (0.1, 1.0), (5.0, 1.02), (0.0, 0.98)):
        before = method.beta
        method.adapt_beta(divergence)
        assert method.beta == pytest.approx(before * factor)
    with pytest.raises(ConfigError, match="beta is 0, and kl_target"):
        load_algorithm({"name": "dapo", "beta": 0, "kl_target": 0.1})
