"""The tab runs: curves, scores, completions and settings of one or several run directories."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError
from mmrl.demo.compared import (
    FIGURES,
    by_short_name,
    draw_curves,
    read_runs,
    score_rows,
    setting_rows,
    table,
)
from mmrl.demo.completions_view import PAGE, PLACE, choose, score_columns, show_completions
from mmrl.demo.run_files import find_completions, read_completions
from mmrl.demo.sampler_form import shows_errors

FIRST = ["Reward", "Held-out score"]
ORDERS = ("highest first", "lowest first")


def compare(runs: Mapping[str, Path], titles: list[str]) -> list[str]:
    """Curves, scores and differing settings of runs, as HTML."""
    lines = read_runs(runs)
    return [
        draw_curves(lines, titles),
        table(score_rows(lines), "No held-out scores."),
        table(setting_rows(runs), "No settings differ."),
    ]


def build_runs_tab(runs: Mapping[str, Path]) -> None:
    """Lay out the tab in the current place of the page."""
    import gradio as gr

    if not runs:
        gr.Markdown("There are no runs; name their directories: `python -m mmrl.demo runs=[…]`")
        return
    with gr.Row():
        chosen = gr.Dropdown(
            by_short_name(runs), value=[*runs][:1], multiselect=True, label="runs", elem_id="runs"
        )
        titles = gr.Dropdown(list(FIGURES), value=FIRST, multiselect=True, label="curves")
    button = gr.Button("Compare", variant="primary", elem_id="compare")
    curves = gr.HTML(elem_id="curves")
    scores = gr.HTML(elem_id="scores")
    with gr.Accordion("Settings that differ", open=False):
        settings = gr.HTML(elem_id="settings")

    def run(names: list[str], some: list[str]) -> list[str]:
        if not names:
            raise ValueError("runs is empty; choose one or several")
        return compare({name: runs[name] for name in names}, some)

    button.click(
        shows_errors(run), [chosen, titles], [curves, scores, settings], api_visibility="private"
    )
    with gr.Accordion("Completions of a step", open=True):
        _build_completions(runs)


def offer_scores(run: Path, name: str | None) -> list[str]:
    """What the completions of a file can be sorted by; `reward` where it cannot be read."""
    files = find_completions(run)
    try:
        columns = score_columns(read_completions(files[name])) if name in files else []
    except ConfigError:
        columns = []  # its error is shown when it is chosen
    return columns or ["reward"]


def show(
    run: Path, name: str, by: str, order: str, text: str, low: str, high: str, number: float | None
) -> str:
    """A page of the completions of a file, sorted and filtered, as HTML; the last page for a number
    beyond it.

    Raises:
        ConfigError: no such file, or one without completions.
    """
    files = find_completions(run)
    if name not in files:
        raise ConfigError("completions is empty; choose a run and one of its steps.")
    least, most = _bound("score at least", low, -math.inf), _bound("score at most", high, math.inf)
    found = [{**row, PLACE: n} for n, row in enumerate(read_completions(files[name]))]
    rows = choose(found, by, order == ORDERS[0], text, least, most)
    last = max(0, len(rows) - 1) // PAGE
    return show_completions(rows, min(max(0, int(number or 1) - 1), last))


def _bound(key: str, text: str, empty: float) -> float:
    try:
        return float(text) if text.strip() else empty
    except ValueError as error:
        raise ConfigError(f"{key} is {text!r}; it must be a number, or empty.") from error


def _build_completions(runs: Mapping[str, Path]) -> None:
    """The inputs that sort and filter recorded completions, and the completions."""
    import gradio as gr

    first = next(iter(runs))
    files = list(find_completions(runs[first]))
    last = files[-1] if files else None
    scores = offer_scores(runs[first], last)
    with gr.Row():
        run = gr.Dropdown(by_short_name(runs), value=first, label="run", elem_id="of_run")
        file = gr.Dropdown(files, value=last, label="completions", elem_id="of_step")
        by = gr.Dropdown(scores, value=scores[0], label="sorted by", elem_id="sorted_by")
    with gr.Row():
        order = gr.Dropdown(list(ORDERS), value=ORDERS[0], label="order", min_width=140)
        words = gr.Textbox("", label="containing", min_width=120, elem_id="containing")
        least = gr.Textbox("", label="score at least", min_width=100, elem_id="at_least")
        most = gr.Textbox("", label="score at most", min_width=100, elem_id="at_most")
        page = gr.Number(1, label="page", precision=0, minimum=1, min_width=80, elem_id="page")
    button = gr.Button("Show", variant="primary", elem_id="show")
    shown = gr.HTML(elem_id="completions")

    def of_run(name: str) -> list[Any]:
        some = list(find_completions(runs[name]))
        latest = some[-1] if some else None
        return [gr.Dropdown(some, value=latest), of_file(name, latest)]

    def of_file(name: str, chosen: str | None) -> Any:
        offered = offer_scores(runs[name], chosen)
        return gr.Dropdown(offered, value=offered[0])

    run.input(of_run, run, [file, by], api_visibility="private")
    file.input(of_file, [run, file], by, api_visibility="private")
    gr.on(
        [button.click, words.submit, least.submit, most.submit, page.submit],
        shows_errors(lambda name, *rest: show(runs[name], *rest)),
        [run, file, by, order, words, least, most, page],
        shown,
        api_visibility="private",
    )
