"""Completions in a report: the best, the worst and some others, coloured by their score.

They are read from the parquet files in `samples/`, see `mmrl.training.completions`. Everything in
them is data: texts are escaped, and images are decoded, made small and encoded again.
"""

from __future__ import annotations

import base64
import html
import io
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from mmrl.run.checkpoint import model_folders
from mmrl.run.metrics_file import is_number
from mmrl.run.sample_files import HELD_OUT, ROLLOUTS, find_samples, samples_of

TITLES = {HELD_OUT: "Held-out completions", ROLLOUTS: "Rollouts"}
FIXED = ("step", "id", "prompt", "image", "completion")
FIXED += ("tokens", "written_at", "logprobs", "grid", "blocks")
"""Columns that are no scores."""
MOST_STEPS = 6
"""Steps shown of a task, spread over all."""
EACH = 3
"""Rows of the best, of the worst and of the others."""
MOST_CHARACTERS, MOST_PIXELS, SIDE = 4000, 2**26, 160


def draw_samples(run: Path) -> str:
    """The tables of all tasks and steps; empty where none were recorded."""
    words = _read_pieces(run)
    parts = []
    for kind, title in TITLES.items():
        for task, files in find_samples(samples_of(run), kind).items():
            shown = _spread(list(files.items()))
            tables = [_step(*file, words, file == shown[-1]) for file in shown]
            parts.append(f"<h2>{title}: {html.escape(task)}</h2>{''.join(tables)}")
    note = (
        f"Per step the {EACH} best, the {EACH} worst and {EACH} others; red is low, green is high."
    )
    if any('class="trace"' in part for part in parts):
        note += " The tint of a token says when it was written, from light (first) to dark (last)."
    return f'{"".join(parts)}<p class="note">{note}</p>' if parts else ""


def _spread(files: Sequence[tuple[int, Path]]) -> Sequence[tuple[int, Path]]:
    """At most `MOST_STEPS` at even distances, the first and the last among them."""
    if len(files) <= MOST_STEPS:
        return files
    return [files[n * (len(files) - 1) // (MOST_STEPS - 1)] for n in range(MOST_STEPS)]


def _step(step: int, path: Path, words: Any, is_open: bool) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        return f'<p class="note">{html.escape(f"{path.name} cannot be read: {error}")}</p>'
    scores = [name for name in table.column_names if name not in FIXED]
    main = "reward" if "reward" in scores else next(iter(scores), None)
    values = table.column(main).to_pylist() if main else [None] * len(table)
    rows = [(why, table.slice(n, 1).to_pylist()[0]) for why, n in _choose(values, path.name)]
    head = '<th></th><th class="words">prompt</th><th class="words">completion</th>'
    head += "".join(f"<th>{html.escape(name)}</th>" for name in scores)
    limits = {name: _limits(table.column(name).to_pylist()) for name in scores}
    body = "".join(_row(why, row, limits, words) for why, row in rows)
    return (
        f"<details{' open' if is_open else ''}><summary>step {step}</summary>"
        f'<table class="samples"><tr>{head}</tr>{body}</table></details>'
    )


def _choose(values: Sequence[Any], name: str) -> list[tuple[str, int]]:
    """Why a row is shown, and its place: best first, then worst, then some of the others."""
    known = [n for n, value in enumerate(values) if is_number(value)]
    ordered = sorted(known, key=lambda n: (-values[n], n))
    best = ordered[:EACH]
    worst = [n for n in ordered[: -EACH - 1 : -1] if n not in best]
    rest = [n for n in range(len(values)) if n not in {*best, *worst}]
    others = random.Random(name).sample(rest, min(EACH, len(rest)))
    groups = {"best": best, "worst": worst, "random": sorted(others)}
    return [(why, n) for why, places in groups.items() for n in places]


def _row(why: str, row: dict[str, Any], limits: dict[str, tuple[float, float]], words: Any) -> str:
    prompt = f"<div>{_text(row.get('prompt'))}{_picture(row.get('image'))}</div>"
    cells = [f"<td>{why}</td>", f'<td class="words">{prompt}</td>']
    cells.append(f'<td class="words">{_completion(row, words)}</td>')
    for name, (low, high) in limits.items():
        value = row.get(name)
        if is_number(value):
            share = (value - low) / (high - low) if high > low else 0.5
            color = f"hsl({120 * share:.0f} 70% 78%)"
            cells.append(f'<td class="score" style="background:{color}">{value:.3f}</td>')
        else:
            cells.append("<td>-</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _limits(values: Sequence[Any]) -> tuple[float, float]:
    known = [value for value in values if is_number(value)]
    return (min(known), max(known)) if known else (math.nan, math.nan)


def _completion(row: dict[str, Any], words: Any) -> str:
    completion, tokens, steps = (row.get(key) for key in ("completion", "tokens", "written_at"))
    if isinstance(completion, dict):
        return _picture(completion)
    if words is not None and tokens and steps and len(tokens) == len(steps):
        return _trace(tokens, steps, row.get("logprobs") or (), words)
    return f"<div>{_text(completion)}</div>"


def _trace(
    tokens: Sequence[int], steps: Sequence[int], logprobs: Sequence[float], words: Any
) -> str:
    """The tokens of a text, tinted by the step that wrote them."""
    last = max(1, max(steps))
    spans = []
    for n, (token, step) in enumerate(zip(tokens, steps, strict=True)):
        said = f"step {step + 1}, position {n + 1}"
        said += f", probability {math.exp(min(0.0, logprobs[n])):.3f}" if n < len(logprobs) else ""
        tint = f"hsl(215 75% {92 - 34 * max(0, step) / last:.0f}%)"
        piece = _text(words.decode([token], skip_special_tokens=False))
        spans.append(f'<span style="background:{tint}" title="{said}">{piece}</span>')
    return f'<div class="trace">{"".join(spans[:MOST_CHARACTERS])}</div>'


def _read_pieces(run: Path) -> Any:
    """The tokenizer of the trained model, or of the last checkpoint; None without one."""
    for folder in model_folders(run):
        if (folder / "tokenizer.json").is_file():
            from tokenizers import Tokenizer

            return Tokenizer.from_file(str(folder / "tokenizer.json"))
    return None


def _text(text: Any) -> str:
    shown = str(text or "")
    cut = f"{shown[:MOST_CHARACTERS]} …" if len(shown) > MOST_CHARACTERS else shown
    return html.escape(cut)


def _picture(stored: Any) -> str:
    """An image in the page, at most `SIDE` pixels wide and high; empty where there is none."""
    if not isinstance(stored, dict) or not stored.get("bytes"):
        return ""
    try:
        with Image.open(io.BytesIO(stored["bytes"])) as image:
            if image.width * image.height > MOST_PIXELS:
                return "(too large)"
            small = image.convert("RGB")
    except (OSError, ValueError, Image.DecompressionBombError):
        return "(no image)"
    small.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    small.save(buffer, format="PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    size = max(1, SIDE // 2 // max(small.size))
    width, height = small.width * size, small.height * size
    return f'<img alt="" width="{width}" height="{height}" src="data:image/png;base64,{data}">'
