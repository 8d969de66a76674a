"""The tab compare: the recorded completions of a step of a run, beside those of another step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmrl.config import check
from mmrl.demo.sampling_tab import NONE, shows_errors
from mmrl.run.metrics_file import is_number
from mmrl.run.sample_files import embed_stored, find_completions, read_samples, score_names

MOST_ROWS = 512
"""Completions in the table, those with the highest reward."""
SIDE = 128
"""Largest side of a recorded image on the page, in pixels."""


def compare(run: Path, name: str, other: str = NONE) -> dict[str, Any]:
    """The completions of a file of a run as the value of a table: highest reward first. With an
    `other` file than `none`, those of prompts in both, with a column for those of the other. Raises
    ConfigError: no such file, or one without completions."""
    files = find_completions(run)
    for chosen in (name, other):
        check(chosen in (*files, NONE), "completions", chosen, "a file of the run, chosen anew")
    table = read_samples(files[name])
    scores = [key for key in score_names(table) if any(map(is_number, table[key].to_pylist()))]
    rows = table.to_pylist()
    columns = [key for key in ("image", "prompt", "completion") if key in table.column_names]
    if other != NONE:
        second = read_samples(files[other]).to_pylist()
        beside = {row.get("id"): row["completion"] for row in second}
        rows = [{**row, other: beside[row["id"]]} for row in rows if row.get("id") in beside]
        columns.append(other)
    if scores:
        by = "reward" if "reward" in scores else scores[0]
        rows.sort(key=lambda row: row[by] if is_number(row[by]) else float("-inf"), reverse=True)
    rows = rows[:MOST_ROWS]
    data = [
        [*(_cell(row.get(key)) for key in columns), *(_number(row[key]) for key in scores)]
        for row in rows
    ]
    images = {key for key in columns for row in rows if isinstance(row.get(key), dict)}
    kinds = ["html" if key in images else "str" for key in columns] + ["number"] * len(scores)
    return {"value": data, "headers": [*columns, *scores], "datatype": kinds}


def _cell(stored: Any) -> str:
    return embed_stored(stored, SIDE) if isinstance(stored, dict) else str(stored or "")


def _number(value: Any) -> float | None:
    return round(value, 4) if is_number(value) else None


def build_compare_tab(runs: Mapping[str, Path]) -> None:
    """Lay out the tab in the current place of the page."""
    import gradio as gr

    def files_of(name: str) -> list[dict[str, Any]]:
        files = list(find_completions(runs[name]))
        latest = files[-1] if files else None
        return [{"choices": files, "value": latest}, {"choices": [NONE, *files], "value": NONE}]

    gr.Markdown("The completions that a run recorded; click on a column to sort by it.")
    if not runs:
        gr.Markdown("There are no runs; name their directories: `python -m mmrl.demo runs=[…]`")
        return
    first = next(iter(runs))
    shown_file, other_file = files_of(first)
    with gr.Row():
        run = gr.Dropdown(list(runs), value=first, label="run", elem_id="of_run")
        file = gr.Dropdown(**shown_file, label="completions", elem_id="of_step")
        beside = gr.Dropdown(**other_file, label="beside it", elem_id="other_step")
    button = gr.Button("Show", variant="primary", elem_id="show")
    shown = gr.Dataframe(
        elem_id="completions", wrap=True, show_search="search", max_height=800, interactive=False
    )
    run.input(
        lambda name: [gr.Dropdown(**each) for each in files_of(name)],
        run,
        [file, beside],
        api_visibility="private",
    )
    button.click(
        shows_errors(lambda name, *chosen: gr.Dataframe(**compare(runs[name], *chosen))),
        [run, file, beside],
        shown,
        api_visibility="private",
    )
