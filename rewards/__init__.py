"""Rewards: a list of samples in, one raw documented score per sample out.

    build_reward({"name": "clip", "model": "ViT-L-14", "pretrained": "openai"})(samples)

A new reward is one file with a class whose constructor takes its options as typed keyword
arguments, and one line in `REWARDS`. The class is imported when the reward is first named and its
heavy imports belong inside the constructor, so listing rewards and checking a configuration stay
cheap. A score of None means "this reward does not apply to this sample"; a failure is an exception
and never a number (`rewards.scoring.scorer` counts it). A reward with `cutting` judges the chunks
of a completion and returns a list of scores for each sample, one per chunk. An entry with `mode:
client` names a reward that a server gives (`rewards.http.protocols`); a name with a colon is that
of a function or class of one's own (`rewards.own`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from mmrl.config import ConfigError, check_choice
from mmrl.config.by_name import find, is_by_name
from mmrl.types import Cutting, Sample
from rewards import own
from rewards.http.protocols import client_of, is_client
from rewards.options import check_options

REWARDS: dict[str, str] = {
    "aesthetic": "rewards.aesthetic:AestheticReward",
    "answer": "rewards.answer:AnswerReward",
    "clip": "rewards.clip:CLIPReward",
    "clip_direction": "rewards.clip_direction:CLIPDirectionReward",
    "code": "rewards.code:CodeReward",
    "compositional": "rewards.compositional:CompositionalReward",
    "countdown": "rewards.countdown:CountdownReward",
    "cycle": "rewards.cycle:CycleReward",
    "format": "rewards.format:FormatReward",
    "hps": "rewards.hps:HPSReward",
    "imagereward": "rewards.imagereward:ImageRewardReward",
    "jpeg": "rewards.jpeg:JPEGReward",
    "judge": "rewards.judge:JudgeReward",
    "math": "rewards.math:MathReward",
    "ocr": "rewards.ocr:OCRReward",
    "pickscore": "rewards.pickscore:PickScoreReward",
    "shapes": "rewards.shapes:ShapesReward",
    "sudoku": "rewards.sudoku:SudokuReward",
}

TERM_KEYS = ("name", "key", "weight", "scale", "offset")
"""Keys of a configuration entry that belong to the weighted sum, not to the reward itself."""


class Reward(Protocol):
    """Scores a batch of samples of any length, in order."""

    def __call__(self, samples: list[Sample]) -> Sequence[float | Sequence[float] | None]:
        """One raw score per sample, or one per chunk of it; None where the reward does not apply.

        Raises:
            PartialFailure: some samples could not be scored; those that could have their scores.
        """
        ...


class PartialFailure(RuntimeError):
    """Some samples of a batch could not be scored.

    Attributes:
        results: what the call would have returned, with an exception for each of those samples.
    """

    def __init__(self, results: Sequence[float | Sequence[float] | None | Exception]) -> None:
        self.results = list(results)
        errors = [result for result in results if isinstance(result, Exception)]
        super().__init__(
            f"{len(errors)} of {len(results)} samples could not be scored; first: {errors[0]}"
        )


@runtime_checkable
class CutsCompletions(Protocol):
    """A reward that may judge the chunks of completions; `cutting` is None where it does not."""

    cutting: Cutting | None


@runtime_checkable
class InStep(Protocol):
    """A reward that the loop has to call itself.

    Others are called in threads of their own while the next groups are sampled, each process for
    itself. One that asks the policy, or in which processes take part together, says `in_step =
    True`: it is called in the main thread when all tasks have been sampled, once per step and task
    with all samples of the process (none, where an evaluation has none for it), and in the same
    order on every process.
    """

    in_step: bool


@runtime_checkable
class Served(Protocol):
    """A reward that something outside this process gives."""

    def ready(self) -> str:
        """Why it could not score now, found out within seconds; empty if it could."""
        ...


@runtime_checkable
class Versioned(Protocol):
    """A served reward whose server says which version of it scores."""

    versions: set[str]
    """Those that have scored so far; more than one do not compare."""


@runtime_checkable
class ChecksMetadata(Protocol):
    """A reward that knows before anything is sampled which prompts it could not score."""

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where the metadata of a prompt is not what the reward reads."""
        ...


@runtime_checkable
class Described(Protocol):
    """A reward that says what those have to know who only see it served."""

    scale: ClassVar[str]
    """Range of its raw scores."""
    needs: ClassVar[tuple[str, ...]]
    """What a sample has to bring: `prompt`, `images` (a picture as its completion), `completion` (a
    text), `metadata`. A reward of pictures and texts alike names neither of the two."""


def in_step(reward: Reward) -> bool:
    """Whether the loop has to call a reward itself."""
    return isinstance(reward, InStep) and reward.in_step


def reward_class(name: str, where: str = "reward.name") -> Any:
    """The class registered under `name`, or the function or class of one's own that it names."""
    if is_by_name(name):
        return find(name, where)
    module, _, attribute = REWARDS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def check_reward(entry: Mapping[str, Any], where: str = "reward") -> dict[str, Any]:
    """Check an entry `{name: …, option: …}` without building the reward.

    Args:
        entry: the name, the options of that reward, and possibly the keys in `TERM_KEYS`.
        where: dotted key of the entry, for messages.

    Returns:
        All options of the reward with defaults filled in and types converted; those of one's own
        reward without the defaults.

    Raises:
        ValueError: an unknown name, an unknown option or a value of the wrong type.
    """
    found, options = _resolved(entry, where)
    check = own.checked if is_own(entry) else check_options
    return check(found, options, where)


def build_reward(entry: Mapping[str, Any], where: str = "reward") -> Reward:
    """Build the reward an entry describes; what the call returns are raw scores.

    Args:
        entry: see `check_reward`; weight, scale and offset are left to
            `rewards.scoring.scorer.Scorer`.
        where: dotted key of the entry, for messages.

    Raises:
        ValueError: see `check_reward`, and whatever the reward itself finds wrong.
        FileNotFoundError: a checkpoint named by an option does not exist.
    """
    found, options = _resolved(entry, where)
    if is_own(entry):
        return own.built(found, options, where)
    return found(**check_options(found, options, where))


def is_own(entry: Mapping[str, Any]) -> bool:
    """Whether an entry names a function or class of one's own."""
    return is_by_name(entry.get("name")) and not is_client(entry)


def options_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What of an entry is for the reward itself."""
    return {key: value for key, value in entry.items() if key not in (*TERM_KEYS, "reward")}


def _resolved(entry: Mapping[str, Any], where: str) -> tuple[Any, dict[str, Any]]:
    """The class or function of an entry, and the options that are written for it."""
    name, options = entry.get("name"), options_of(entry)
    if is_client(entry) and name:
        local = reward_class(str(name)) if name in REWARDS else None
        return client_of({"name": str(name), **options}, local, where)
    if not is_by_name(name):
        try:
            check_choice(f"{where}.name", name, REWARDS)
        except ConfigError as error:
            raise ConfigError(
                f"{error} A reward of your own is named path/to/file.py:function or module:Class."
            ) from None
    return reward_class(str(name), f"{where}.name"), options
