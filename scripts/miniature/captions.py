"""Captions of a parquet: their text, a key of what they ask for, and near misses."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq
import torch

OPPOSITE = {"right of": "left of", "below": "above"}


def load_captions(path: str) -> tuple[list[str], list[str]]:
    """Read the captions of a parquet file or folder, and for each a key of what it asks for."""
    table = pq.read_table(path, columns=["prompt", "metadata"])
    keys = [build_request_key(json.loads(row)) for row in table.column("metadata").to_pylist()]
    return table.column("prompt").to_pylist(), keys


def build_request_key(metadata: dict[str, Any]) -> str:
    """Build a key that is equal for rows of GenEval metadata that ask for the same thing, whatever
    the order and direction in which the prompt says it."""
    include = metadata["include"]
    facts = [
        json.dumps({k: v for k, v in clause.items() if k != "position"}, sort_keys=True)
        for clause in include
    ]
    for clause, fact in zip(include, list(facts), strict=True):
        if "position" in clause:
            relation, other = clause["position"]
            ends = (fact, facts[other])
            if relation in OPPOSITE:
                relation, ends = OPPOSITE[relation], ends[::-1]
            facts.append(json.dumps([relation, *ends]))
    return json.dumps(sorted(facts))


def draw_near_miss(
    caption: str,
    replace: Sequence[Sequence[str]],
    swap: Sequence[Sequence[str]],
    generator: torch.Generator,
) -> str | None:
    """Change one word of a caption, or None when no word can be changed.

    Args:
        caption: words separated by spaces.
        replace: lists of words; a word may become another of its list that the caption lacks.
        swap: lists of words; two words of one list may be swapped.
        generator: draws the kind of edit, where both are possible, and then one edit of it.
    """
    words = caption.split()
    kinds = [edits for edits in (_replace_words(words, replace), _swap_words(words, swap)) if edits]
    if not kinds:
        return None
    edits = kinds[int(torch.randint(len(kinds), (), generator=generator))]
    chosen = edits[int(torch.randint(len(edits), (), generator=generator))]
    return fix_articles(" ".join(chosen))


def _replace_words(words: list[str], lists: Sequence[Sequence[str]]) -> list[list[str]]:
    return [
        [*words[:place], other, *words[place + 1 :]]
        for choices in lists
        for place, word in enumerate(words)
        if word in choices
        for other in choices
        if other not in words
    ]


def _swap_words(words: list[str], lists: Sequence[Sequence[str]]) -> list[list[str]]:
    edits = []
    for choices in lists:
        places = [place for place, word in enumerate(words) if word in choices]
        if len(places) == 2 and words[places[0]] != words[places[1]]:
            first, second = places
            edit = list(words)
            edit[first], edit[second] = words[second], words[first]
            edits.append(edit)
    return edits


def fix_articles(caption: str) -> str:
    """Write "a" or "an" as the next word requires, so that articles do not reveal an edit."""
    caption = re.sub(r"\ba (?=[aeiou])", "an ", caption)
    return re.sub(r"\ban (?=[^aeiou])", "a ", caption)
