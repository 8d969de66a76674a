"""Recorded completions of a step, sorted and filtered, with their rewards and advantages."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.config import ConfigError
from mmrl.demo.recorded import COLUMNS, is_score
from mmrl.demo.run_files import embed, open_stored

PAGE = 24
"""Completions shown at once."""
LONGEST = 4000
"""Characters of a completion that are shown."""
PLACE = "row"
"""Key under which a row has its place in the file, by which the tab write finds it."""

Row = Mapping[str, Any]


def score_columns(rows: Sequence[Row]) -> list[str]:
    """Columns to sort by: reward, advantage, then each component."""
    numbers = {
        key
        for row in rows
        for key, value in row.items()
        if is_score(value) and key not in ("step", "id", PLACE, *COLUMNS)
    }
    first = [key for key in ("reward", "advantage") if key in numbers]
    return [*first, *sorted(numbers - set(first))]


def choose(
    rows: Sequence[Row],
    by: str,
    descending: bool = True,
    containing: str = "",
    least: float = -math.inf,
    most: float = math.inf,
) -> list[Row]:
    """Rows whose score is in a range and whose prompt or text contains some words, sorted by it.

    Rows without that score come last, and are left out where a range is given.

    Args:
        rows: of a file of completions.
        by: one of `score_columns`.
        descending: whether the highest score comes first.
        containing: words, whatever their case; empty for all.
        least: lowest score.
        most: highest score.
    """
    bounded, known, unknown = (least, most) != (-math.inf, math.inf), [], []
    for row in rows:
        if containing.lower() not in _searched(row):
            continue
        score = row.get(by)
        if not is_score(score) or math.isnan(score):
            unknown += [] if bounded else [row]
        elif least <= score <= most:
            known.append(row)
    return sorted(known, key=lambda row: row[by], reverse=descending) + unknown


def _searched(row: Row) -> str:
    texts = (row.get("prompt"), row.get("completion"))
    return "\n".join(text for text in texts if isinstance(text, str)).lower()


def show_completions(rows: Sequence[Row], page: int = 0) -> str:
    """A page of completions as HTML: image or text, prompt, every score, coloured by advantage."""
    shown = rows[page * PAGE : (page + 1) * PAGE]
    count = f"<p>{len(rows)} completions, {page * PAGE + 1} to {page * PAGE + len(shown)}</p>"
    cells = "".join(_cell(row, score_columns([row])) for row in shown)
    return f'{count}<div class="completions">{cells}</div>' if shown else "<p>No completions.</p>"


def _cell(row: Row, columns: Sequence[str]) -> str:
    lines = [f"{html.escape(key)}: {row[key]:.3f}" for key in columns]
    lines += [f"{PLACE}: {row[PLACE]}"] if PLACE in row else []
    prompt = html.escape(str(row.get("prompt"))[:LONGEST])
    source = _image(row["image"]) if row.get("image") is not None else ""
    color = advantage_color(row.get("advantage"))
    completion = row.get("completion")
    parts = [f"<b>{prompt}</b>", _completion(completion)]
    if not isinstance(completion, str):
        parts.reverse()  # images stay in line, however long their prompts are
    body = source + "".join(parts)
    return f'<div style="border-left: 6px solid {color}">{body}<p>{"<br>".join(lines)}</p></div>'


def _completion(stored: Any) -> str:
    if isinstance(stored, str):
        return f"<pre>{html.escape(stored[:LONGEST])}</pre>"
    return _image(stored)


def _image(stored: Any) -> str:
    try:
        return embed(open_stored(stored, "completion"))
    except ConfigError as error:
        return f"<p>{html.escape(str(error))}</p>"


def advantage_color(advantage: Any) -> str:
    """Green where a completion is reinforced, red where it is not, grey without an advantage."""
    if not is_score(advantage) or math.isnan(advantage) or advantage == 0:
        return "#999"
    return "#0a7d33" if advantage > 0 else "#b3261e"
