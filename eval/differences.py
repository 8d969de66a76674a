"""Paired differences between the scores of two checkpoints on the same prompts.

With the mean score of a prompt's samples s_p, the differences d_p = s_p - s'_p of P prompts have

    mean d̄,  stderr = √(Σ_p (d_p - d̄)² / (P - 1) / P),  interval d̄ ± t(P - 1, 97.5 %) · stderr

and their signs the two-sided sign test, which leaves ties out. As both checkpoints got the same
prompts, the standard error is smaller than that of two independent means wherever prompts that are
hard for one are hard for the other. The difference of the mean over tags is the mean of the tags'
differences, its variance the sum of theirs over the squared number of tags.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from scipy.special import bdtr, ndtri, stdtrit  # `scipy.stats` takes a second to import

from mmrl.config import ConfigError
from mmrl.evaluation.evaluation import Evaluation
from mmrl.evaluation.means import OVER_PROMPTS, OVER_TAGS, UNTAGGED
from mmrl.evaluation.results import format_table

Row = dict[str, float | None]
"""`first` and `second` (means of the two), `difference`, `stderr`, `low` and `high` (of the 95 %
interval), `p` (of the sign test), `wins`, `ties`, `losses` (prompts), `n` (prompts); None where
there are too few prompts."""
_TIED = 1e-9


def compare_evaluations(first: Evaluation, second: Evaluation) -> dict[str, dict[str, Row]]:
    """Rows of differences of each reward: `mean over prompts`, and where prompts have several tags
    every tag and the mean over them.

    Raises:
        ConfigError: the evaluations are of different prompts.
    """
    check_same_prompts(first, second)
    return {
        key: _compare_scores(first, first.scores[key], second.scores[key]) for key in first.scores
    }


def check_same_prompts(first: Evaluation, second: Evaluation) -> None:
    """Raise a ConfigError unless two evaluations have the same samples of the same prompts."""
    ours, theirs = ([(p.id, p.text) for p in each.prompts] for each in (first, second))
    if ours != theirs:
        differ = sorted({name for name, _ in set(ours) ^ set(theirs)})
        raise ConfigError(
            f"the checkpoints were evaluated on different prompts: {len(differ)} differ, such as"
            f" {', '.join(differ[:3])}. One of them takes shorter prompts: raise"
            " model.max_prompt_length, or shorten max_completion_length. The results of each are"
            " written."
        )


def _compare_scores(
    about: Evaluation, ours: Sequence[float], theirs: Sequence[float]
) -> dict[str, Row]:
    tags: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for prompt, a, b in zip(about.prompts, ours, theirs, strict=True):
        if not (math.isnan(a) or math.isnan(b)):
            tag = str(prompt.metadata.get("tag", UNTAGGED))
            tags[tag][prompt.id].append((a, b))
    if not tags:
        return {}
    rows = {tag: compare_pairs(prompts) for tag, prompts in tags.items()}
    over_tags = {OVER_TAGS: _over_tags(list(rows.values()))}
    whole = {name: pairs for prompts in tags.values() for name, pairs in prompts.items()}
    total = {OVER_PROMPTS: compare_pairs(whole)}
    return {**rows, **over_tags, **total} if len(rows) > 1 else total


def compare_pairs(prompts: Mapping[str, Sequence[tuple[float, float]]]) -> Row:
    """The differences of (first, second) scores, by prompt; at least one."""
    pairs = [
        tuple(statistics.fmean(side) for side in zip(*some, strict=True))
        for some in prompts.values()
    ]
    differences = [a - b for a, b in pairs]
    number, mean = len(pairs), statistics.fmean(differences)
    wins = sum(d > _TIED for d in differences)
    losses = sum(d < -_TIED for d in differences)
    error = statistics.stdev(differences) / math.sqrt(number) if number > 1 else None
    row: Row = {
        "first": statistics.fmean(a for a, _ in pairs),
        "second": statistics.fmean(b for _, b in pairs),
        "difference": mean,
        "stderr": error,
        **_interval(mean, error, float(stdtrit(max(1, number - 1), 0.975))),
        "p": min(1.0, 2 * float(bdtr(min(wins, losses), wins + losses, 0.5))),
        "wins": wins,
        "ties": number - wins - losses,
        "losses": losses,
        "n": number,
    }
    return row


def _over_tags(rows: Sequence[Row]) -> Row:
    """The mean over tags: every tag counts the same, whatever its number of prompts."""
    values = {key: [row[key] for row in rows] for key in rows[0]}
    errors = [error for error in values["stderr"] if error is not None]
    complete = len(errors) == len(rows)
    error = math.sqrt(math.fsum(e * e for e in errors)) / len(rows) if complete else None
    means = {
        key: statistics.fmean(value or 0.0 for value in values[key])
        for key in ("first", "second", "difference")
    }
    sums = {k: sum(int(v or 0) for v in values[k]) for k in ("wins", "ties", "losses", "n")}
    interval = _interval(means["difference"], error, float(ndtri(0.975)))
    return {**means, "stderr": error, **interval, "p": None, **sums}


def _interval(mean: float, error: float | None, factor: float) -> Row:
    if error is None:
        return {"low": None, "high": None}
    return {"low": mean - factor * error, "high": mean + factor * error}


_COLUMNS = (("first", 9), ("second", 9), ("difference", 18), ("95 % interval", 19), ("p", 9))
_COUNTS = ("wins", "ties", "losses", "n")


def format_differences(title: str, rows: Mapping[str, Row]) -> str:
    """A line per row: both means, difference ± standard error, interval, p, counts of prompts."""
    width = max(map(len, (title, *rows))) + 2
    heads = [*_COLUMNS, *((name, 8) for name in _COUNTS)]
    return format_table(title, heads, {label: _cells(row) for label, row in rows.items()}, width)


def _cells(row: Row) -> list[str]:
    error, low, high, p = (row[key] for key in ("stderr", "low", "high", "p"))
    return [
        f"{row['first']:.3f}",
        f"{row['second']:.3f}",
        f"{row['difference']:+.3f}" + ("" if error is None else f" ± {error:.3f}"),
        "-" if low is None else f"{low:+.3f} to {high:+.3f}",
        "-" if p is None else f"{p:.2g}",
        *(f"{row[key]}" for key in _COUNTS),
    ]
