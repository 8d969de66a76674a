"""Rewards: a list of samples in, one raw documented score per sample out.

    build_reward({"name": "clip", "model": "ViT-L-14", "pretrained": "openai"})(samples)

A new reward is one file with a class whose constructor takes its options as typed keyword
arguments, and one line in `REWARDS`. The class is imported when the reward is first named and its
heavy imports belong inside the constructor, so listing rewards and checking a configuration stay
cheap. A score of None means "this reward does not apply to this sample"; a failure is an exception
and never a number (`rewards.scoring` counts it).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

from mmrl.config import check_choice
from mmrl.types import Sample
from rewards.options import check_options

REWARDS: dict[str, str] = {
    "answer": "rewards.answer:AnswerReward",
    "clip": "rewards.clip:CLIPReward",
    "code": "rewards.code:CodeReward",
    "countdown": "rewards.countdown:CountdownReward",
    "format": "rewards.format:FormatReward",
    "hps": "rewards.hps:HPSReward",
    "math": "rewards.math:MathReward",
    "shapes": "rewards.shapes:ShapesReward",
    "sudoku": "rewards.sudoku:SudokuReward",
}

TERM_KEYS = ("name", "key", "weight", "scale", "offset")
"""Keys of a configuration entry that belong to the weighted sum, not to the reward itself."""


class Reward(Protocol):
    """Scores a batch of samples of any length, in order."""

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """One raw score per sample; None where the reward does not apply."""
        ...


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
    text), `metadata`."""


def reward_class(name: str) -> type:
    """The class registered under `name`."""
    module, _, attribute = REWARDS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def check_reward(entry: Mapping[str, Any], where: str = "reward") -> dict[str, Any]:
    """Check an entry `{name: …, option: …}` without building the reward.

    Args:
        entry: the name, the options of that reward, and possibly the keys in `TERM_KEYS`.
        where: dotted key of the entry, for messages.

    Returns:
        All options of the reward with defaults filled in and types converted.

    Raises:
        ValueError: an unknown name, an unknown option or a value of the wrong type.
    """
    name = entry.get("name")
    check_choice(f"{where}.name", name, REWARDS)
    options = {key: value for key, value in entry.items() if key not in TERM_KEYS}
    return check_options(reward_class(str(name)), options, where)


def build_reward(entry: Mapping[str, Any], where: str = "reward") -> Reward:
    """Build the reward an entry describes; what the call returns are raw scores.

    Args:
        entry: see `check_reward`; weight, scale and offset are left to `rewards.scoring.Scorer`.
        where: dotted key of the entry, for messages.

    Raises:
        ValueError: see `check_reward`, and whatever the reward itself finds wrong.
        FileNotFoundError: a checkpoint named by an option does not exist.
    """
    options = check_reward(entry, where)
    return reward_class(str(entry["name"]))(**options)
