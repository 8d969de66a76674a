"""Reads the score in a judge's reply strictly; any other form is a failure.

Two wrappers that depend on how models are served are removed first: thoughts up to `</think>`, and
one Markdown fence around the whole reply.
"""

import json
import math
import re
from collections.abc import Iterable
from itertools import islice
from typing import Any

from mmrl.rewards.judging.template import Template
from mmrl.rewards.parsing.notation import spell

_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)\n?\s*```", re.DOTALL)


class ReplyError(ValueError):
    """A reply without a score in the requested form."""


class CutReply(str):
    """A reply that ended at `max_tokens`."""


def read_score(reply: str, template: Template) -> float:
    """The raw score in a reply. Raises ReplyError: it is not of the template's form, or a number is
    out of range or none."""
    text = reply.rpartition("</think>")[2].strip()
    fence = _FENCE.fullmatch(text)
    text = fence[1] if fence else text
    if template.reply == "probability":
        return _in_range(float(text), template)
    return (_from_json if template.reply == "json" else _from_labels)(text, template)


def _from_json(text: str, template: Template) -> float:
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ReplyError(f"is no JSON ({error}): {text[:200]!r}") from error
    if not isinstance(found, dict) or set(found) != {"reason", "score"}:
        raise ReplyError(f"is not an object of reason and score: {text[:200]!r}")
    score = found["score"]
    if not isinstance(found["reason"], str):
        raise ReplyError(f"has the reason {found['reason']!r}, which is no text")
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise ReplyError(f"has the score {score!r}, which is no number")
    score = _in_range(score, template)
    if template.whole and score != int(score):
        raise ReplyError(f"has the score {score:g}, which is no whole number")
    return score


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def sum_yes(words: Iterable[tuple[str, float]]) -> str:
    """The probability of yes, of words that may come first with their log-probs, as a reply."""
    found = (math.exp(logprob) for word, logprob in words if word.strip().lower() == "yes")
    return repr(min(1.0, sum(found)))


def _from_labels(text: str, template: Template) -> float:
    scores = [_read_labels(text, label, template) for label in template.labels]
    if template.groups:
        rest = iter(scores)
        lowest = [min(islice(rest, size)) for size in template.groups]
        return math.prod(lowest) ** (1 / len(lowest))
    weights = template.weights or [1.0] * len(scores)
    return sum(w * score for w, score in zip(weights, scores, strict=True)) / sum(weights)


def _read_labels(text: str, label: str, template: Template) -> float:
    """What the last line or sentence says that begins with a label; others speak about it."""
    pattern = (
        rf"(?:^|[.!?;]\s)[^\w\n]*{re.escape(label)}\s+Score[*_\s]*(?:\([^()]*\)[*_\s]*)?[:=][*_\s]*"
        r"([+-]?(?:\d+\.?\d*|\.\d+))(?![\w.,-]*\d)"
    )
    found = re.findall(pattern, spell(text), re.IGNORECASE | re.MULTILINE)
    if not found:
        raise ReplyError(f"has no line '{label} Score: …': {text[:200]!r}")
    return _in_range(float(found[-1]), template)


def _in_range(score: float, template: Template) -> float:
    if not template.lowest <= score <= template.highest:  # neither is a NaN, nor is infinity
        allowed = f"{template.lowest:g} to {template.highest:g}"
        raise ReplyError(f"has the score {str(score)[:20]}, and {allowed} was asked for")
    return float(score)
