"""Completions of partly written rollouts, and the credit that reaches the update."""

from pathlib import Path

import pytest
import torch

from mmrl.algorithms.completion_value import slice_trace
from mmrl.models import load_policy
from mmrl.models.policy import Policy
from mmrl.pretrained.model_config import policy_options
from mmrl.rl import train
from mmrl.rollouts.lookahead import look_ahead
from mmrl.rollouts.rollout import RolloutBatch, sample_groups, score_groups
from mmrl.rollouts.tasks import Task
from mmrl.samplers import SamplerConfig
from tests.mmrl.runs import World, metrics, run_config
from tests.mmrl.test_text_rl import text_config

VALUE = {"completion_value": {"slices": 3}, "scale_rewards": "batch"}


def sampled(world: World, folder: Path, **task: object) -> tuple[Policy, RolloutBatch]:
    task = {"sampler": SamplerConfig(steps=16), **task}
    config = run_config(world, folder, algorithm=VALUE, task=task)
    policy = load_policy(**policy_options(config.model))
    job = Task("shapes", config.tasks["shapes"])
    return policy, score_groups(sample_groups(job, policy, 0, 0, 0, 1))


def test_a_completion_keeps_what_was_written_and_fills_the_rest_with_the_most_likely_tokens(
    world: World, tmp_path: Path
) -> None:
    policy, batch = sampled(world, tmp_path)
    canvas = batch.rollout.canvas
    slices = slice_trace(batch.rollout.trace, canvas.counted, 3)
    done = [canvas for _, canvas in look_ahead(policy, batch.rollout, 3, rows=3)]
    assert [len(part) for part in done] == [3, 3, 2] * 2
    for k in (1, 2):
        tokens = torch.cat([part.tokens for part in done[3 * k - 3 : 3 * k]])
        open_ = slices >= k
        assert torch.equal(tokens[~open_], canvas.tokens[~open_])
        with torch.no_grad():
            hidden = canvas.hide(open_)
            logits = policy.model(hidden.tokens, attention_mask=hidden.attend).logits
        first, end = canvas.columns
        columns = logits[..., first:end].clone()
        columns[..., canvas.forbidden_columns] = -torch.inf
        assert torch.equal(tokens[open_], columns.argmax(-1)[open_] + first)


def test_every_position_gets_the_advantage_of_its_slice(world: World, tmp_path: Path) -> None:
    _, batch = sampled(world, tmp_path)
    assert batch.token_advantages is not None
    slices = slice_trace(batch.rollout.trace, batch.rollout.canvas.counted, 3)
    assert not bool(batch.token_advantages[slices < 0].any())
    for row, own in enumerate(batch.token_advantages):
        by_slice = [own[slices[row] == k].unique() for k in range(3)]
        assert all(len(values) == 1 for values in by_slice)
        assert float(sum(by_slice)) == pytest.approx(float(batch.advantages[row]), abs=1e-5)
    assert 0 <= batch.metrics["completion_value/explained_variance"] <= 1
    assert batch.select([2, 5]).token_advantages is not None


def test_rows_of_a_batch_are_credited_as_they_are_alone(world: World, tmp_path: Path) -> None:
    _, together = sampled(world, tmp_path, rollout_batch_size=8)
    _, apart = sampled(world, tmp_path, rollout_batch_size=1)
    assert together.token_advantages is not None and apart.token_advantages is not None
    torch.testing.assert_close(
        together.token_advantages, apart.token_advantages, atol=1e-4, rtol=1e-4
    )


def test_texts_are_completed_too(world: World, tmp_path: Path) -> None:
    config = text_config(world, tmp_path)
    config.tasks["shapes"].algorithm = {"name": "mask_grpo_text", **VALUE}
    updates = [line for line in metrics(train(config)) if "loss" in line]
    assert len(updates) == 2
    assert all("completion_value/explained_variance" in line for line in updates)
