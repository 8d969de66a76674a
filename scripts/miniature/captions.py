"""Captions of a parquet: their text, what they ask for, and near misses of them."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq
import torch

from mmrl.config import ConfigError

OPPOSITE = {"right of": "left of", "below": "above"}


def load_captions(path: str, column: str, metadata_column: str) -> tuple[list[str], list[str]]:
    """The captions of a parquet file or folder, and for each a text that is equal for captions
    which ask for the same thing (the caption itself when `metadata_column` is empty).

    Raises:
        ConfigError: there is no such column.
    """
    columns = [column, metadata_column] if metadata_column else [column]
    known = pq.ParquetDataset(path).schema.names
    missing = [name for name in columns if name not in known]
    if missing:
        raise ConfigError(f"'{path}' has no column '{missing[0]}'; it has {known}.")
    table = pq.read_table(path, columns=columns)
    captions = table.column(column).to_pylist()
    if not metadata_column:
        return captions, captions
    rows = table.column(metadata_column).to_pylist()
    return captions, [request_key(json.loads(row)) for row in rows]


def request_key(metadata: dict[str, Any]) -> str:
    """Text that is equal for two rows of GenEval metadata if they ask for the same thing,
    whatever the order and direction in which the prompt says it."""
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


def near_miss(
    caption: str,
    replace: Sequence[Sequence[str]],
    swap: Sequence[Sequence[str]],
    generator: torch.Generator,
) -> str | None:
    """The caption with one word exchanged, or None when it holds no exchangeable word.

    Args:
        caption: text of words separated by blanks.
        replace: lists of words; a word may become another of its list that the caption lacks.
        swap: lists of words; two of one list may change places.
        generator: draws the kind of edit, where both are possible, and then one edit of it.
    """
    words = caption.split()
    kinds = [edits for edits in (_replacements(words, replace), _swaps(words, swap)) if edits]
    if not kinds:
        return None
    edits = kinds[int(torch.randint(len(kinds), (), generator=generator))]
    chosen = edits[int(torch.randint(len(edits), (), generator=generator))]
    return with_articles(" ".join(chosen))


def _replacements(words: list[str], lists: Sequence[Sequence[str]]) -> list[list[str]]:
    return [
        [*words[:place], other, *words[place + 1 :]]
        for choices in lists
        for place, word in enumerate(words)
        if word in choices
        for other in choices
        if other not in words
    ]


def _swaps(words: list[str], lists: Sequence[Sequence[str]]) -> list[list[str]]:
    edits = []
    for choices in lists:
        places = [place for place, word in enumerate(words) if word in choices]
        if len(places) == 2 and words[places[0]] != words[places[1]]:
            first, second = places
            edit = list(words)
            edit[first], edit[second] = words[second], words[first]
            edits.append(edit)
    return edits


def with_articles(caption: str) -> str:
    """The caption with "a" or "an" as the next word wants, so that an edit does not show in it."""
    caption = re.sub(r"\ba (?=[aeiou])", "an ", caption)
    return re.sub(r"\ban (?=[^aeiou])", "a ", caption)
