"""Rewards that ask the policy questions.

A reward sees samples and no policy. A reward that needs answers of the policy describes how it asks
(`query`), and the caller that has the policy passes it a function from prompts to answers
(`bind`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from mmrl.rewards import build_reward, reward_class
from mmrl.rewards.http.protocols import is_client
from mmrl.types import Prompt

Answer = Callable[[Sequence[Prompt]], list[str]]
"""Answers the policy gives to prompts. A prompt's `id` seeds its answer, which therefore depends
neither on the other prompts of a call nor on the number of calls."""


@dataclass(frozen=True)
class PolicyQuery:
    """How a reward asks: the task of its prompts, response positions and sampler of an answer, how
    many are answered at once, which changes speed and memory only, and which policy of the run, ""
    for the one whose completions it scores."""

    task: str
    length: int
    sampler: Mapping[str, Any]
    batch_size: int
    policy: str = ""


@runtime_checkable
class AsksPolicy(Protocol):
    """A reward that asks the policy whose samples it scores, or another of the run.

    It has `in_step = True` (`mmrl.rewards.registry.interface.InStep`): processes that share the
    weights answer in step, so the loop calls the reward itself, equally often on every process and
    never while the policy samples. The reward asks once per call, even without a question, and is
    cheap to build because it loads no model.
    """

    def query(self) -> PolicyQuery:
        """Describe how it asks; called before any policy is loaded."""
        ...

    def bind(self, answer: Answer) -> None:
        """Take the function that asks the policy, before the first sample is scored."""
        ...


def read_query(entry: Mapping[str, Any], where: str) -> PolicyQuery | None:
    """Read how the reward of a checked configuration entry asks; None if it does not ask."""
    reward = entry.get("reward")
    if reward is None and not is_client(entry) and asks_policy(str(entry["name"]), f"{where}.name"):
        reward = build_reward(entry, where)
    if isinstance(reward, type) or not isinstance(reward, AsksPolicy):
        return None
    return reward.query()


def asks_policy(name: str, where: str = "reward.name") -> bool:
    """Whether the reward of that name asks the policy."""
    found = reward_class(name, where)
    return isinstance(found, type) and issubclass(found, AsksPolicy)
