"""Recorded completions of a step, sorted and filtered, with their rewards and advantages."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.config import ConfigError
from mmrl.demo.run_files import embed, open_stored
from mmrl.run.metrics_file import is_number

PAGE = 24
"""Completions shown at once."""
LONGEST = 4000
"""Characters of a completion that are shown."""
OTHER = "beside it"
"""Key under which a row has the completion of the same prompt at another step."""
STYLE = """
.completions {display: grid; grid-template-columns: repeat(auto-fill, minmax(200px, 1fr));
 gap: .8rem}
.completions > div {border: 1px solid var(--border-color-primary); border-radius: 6px;
 padding: .5rem; font-size: .8rem; overflow-wrap: anywhere}
.completions b, .completions img {display: block}
.completions p {margin: .3rem 0 0}
.completions pre {margin: .3rem 0; white-space: pre-wrap; max-height: 16em; overflow: auto}
"""

Row = Mapping[str, Any]


def score_columns(rows: Sequence[Row]) -> list[str]:
    """Columns to sort by: reward, advantage, then each component."""
    numbers = {
        key
        for row in rows
        for key, value in row.items()
        if is_number(value) and key not in ("step", "id")
    }
    first = [key for key in ("reward", "advantage") if key in numbers]
    return [*first, *sorted(numbers - set(first))]


def choose(
    rows: Sequence[Row], by: str, descending: bool = True, containing: str = ""
) -> list[Row]:
    """Rows whose prompt or text contains some words, sorted by a score; those without it are last.

    Args:
        rows: of a file of completions.
        by: one of `score_columns`.
        descending: whether the highest score comes first.
        containing: words, whatever their case; empty for all.
    """
    found = [row for row in rows if containing.lower() in _searched(row)]
    known = [row for row in found if is_number(row.get(by))]
    unknown = [row for row in found if not is_number(row.get(by))]
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
    prompt = html.escape(str(row.get("prompt"))[:LONGEST])
    source = _image(row["image"]) if row.get("image") is not None else ""
    color = advantage_color(row.get("advantage"))
    completion = row.get("completion")
    parts = [f"<b>{prompt}</b>", _completion(completion)]
    if OTHER in row:
        parts.append(_completion(row[OTHER]))
    if not isinstance(completion, str):
        parts.append(parts.pop(0))  # images stay in line, however long their prompts are
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
    if not is_number(advantage) or advantage == 0:
        return "#999"
    return "#0a7d33" if advantage > 0 else "#b3261e"
