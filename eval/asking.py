"""What asks the policy for rewards: checked before anything loads, given to them once it has.

Answers are sampled as the held-out prompts of an evaluation are: without gradient, in step where
processes share the weights, each prompt with a generator named by its id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eval.evaluation import evaluate
from mmrl.config import check, merge
from mmrl.model_config import ModelConfig, check_task
from mmrl.samplers import SamplerConfig, check_sampler
from mmrl.types import Prompt
from rewards import in_step
from rewards.judging.asking import Answer, Asking, AsksPolicy, asking_of
from rewards.scoring.scorer import Scorer
from rewards.scoring.terms import check_entries, key_of

if TYPE_CHECKING:
    from models import Policy


def check_asking(entries: Sequence[Mapping[str, Any]], where: str, model: ModelConfig) -> None:
    """Check that the policy can answer what rewards ask of it.

    Args:
        entries: rewards of a configuration.
        where: their dotted key, for messages.
        model: settings of the policy.

    Raises:
        ConfigError: a wrong entry, a policy that is known not to have the task of its questions, or
            a sampler that cannot write the answers or whose draws depend on the batch.
    """
    if entries:
        check_entries(entries, where)
    for n, entry in enumerate(entries):
        asking = asking_of(entry, f"{where}[{n}]")
        if asking is None:
            continue
        check_task(model, asking.task, f"for what the reward {key_of(entry)} of {where} asks it")
        sampler = _sampler(asking, f"{where}[{n}].sampler")
        check_sampler(sampler, f"{where}[{n}].sampler", asking.length)
        check(
            sampler.rng == "compact",
            f"{where}[{n}].sampler.rng",
            sampler.rng,
            "compact",
            "The draws of reference depend on the batch.",
        )


def check_answerable(entries: Sequence[Mapping[str, Any]], sharded: bool) -> None:
    """Raise a ConfigError where one process scores for all and could not ask without the others."""
    asking = [key_of(entry) for n, entry in enumerate(entries) if asking_of(entry, f"rewards[{n}]")]
    check(
        not (sharded and asking),
        "rewards",
        asking,
        "rewards that ask no policy, because the processes share its weights",
        "Evaluate with the whole policy on each process.",
    )


def give_policy(scorer: Scorer, policy: Policy, seed: int) -> None:
    """Let the rewards that ask a policy ask this one; the others are left alone.

    Args:
        scorer: its rewards.
        policy: what answers, as it is whenever it is asked.
        seed: of the run; names the draws of the answers with the ids of the prompts.

    Raises:
        ConfigError: a reward that asks and does not say that the loop has to call it.
    """
    for term in scorer.terms:
        if isinstance(term.reward, AsksPolicy):
            check(
                in_step(term.reward),
                f"in_step of the reward {term.key}",
                False,
                "True",
                "It asks the policy, which no thread beside the loop may.",
            )
            term.reward.bind(_answer(policy, term.reward.asking(), seed))


def _answer(policy: Policy, asking: Asking, seed: int) -> Answer:
    sampler = _sampler(asking)

    def answer(prompts: Sequence[Prompt]) -> list[str]:
        found = evaluate(
            policy, prompts, sampler, None, seed, asking.batch_size, length=asking.length
        )
        return [str(completion) for completion in found.completions]

    return answer


def _sampler(asking: Asking, where: str = "sampler") -> SamplerConfig:
    return merge(SamplerConfig, dict(asking.sampler), where=where)
