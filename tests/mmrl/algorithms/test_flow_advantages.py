"""Statistics of groups as methods of flow matching have them: worked numbers and public codes.

`tests/fixtures/flow/advantages.json` has advantages of public codes; each case names the function
and its commit.
"""

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig, group_advantages
from mmrl.algorithms.advantages import normalize_then_sum
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.rollouts.credit import assign_credit
from mmrl.types import Sample

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
