import json
import re
from pathlib import Path

import pytest
from PIL import Image

from mmrl.curves import Series, line_plot, ticks
from mmrl.report import write_report


def _run(folder: Path) -> Path:
    lines: list[dict] = [{"step": 0, "eval/t/strict": 0.25, "eval/t/strict/stderr": 0.02}]
    lines += [{"step": n, "reward": 0.1 * n, "kl": None, "step_time": 30.0} for n in (1, 2, 3)]
    lines += [{"step": 3, "eval/t/strict": 0.5, "eval/t/strict/stderr": 0.03}]
    (folder / "samples").mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "config.yaml").write_text("name: <script>alert(1)</script>\n")
    for step in (0, 3):
        Image.new("RGB", (4, 4)).save(folder / "samples" / f"eval_t_{step:06d}.png")
    return folder


def test_the_report_shows_scores_before_and_after_curves_and_images(tmp_path: Path) -> None:
    page = write_report(_run(tmp_path / "run")).read_text()
    assert "0.250 ± 0.020" in page and "0.500 ± 0.030" in page and "+0.250" in page
    assert page.count("data:image/png;base64,") == 2
    assert "reward: 0.1 → 0.3" in page
    assert "1.5 minutes" in page


def test_the_report_fetches_nothing_and_escapes_what_it_shows(tmp_path: Path) -> None:
    page = write_report(_run(tmp_path / "run")).read_text()
    assert "<script>" not in page
    assert not re.search(r'(src|href)="http', page)


def test_a_run_without_metrics_still_has_a_report(tmp_path: Path) -> None:
    assert "No steps yet" in write_report(tmp_path).read_text()


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.31, 0.34), (-5e-6, 2e-5), (7.0, 7.0)])
def test_ticks_cover_the_range_in_few_round_steps(low: float, high: float) -> None:
    found = ticks(low, high)
    assert found[0] <= low + 1e-12 and found[-1] >= high - 1e-12
    assert 2 <= len(found) <= 12


def test_every_curve_is_drawn_and_named_with_its_first_and_last_value() -> None:
    svg = line_plot([Series("a", [(0, 1.0), (1, 2.0)]), Series("", [(0, 0.0), (1, 1.0)])], "step")
    assert svg.count("<polyline") == 2
    assert "a: 1 → 2" in svg
