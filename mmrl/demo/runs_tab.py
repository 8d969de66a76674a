"""The tab runs: the recorded completions of a step, sorted, beside those of another step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError
from mmrl.demo.completions_view import (
    OTHER,
    PAGE,
    choose,
    score_columns,
    show_completions,
)
from mmrl.demo.run_files import find_completions, read_completions
from mmrl.demo.sampler_form import shows_errors

ORDERS = ("highest first", "lowest first")
NONE = "none"


def offer_scores(run: Path, name: str | None) -> list[str]:
    """What the completions of a file can be sorted by; `reward` where it cannot be read."""
    files = find_completions(run)
    try:
        columns = score_columns(read_completions(files[name])) if name in files else []
    except ConfigError:
        columns = []  # its error is shown when it is chosen
    return columns or ["reward"]


def show(
    run: Path, name: str, other: str, by: str, order: str, text: str, number: float | None
) -> str:
    """A page of the completions of a file, sorted and filtered, as HTML; the last page for a number
    beyond it.

    Args:
        run: directory of the run.
        name: of the file, see `find_completions`.
        other: of a second file, or `none`; completions of prompts in both are then shown, the
            second below the first.
        by: one of `offer_scores`.
        order: one of `ORDERS`.
        text: words that a prompt or completion contains; empty for all.
        number: of the page, from 1.

    Raises:
        ConfigError: no such file, or one without completions.
    """
    files = find_completions(run)
    if name not in files or other not in (NONE, *files):
        raise ConfigError("completions is empty; choose a run and one of its steps.")
    found = read_completions(files[name])
    if other != NONE:
        beside = {row.get("id"): row["completion"] for row in read_completions(files[other])}
        found = [{**row, OTHER: beside[row["id"]]} for row in found if row.get("id") in beside]
    rows = choose(found, by, order == ORDERS[0], text)
    last = max(0, len(rows) - 1) // PAGE
    return show_completions(rows, min(max(0, int(number or 1) - 1), last))


def build_runs_tab(runs: Mapping[str, Path]) -> None:
    """Lay out the tab in the current place of the page."""
    import gradio as gr

    if not runs:
        gr.Markdown("There are no runs; name their directories: `python -m mmrl.demo runs=[…]`")
        return
    first = next(iter(runs))
    files = list(find_completions(runs[first]))
    last = files[-1] if files else None
    scores = offer_scores(runs[first], last)
    with gr.Row():
        run = gr.Dropdown(list(runs), value=first, label="run", elem_id="of_run")
        file = gr.Dropdown(files, value=last, label="completions", elem_id="of_step")
        beside = gr.Dropdown([NONE, *files], value=NONE, label="beside it", elem_id="other_step")
        by = gr.Dropdown(scores, value=scores[0], label="sorted by", elem_id="sorted_by")
    with gr.Row():
        order = gr.Dropdown(list(ORDERS), value=ORDERS[0], label="order", min_width=140)
        words = gr.Textbox("", label="containing", min_width=120, elem_id="containing")
        page = gr.Number(1, label="page", precision=0, minimum=1, min_width=80, elem_id="page")
    button = gr.Button("Show", variant="primary", elem_id="show")
    shown = gr.HTML(elem_id="completions")

    def of_run(name: str) -> list[Any]:
        some = list(find_completions(runs[name]))
        latest = some[-1] if some else None
        others = gr.Dropdown([NONE, *some], value=NONE)
        return [gr.Dropdown(some, value=latest), others, of_file(name, latest)]

    def of_file(name: str, chosen: str | None) -> Any:
        offered = offer_scores(runs[name], chosen)
        return gr.Dropdown(offered, value=offered[0])

    run.input(of_run, run, [file, beside, by], api_visibility="private")
    file.input(of_file, [run, file], by, api_visibility="private")
    gr.on(
        [button.click, words.submit, page.submit],
        shows_errors(lambda name, *rest: show(runs[name], *rest)),
        [run, file, beside, by, order, words, page],
        shown,
        api_visibility="private",
    )
