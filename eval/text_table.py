"""Text benchmarks: one row per sampler setting, of scores and of what they cost.

With k samples of a prompt, avg@k is the mean of their scores, averaged over prompts. pass@k is the
chance that one of k samples is right, estimated from n >= k samples of which c are right (Chen et
al. 2021, arXiv 2107.03374):

    pass@k = mean over prompts of 1 - C(n - c, k) / C(n, k)
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from eval.mean import mean_over_prompts
from mmrl.types import Prompt

Row = dict[str, float]
"""Column -> value."""

NOTE = """\
accuracy: mean of the first reward, with its standard error over prompts. length: mean tokens before
the end. cut off: share of completions without an end. NFE: passes of the network per batch.
tokens/s: those of length, per device; raw: all response positions, also those after the end.
"""
_HEADS = {
    "length": "length",
    "cut_off": "cut off",
    "nfe": "NFE",
    "tokens_per_s": "tokens/s",
    "raw_tokens_per_s": "raw",
    "n": "n",
}


def quality(
    prompts: Sequence[Prompt], scores: Mapping[str, Sequence[float]], num_samples: int
) -> Row:
    """Scores of one setting.

    Args:
        prompts: one per score.
        scores: by reward key, the first of which is the accuracy; NaN where a reward did not apply
            or failed, which is left out.
        num_samples: completions per prompt.

    Returns:
        `accuracy`, `stderr`, the number `n` of scored samples, `avg@<num_samples>`; where all
        scores are 0 or 1 `pass@k` for powers of two and `num_samples`; of the other rewards
        `rewards/<key>/mean` and `/stderr`. Without any score only `n`.
    """
    main, *others = scores
    known = _known(prompts, scores[main])
    if not known:
        return {"n": 0.0}
    total = mean_over_prompts(known)
    row = {"accuracy": total["mean"], "stderr": total["stderr"], "n": total["n"]}
    row |= _repeated(known, num_samples)
    for key in others:
        pairs = _known(prompts, scores[key])
        cell = mean_over_prompts(pairs) if pairs else {}
        row |= {f"rewards/{key}/{name}": cell[name] for name in ("mean", "stderr") if cell}
    return row


def cost(
    lengths: Sequence[int], positions: int, forwards: Sequence[tuple[int, int]], seconds: float
) -> Row:
    """What the completions of one setting took.

    Args:
        lengths: tokens of each completion before its end.
        positions: response positions of a completion.
        forwards: (network passes, rows) of each batch.
        seconds: spent sampling, over all devices.

    Returns:
        `length` (mean), `cut_off` (share without an end), `nfe` (passes of a completion's batch,
        mean over completions), `tokens_per_s` (of `length`) and `raw_tokens_per_s` (of all
        positions) of one device.
    """
    count = len(lengths)
    return {
        "length": statistics.fmean(lengths),
        "cut_off": sum(length == positions for length in lengths) / count,
        "nfe": sum(passes * rows for passes, rows in forwards) / count,
        "tokens_per_s": sum(lengths) / seconds,
        "raw_tokens_per_s": count * positions / seconds,
    }


def pass_at(k: int, n: int, c: int) -> float:
    """Chance that one of k samples is right, where c of n were.

    Raises:
        ValueError: k above n, which cannot be estimated.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} of {n} samples; k must be from 1 to {n}")
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def as_text(
    rows: Mapping[str, Row],
    left_out: int = 0,
    groups: Mapping[str, Mapping[str, Mapping[str, Row]]] | None = None,
) -> str:
    """One line per setting, then one per group of prompts, and what the columns mean.

    Args:
        rows: by label; `-` stands where a value does not exist.
        left_out: prompts that were too long, to be named.
        groups: per label what `eval.groups.by_group` returns.
    """
    parts = ["\n".join(_lines(rows))]
    for label, tables in (groups or {}).items():
        for key, table in tables.items():
            title = key if len(rows) == 1 else f"{label}: {key}"
            parts.append("\n".join(_lines(table, title)))
    missing = (
        f"{left_out} prompts too long for model.max_prompt_length, or with images and completion"
        " for the checkpoint, are left out.\n"
    )
    return "\n\n".join([*parts, NOTE]) + (missing if left_out else "")


def _lines(rows: Mapping[str, Row], title: str = "") -> list[str]:
    """A line of heads and one per row."""
    columns = list(dict.fromkeys(key for row in rows.values() for key in row))
    scores = [key for key in columns if _is_score(key)]
    shown = ["accuracy", *scores, *(key for key in _HEADS if key in columns)]
    width = max(len(label) for label in (title, *rows)) + 2
    heads = [f"{title:<{width}}", *(f"{_head(key):>{_width(key)}}" for key in shown)]
    lines = ["".join(heads)]
    for label, row in rows.items():
        cells = [f"{_cell(row, key):>{_width(key)}}" for key in shown]
        lines.append("".join([f"{label:<{width}}", *cells]))
    return lines


def _known(prompts: Sequence[Prompt], scores: Sequence[float]) -> list[tuple[str, float]]:
    """(prompt id, score) of the samples that have one."""
    pairs = zip(prompts, scores, strict=True)
    return [(prompt.id, score) for prompt, score in pairs if not math.isnan(score)]


def _repeated(known: Sequence[tuple[str, float]], num_samples: int) -> Row:
    """avg@k and pass@k of the samples that share a prompt."""
    groups: dict[str, list[float]] = defaultdict(list)
    for name, score in known:
        groups[name].append(score)
    row = {f"avg@{num_samples}": statistics.fmean(map(statistics.fmean, groups.values()))}
    if all(score in (0, 1) for _, score in known):
        powers = {2**n for n in range(num_samples.bit_length())} | {num_samples}
        for k in sorted(powers):
            full = [group for group in groups.values() if len(group) >= k]
            if full:
                values = [pass_at(k, len(group), int(sum(group))) for group in full]
                row[f"pass@{k}"] = statistics.fmean(values)
    return row


def _is_score(key: str) -> bool:
    """Whether a column stands beside the accuracy; of one sample it would repeat it."""
    return ("@" in key and not key.endswith("@1")) or key.endswith("/mean")


def _head(key: str) -> str:
    return _HEADS.get(key, key.removeprefix("rewards/").removesuffix("/mean"))


def _width(key: str) -> int:
    return max(10, len(_head(key)) + 2, 16 if key == "accuracy" or key.endswith("/mean") else 0)


def _cell(row: Row, key: str) -> str:
    if key not in row:
        return "-"
    value = row[key]
    error = row.get("stderr" if key == "accuracy" else key.replace("/mean", "/stderr"))
    if key == "accuracy" or key.endswith("/mean"):
        return f"{value:.3f} ± {error:.3f}"
    if key in ("n", "nfe", "length", "tokens_per_s", "raw_tokens_per_s"):
        return f"{value:.0f}" if key == "n" else f"{value:.1f}"
    return f"{value:.3f}"
