"""Rewards that query the policy: checked before it loads, bound to it afterwards.

Answers are sampled like those of an evaluation: without gradient, in step where processes share the
weights, each prompt with a generator named by its id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mmrl.config import check, check_choice, merge
from mmrl.pretrained.checks import check_task
from mmrl.pretrained.known import Known
from mmrl.rewards.judging.policy_query import AsksPolicy, read_query
from mmrl.rewards.registry.interface import in_step
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.rewards.scoring.terms import check_entries, key_of
from mmrl.rollouts.held_out import evaluate
from mmrl.samplers import SamplerConfig, check_sampler
from mmrl.types import Prompt

if TYPE_CHECKING:
    from mmrl.models import Policy


def check_queries(
    entries: Sequence[Mapping[str, Any]], where: str, knowns: Mapping[str, Known]
) -> None:
    """Check that the policies can answer what rewards at the dotted key `where` ask of them, by
    their names, "" for the one that is scored. Raises ConfigError: a wrong entry, a policy that is
    not there or known not to have the task of its questions, or a sampler that cannot write the
    answers."""
    if entries:
        check_entries(entries, where)
    for n, entry in enumerate(entries):
        query = read_query(entry, f"{where}[{n}]")
        if query is None:
            continue
        check_choice(f"{where}[{n}].policy", query.policy, knowns)
        purpose = f"for what the reward {key_of(entry)} of {where} asks it"
        check_task(knowns[query.policy], query.task, purpose)
        sampler = merge(SamplerConfig, dict(query.sampler), where=f"{where}[{n}].sampler")
        check_sampler(sampler, f"{where}[{n}].sampler", query.length)


def check_queries_unsharded(entries: Sequence[Mapping[str, Any]], sharded: bool) -> None:
    """Raise a ConfigError for rewards that query the policy where one process scores for all and
    the processes share the weights."""
    keys = [key_of(entry) for n, entry in enumerate(entries) if read_query(entry, f"rewards[{n}]")]
    allowed = "rewards that ask no policy, because the processes share its weights"
    advice = "Evaluate with the whole policy on each process."
    check(not (sharded and keys), "rewards", keys, allowed, advice)


def bind_policy(scorer: Scorer, policies: Mapping[str, Policy], seed: int) -> None:
    """Give the rewards that query a policy access to it, by its name in the run, "" for the one
    whose completions they score, with its weights at the time of the query; other rewards are not
    changed. The seed of the run names the draws of the answers with the ids of the prompts. Raises
    ConfigError: a reward that queries without `in_step`, or a policy that is not there."""
    for term in scorer.terms:
        if isinstance(term.reward, AsksPolicy):
            key = f"in_step of the reward {term.key}"
            advice = "It queries the policy, which only the loop itself may."
            check(in_step(term.reward), key, False, "True", advice)
            name = term.reward.query().policy
            check_choice(f"policy of the reward {term.key}", name, policies)
            _bind(term.reward, policies[name], seed)


def _bind(reward: AsksPolicy, policy: Policy, seed: int) -> None:
    query = reward.query()
    sampler = merge(SamplerConfig, dict(query.sampler), where="sampler")

    def answer(prompts: Sequence[Prompt]) -> list[str]:
        found = evaluate(
            policy, prompts, sampler, None, seed, query.batch_size, length=query.length
        )
        return [str(completion) for completion in found.completions]

    reward.bind(answer)
