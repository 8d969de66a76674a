"""Rewards that have the policy answer prompts.

A reward sees samples and no policy. One that needs the policy's answer about a sample says how it
asks (`asking`), and the caller that has the policy gives it a function from prompts to answers
(`bind`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from mmrl.types import Prompt
from rewards import build_reward, reward_class
from rewards.http.protocols import is_client

Answer = Callable[[Sequence[Prompt]], list[str]]
"""What the policy says to each prompt. A prompt's `id` names the draws of its answer, so the answer
depends neither on the other prompts of a call nor on how many calls there are."""


@dataclass(frozen=True, kw_only=True)
class Asking:
    """How a reward asks.

    Attributes:
        task: layout of its prompts.
        length: response positions of an answer.
        sampler: settings of the sampler.
        batch_size: prompts answered at once; changes speed and memory only.
    """

    task: str
    length: int
    sampler: Mapping[str, Any]
    batch_size: int


@runtime_checkable
class AsksPolicy(Protocol):
    """A reward that asks the policy whose samples it scores.

    It says `in_step = True` (`rewards.InStep`): the loop calls it itself and on every process
    equally often, never beside a sampling of the policy, because where processes share its weights
    they answer in step. It asks once per call, with no prompt where it has no question, and it is
    cheap to build: no model is its own.
    """

    def asking(self) -> Asking:
        """How it asks; known before any policy is loaded."""
        ...

    def bind(self, answer: Answer) -> None:
        """Take what asks the policy, before the first sample is scored."""
        ...


def asking_of(entry: Mapping[str, Any], where: str) -> Asking | None:
    """How the reward of a checked configuration entry asks; None where it asks nothing."""
    reward = entry.get("reward")
    if reward is None and not is_client(entry) and asks_policy(str(entry["name"]), f"{where}.name"):
        reward = build_reward(entry, where)
    if isinstance(reward, type) or not isinstance(reward, AsksPolicy):
        return None
    return reward.asking()


def asks_policy(name: str, where: str = "reward.name") -> bool:
    """Whether the reward of that name asks the policy."""
    found = reward_class(name, where)
    return isinstance(found, type) and issubclass(found, AsksPolicy)
