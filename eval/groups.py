"""Scores of the prompts that share a tag, a form of answer, or another value of their metadata.

Benchmarks of questions about images report them per category: SEED-Bench (arXiv 2307.16125) by kind
of question, MMMU (2311.16502) by subject and discipline, MathVista (2310.02255) by task and skill.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from eval.text_table import Row, quality
from mmrl.config import ConfigError
from mmrl.types import Prompt

USUAL = ("tag", "form")
"""What prompts are grouped by where nothing else is asked for."""

Groups = dict[str, dict[str, Row]]
"""Key of the metadata -> its value -> scores."""


def sizes(
    prompts: Sequence[Prompt], keys: Sequence[str] | None = None
) -> dict[str, dict[str, int]]:
    """How many prompts share each value of their metadata, by key and in the order of the file.

    Args:
        prompts: of a benchmark.
        keys: what to group by; None takes those of `USUAL` that tell prompts apart. A prompt whose
            value is a list counts under each of its members.

    Raises:
        ConfigError: no prompt has such a key.
    """
    chosen = USUAL if keys is None else keys
    counted = {key: {v: len(p) for v, p in _places(prompts, key).items()} for key in chosen}
    if keys is None:
        return {key: counts for key, counts in counted.items() if len(counts) > 1}
    for key, counts in counted.items():
        if prompts and not counts:
            known = sorted({name for prompt in prompts for name in prompt.metadata})
            raise ConfigError(f"group_by names {key!r}, and no prompt has it; they have {known}.")
    return counted


def by_group(
    prompts: Sequence[Prompt],
    scores: Mapping[str, Sequence[float]],
    num_samples: int,
    keys: Sequence[str] | None = None,
) -> Groups:
    """Scores of one setting for every value of the metadata.

    Args:
        prompts: one per score.
        scores: see `eval.text_table.quality`, which makes every row.
        num_samples: completions per prompt.
        keys: see `sizes`.
    """
    groups: Groups = {}
    for key in sizes(prompts, keys):
        groups[key] = {
            value: quality(
                [prompts[n] for n in places],
                {name: [each[n] for n in places] for name, each in scores.items()},
                num_samples,
            )
            for value, places in _places(prompts, key).items()
        }
    return groups


def _places(prompts: Sequence[Prompt], key: str) -> dict[str, list[int]]:
    """Where the prompts of each value are."""
    places: dict[str, list[int]] = defaultdict(list)
    for n, prompt in enumerate(prompts):
        for value in _values(prompt.metadata.get(key)):
            places[value].append(n)
    return dict(places)


def _values(value: Any) -> list[str]:
    if value is None:
        return []
    return list(dict.fromkeys(map(str, value))) if isinstance(value, list) else [str(value)]
