"""The tab runs: curves, scores, completions and settings of one or several run directories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError
from mmrl.demo.compared import FIGURES, draw_curves, read_runs, score_rows, setting_rows, table
from mmrl.demo.completions_view import PAGE, choose, score_columns, show_completions
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
        table(setting_rows(runs), "One run, or runs with the same settings."),
    ]


def build_runs_tab(runs: Mapping[str, Path]) -> None:
    """Lay out the tab in the current place of the page."""
    import gradio as gr

    if not runs:
        gr.Markdown("There are no runs; name their directories: `python -m mmrl.demo runs=[…]`")
        return
    with gr.Row():
        chosen = gr.Dropdown(
            list(runs), value=list(runs)[:1], multiselect=True, label="runs", elem_id="runs"
        )
        titles = gr.Dropdown(list(FIGURES), value=FIRST, multiselect=True, label="curves")
        button = gr.Button("Compare", variant="primary", min_width=100, elem_id="compare")
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


def offer(run: Path) -> tuple[list[str], list[str]]:
    """Files of completions of a run, and the scores of the last one; empty where there are none or
    where it cannot be read."""
    files = find_completions(run)
    try:
        columns = score_columns(read_completions(files[list(files)[-1]])[:1]) if files else []
    except ConfigError:
        columns = []  # its error is shown when it is chosen
    return list(files), columns or ["reward"]


def show(
    run: Path, name: str, by: str, order: str, text: str, low: str, high: str, number: int
) -> str:
    """A page of the completions of a file, sorted and filtered, as HTML.

    Raises:
        ConfigError: no such file, or one without completions.
    """
    files = find_completions(run)
    if name not in files:
        raise ConfigError("completions is empty; choose a run and one of its steps.")
    limits = (_bound("at least", low), _bound("at most", high))
    rows = choose(read_completions(files[name]), by, order == ORDERS[0], text, *limits)
    return show_completions(rows, max(0, int(number) - 1))


def _bound(key: str, text: str) -> float | None:
    try:
        return float(text) if text.strip() else None
    except ValueError as error:
        raise ConfigError(f"{key} is {text!r}; it must be a number, or empty.") from error


def _build_completions(runs: Mapping[str, Path]) -> None:
    """The inputs that sort and filter recorded completions, and the completions."""
    import gradio as gr

    first = next(iter(runs))
    files, columns = offer(runs[first])
    with gr.Row():
        run = gr.Dropdown(list(runs), value=first, label="run", elem_id="of_run")
        file = gr.Dropdown(files, value=files[-1] if files else None, label="completions")
        by = gr.Dropdown(columns, value=columns[0], label="sorted by")
        order = gr.Radio(list(ORDERS), value=ORDERS[0], label="order")
    with gr.Row():
        words = gr.Textbox("", label="containing")
        least = gr.Textbox("", label="at least")
        most = gr.Textbox("", label="at most")
        page = gr.Number(1, label=f"page of {PAGE}", precision=0, minimum=1)
        button = gr.Button("Show", variant="primary", min_width=100, elem_id="show")
    shown = gr.HTML(elem_id="completions")

    def change(name: str) -> list[Any]:
        some, scores = offer(runs[name])
        last = some[-1] if some else None
        return [gr.Dropdown(some, value=last), gr.Dropdown(scores, value=scores[0])]

    run.input(change, run, [file, by], api_visibility="private")
    inputs = [run, file, by, order, words, least, most, page]
    work = shows_errors(lambda name, *rest: show(runs[name], *rest))
    button.click(work, inputs, shown, api_visibility="private")
