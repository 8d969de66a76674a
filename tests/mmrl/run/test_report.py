import html
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from mmrl.run.curves import line_plot
from mmrl.run.metrics_file import read_metrics
from mmrl.run.report import collect_points, write_report
from tests.pictures import png

NASTY = "<img src=x onerror=alert(1)></div><script>alert(2)</script>"


def write_metrics(run: Path, lines: list[dict[str, Any]]) -> Path:
    run.mkdir(exist_ok=True)
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def write_rows(run: Path, name: str, rows: list[dict[str, Any]]) -> None:
    (run / "samples").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), run / "samples" / f"{name}.parquet")


def texts(scores: list[float], **more: Any) -> list[dict[str, Any]]:
    return [
        {"step": 3, "id": str(n), "prompt": f"sum {n}", "completion": f"answer {n}", "math": s}
        | more
        for n, s in enumerate(scores)
    ]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of three steps with two evaluations."""
    tag = {"eval/t/strict/colors": 0.125, "eval/t/strict/colors/stderr": 0.01}
    lines: list[dict] = [{"step": 0, "eval/t/strict": 0.25, "eval/t/strict/stderr": 0.02, **tag}]
    lines += [{"step": n, "reward": 0.1 * n, "kl": None, "step_time": 30.0} for n in (1, 2, 3)]
    lines += [{"step": 3, "eval/t/strict": 0.5, "eval/t/strict/stderr": 0.03}]
    folder = write_metrics(tmp_path / "run", lines)
    (folder / "samples").mkdir()
    (folder / "config.yaml").write_text(f"name: {NASTY}\n")
    for step in (0, 3):
        Image.new("RGB", (4, 4)).save(folder / "samples" / f"eval_t_{step:06d}.png")
    return folder


def test_the_report_shows_scores_before_and_after_curves_images_and_settings(run: Path) -> None:
    page = write_report(run).read_text()
    for row in ("t/strict", "0.250 ± 0.020", "0.500 ± 0.030", "+0.250"), ("0.125 ± 0.010", "-"):
        assert "".join(f"<td>{cell}</td>" for cell in row) in page
    assert re.findall("<figcaption>(step .)<", page) == ["step 0", "step 3"]
    assert "reward: 0.1 → 0.3" in page and html.escape(NASTY) in page and "config.yaml" in page
    assert page == write_report(run).read_text(), "the same run gives the same page"


def test_the_page_loads_nothing_and_what_was_recorded_is_no_markup(run: Path) -> None:
    row = {"step": 1, "id": NASTY, "prompt": NASTY, "completion": NASTY, NASTY: 1.0}
    write_rows(run, "eval_<img src=x>_000001", [row])
    with (run / "metrics.jsonl").open("a") as file:
        for n in (1, 2):
            name = f"rewards/{NASTY.replace('/', '')}/mean"
            file.write(json.dumps({"step": n, name: n, f"eval/{NASTY}": n}) + "\n")
    page = write_report(run).read_text()
    assert "<img src=x" not in page and "<script" not in page
    assert not re.search(r'(src|href)="http', page)


def test_a_line_cut_short_and_values_that_are_no_numbers_are_left_out(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "reward": NaN}\n{"step": 5, "reward": "x"}\n{"step": 6, "rew')
    assert "reward: 0.1 → 0.3" in write_report(run).read_text()


def test_a_run_with_one_evaluation_or_nothing_has_a_report(tmp_path: Path) -> None:
    assert "No steps yet" in write_report(tmp_path).read_text()
    page = write_report(write_metrics(tmp_path, [{"step": 0, "eval/loss": 0.25}])).read_text()
    assert "<td>loss</td><td>0.250</td></tr>" in page and "change" not in page


def test_after_a_resume_the_last_value_of_a_step_counts(tmp_path: Path) -> None:
    lines = [{"step": 1, "reward": 1.0}, {"step": 2, "reward": 9.0}, {"step": 2, "reward": 2.0}]
    write_metrics(tmp_path, lines)
    found = collect_points(read_metrics(tmp_path / "metrics.jsonl"))
    assert found["reward"] == [(1, 1.0), (2, 2.0)]


def test_the_first_steps_are_compared_with_the_last_by_task(tmp_path: Path) -> None:
    lines = [{"step": 10 * n, "a/reward": n - 1} for n in range(1, 11)]
    page = write_report(write_metrics(tmp_path, lines)).read_text()
    assert "Mean a/reward: 0.500 over the first and 8.500 over the last 2 of 10 logged" in page


def test_long_curves_get_a_running_mean(tmp_path: Path) -> None:
    write_metrics(tmp_path, [{"step": n, "reward": float(n % 2)} for n in range(100)])
    page = write_report(tmp_path).read_text()
    assert page.count("stroke-opacity: 0.35") == 1 and "reward: 0 → 0.5" in page


def test_completions_go_from_the_best_to_the_worst(tmp_path: Path) -> None:
    write_rows(tmp_path, "eval_sums_000003", texts([n / 20 for n in range(17)]))
    write_rows(tmp_path, "completions_a_b_000003", texts([1.0, float("nan"), 0.0, 2.0]))
    many, few = write_report(tmp_path).read_text().split("Rollouts: a_b")
    assert "Held-out completions: sums" in many
    assert re.findall(r"answer (\d+)<", many) == [str(n) for n in range(16, -1, -2)]
    assert re.findall(r"answer (\d+)<", few) == ["3", "0", "2", "1"]
    assert "<td>0.800</td>" in many and "<td>-</td>" in few


def test_of_many_steps_the_first_and_the_last_are_shown(tmp_path: Path) -> None:
    for step in range(1, 41):
        write_rows(tmp_path, f"eval_t_{step:06d}", texts([0.0, 1.0]))
    page = write_report(tmp_path).read_text()
    assert re.findall(r"<summary>step (\d+)", page) == ["1", "40"]


def test_broken_images_and_files_are_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    rows = [
        {"prompt": "x", "completion": {"bytes": data, "path": None}, "reward": 0.5}
        for data in (png(Image.new("RGB", (2000, 1000))), b"no image")
    ]
    write_rows(tmp_path, "completions_t_000001", rows)
    (tmp_path / "samples" / "completions_t_000002.parquet").write_bytes(b"PAR1 and no more")
    page = write_report(tmp_path).read_text()
    assert "width:160px" in page and "data:image/png;base64," in page
    assert "(no image)" in page and "completions_t_000002.parquet cannot be read" in page
    assert len(page) < 40_000, "a large image is made small"


def test_every_curve_is_drawn_and_named_with_its_first_and_last_value() -> None:
    names = ["a <b>", "cost in $ and $x_{", r"\$2^$", "_hidden"]
    curves = {name: [(0, 1.0), (1, 2.0)] for name in names} | {"one": [(3, 7.0)]}
    svg = line_plot(curves)
    texts = [each.text for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("text")]
    assert {f"{name}: 1 → 2" for name in names} | {"step", "one: 7 → 7"} <= {*texts}
    assert svg == line_plot(curves) and "date" not in svg.lower()


def test_the_headline_says_what_was_learnt_and_what_the_control_did(run: Path) -> None:
    lines = [{"step": 0, "eval/t/strict": 0.25, "reward": 0.1}]
    lines += [{"step": 3, "eval/t/strict": 0.2, "reward": 0.1}]
    control = write_metrics(run.parent / "control", lines)
    assert '<p class="headline">eval/t/strict: 0.25 → 0.5</p>' in write_report(run).read_text()
    settings = {"said": "of prompts drawn right", "control": str(control / "metrics.jsonl")}
    (run / "config.yaml").write_text(json.dumps({"report": settings}))
    page = write_report(run).read_text()
    said = "25% → 50% of prompts drawn right; the control, which cannot learn: 25% → 20%"
    assert f'<p class="headline">{said}</p>' in page
    assert "control, reward: 0.1 → 0.1" in page and "control, eval/t/strict: 0.25 → 0.2" in page
    assert page.count("stroke-dasharray") >= 2 and settings["control"] in page


def test_a_report_links_those_of_the_runs_beside_it(run: Path) -> None:
    assert "Runs beside this one" not in write_report(run).read_text()
    write_report(write_metrics(run.parent / "other & more", [{"step": 1, "loss": 1.0}]))
    link = '<a href="../other%20%26%20more/report.html">other &amp; more</a>'
    assert link in write_report(run).read_text()
