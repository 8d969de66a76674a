"""Diversity metrics by name: their classes, and the built metrics of a configuration."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.config import ConfigError, check, check_choice
from mmrl.evaluation.diversity.metric import DiversityMetric
from mmrl.models.task_names import writes_images
from mmrl.rewards.registry.reward_options import check_options

DIVERSITY: dict[str, str] = {
    "clip": "mmrl.evaluation.diversity.clip:CLIPDiversity",
    "shapes": "mmrl.evaluation.diversity.shapes:ShapesDiversity",
    "text": "mmrl.evaluation.diversity.text:TextDiversity",
    "tokens": "mmrl.evaluation.diversity.tokens:TokenDiversity",
}


def check_metrics(entries: Sequence[Any], task: str, where: str) -> None:
    """Check the entries of a configuration without building anything.

    Args:
        entries: `{name: …, option: …}` each.
        task: layout of the prompts.
        where: dotted key of the entries, for messages.

    Raises:
        ConfigError: an unknown name or option, a metric that cannot read the completions of the
            task, or one that is named twice.
    """
    kind, names = "images" if writes_images(task) else "texts", []
    for n, entry in enumerate(entries):
        place = f"{where}[{n}]"
        if not isinstance(entry, Mapping):
            raise ConfigError(f"{place} is {entry!r}; it must be an entry, {{name: …}}.")
        found, _ = _resolve(entry, place)
        fits = [name for name in DIVERSITY if _class(name).reads in (kind, "both")]
        allowed, advice = f"one of {', '.join(fits)}", f"The task {task} makes {kind}."
        check(found.reads in (kind, "both"), f"{place}.name", entry["name"], allowed, advice)
        check(entry["name"] not in names, f"{place}.name", entry["name"], "named once")
        names.append(entry["name"])


def build_metrics(entries: Sequence[Mapping[str, Any]], where: str) -> list[DiversityMetric]:
    """Build the metrics of checked entries.

    Raises:
        ConfigError, FileNotFoundError, ValueError: see `check_metrics`; a checkpoint that is
            missing or damaged.
    """
    resolved = (_resolve(entry, f"{where}[{n}]") for n, entry in enumerate(entries))
    return [found(**options) for found, options in resolved]


def _resolve(entry: Mapping[str, Any], where: str) -> tuple[Any, dict[str, Any]]:
    """The class of an entry and all its options."""
    check_choice(f"{where}.name", entry.get("name"), DIVERSITY)
    found = _class(str(entry["name"]))
    options = {key: value for key, value in entry.items() if key != "name"}
    return found, check_options(found, options, where)


def _class(name: str) -> Any:
    module, _, attribute = DIVERSITY[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
