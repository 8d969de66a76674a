"""Rewards by name: their classes, their options, and the built reward of a configuration entry."""

import functools
import importlib
from collections.abc import Mapping
from typing import Any

from mmrl.config import ConfigError, check, check_choice
from mmrl.config.by_name import find, is_by_name
from mmrl.rewards.http.protocols import is_client, resolve_client
from mmrl.rewards.registry.interface import Reward
from mmrl.rewards.registry.of_pixels import OfPixels, takes_pixels
from mmrl.rewards.registry.reward_options import check_options, check_own_options

REWARDS: dict[str, str] = {
    "aesthetic": "mmrl.rewards.aesthetic:AestheticReward",
    "answer": "mmrl.rewards.answer:AnswerReward",
    "clip": "mmrl.rewards.clip:CLIPReward",
    "code": "mmrl.rewards.code:CodeReward",
    "compositional": "mmrl.rewards.compositional:CompositionalReward",
    "countdown": "mmrl.rewards.countdown:CountdownReward",
    "cycle": "mmrl.rewards.cycle:CycleReward",
    "dsg": "mmrl.rewards.dsg:DSGReward",
    "format": "mmrl.rewards.format:FormatReward",
    "hps": "mmrl.rewards.hps:HPSReward",
    "hpsv3": "mmrl.rewards.hpsv3:HPSv3Reward",
    "imagereward": "mmrl.rewards.imagereward:ImageRewardReward",
    "jpeg": "mmrl.rewards.jpeg:JPEGReward",
    "judge": "mmrl.rewards.judge:JudgeReward",
    "math": "mmrl.rewards.math:MathReward",
    "ocr": "mmrl.rewards.ocr:OCRReward",
    "per_domain": "mmrl.rewards.per_domain:PerDomainReward",
    "pickscore": "mmrl.rewards.pickscore:PickScoreReward",
    "shapes": "mmrl.rewards.shapes:ShapesReward",
    "shapes_edit": "mmrl.rewards.shapes_edit:ShapesEditReward",
    "shapes_motion": "mmrl.rewards.shapes_motion:ShapesMotionReward",
    "soft_tifa": "mmrl.rewards.soft_tifa:SoftTIFAReward",
    "sudoku": "mmrl.rewards.sudoku:SudokuReward",
    "temporal": "mmrl.rewards.temporal:TemporalReward",
}

TERM_KEYS = ("name", "key", "weight", "scale", "offset", "frames")
"""Keys of a configuration entry that belong to the weighted sum, not to the reward itself."""


def reward_class(name: str, where: str = "reward.name") -> Any:
    """The class registered under a name, or the user's own function or class that it names."""
    if is_by_name(name):
        return find(name, where)
    module, _, attribute = REWARDS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def check_reward(entry: Mapping[str, Any] | str, where: str = "reward") -> dict[str, Any]:
    """Check an entry `{name: …, option: …}` without building the reward: a name, or a mapping of
    the name (or from Python a callable under `reward`), the options of that reward, and possibly
    the keys in `TERM_KEYS`; `where` is its dotted key, for messages.

    Returns all options of the reward with defaults filled in and types converted; those of the
    user's own reward without defaults. Raises ValueError: an unknown name, an unknown option or a
    value of the wrong type."""
    return _resolve(entry, where)[1]


def build_reward(entry: Mapping[str, Any] | str, where: str = "reward") -> Reward:
    """Build the reward an entry describes, see `check_reward`; what the call returns are raw
    scores, weight, scale and offset are left to `mmrl.rewards.scoring.scorer.Scorer`. Raises
    ValueError: see `check_reward`, and whatever the reward itself finds wrong. Raises
    FileNotFoundError: a checkpoint named by an option does not exist."""
    found, options = _resolve(entry, where)
    if isinstance(found, type):
        return found(**options)
    if takes_pixels(found):
        return OfPixels(found, options)
    return functools.partial(found, **options) if options else found


def has_gradient(entry: Mapping[str, Any], where: str = "reward") -> bool:
    """Whether the reward of an entry is `Differentiable`, before it is built."""
    found, _ = _resolve(entry, where)
    return hasattr(found, "score_pixels") or takes_pixels(found)


def is_own(entry: Mapping[str, Any]) -> bool:
    """Whether an entry names a function or class of the user's own."""
    return is_by_name(entry.get("name")) and not is_client(entry)


def options_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What of an entry is for the reward itself."""
    return {key: value for key, value in entry.items() if key not in (*TERM_KEYS, "reward")}


def _resolve(entry: Mapping[str, Any] | str, where: str) -> tuple[Any, dict[str, Any]]:
    """The class or function of an entry, and its checked options."""
    entry = {"name": entry} if isinstance(entry, str) else entry
    check(isinstance(entry, Mapping), where, entry, "a name or an entry, {name: …}")
    name, options = entry.get("name"), options_of(entry)
    if "reward" in entry:
        return entry["reward"], check_own_options(entry["reward"], options, where)
    if is_by_name(name) and not is_client(entry):
        found = reward_class(str(name), f"{where}.name")
        return found, check_own_options(found, options, where)
    if is_client(entry) and name:
        found, options = resolve_client({"name": str(name), **options}, where)
        return found, check_options(found, options, where)
    try:
        check_choice(f"{where}.name", name, REWARDS)
    except ConfigError as error:
        raise ConfigError(
            f"{error} A reward of your own is named path/to/file.py:function or module:Class."
        ) from None
    found = reward_class(str(name))
    return found, check_options(found, options, where)
