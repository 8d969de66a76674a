import json
import re
from pathlib import Path

from PIL import Image

from mmrl.run.metrics_file import read_metrics
from mmrl.run.report import series, write_report


def _run(folder: Path) -> Path:
    tag = {"eval/t/strict/colors": 0.125, "eval/t/strict/colors/stderr": 0.01}
    lines: list[dict] = [{"step": 0, "eval/t/strict": 0.25, "eval/t/strict/stderr": 0.02, **tag}]
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
    assert "<td>colors</td><td>0.125 ± 0.010</td>" in page
    assert page.count("data:image/png;base64,") == 2
    assert "reward: 0.1 → 0.3" in page
    assert "1.5 minutes" in page


def test_the_report_fetches_nothing_and_escapes_what_it_shows(tmp_path: Path) -> None:
    page = write_report(_run(tmp_path / "run")).read_text()
    assert "<script>" not in page
    assert not re.search(r'(src|href)="http', page)


def test_a_line_cut_short_and_values_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    run = _run(tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "reward": NaN}\n{"step": 5, "reward": "x"}\n{"step": 6, "rew')
    assert "reward: 0.1 → 0.3" in write_report(run).read_text()


def test_a_single_evaluation_is_shown_without_a_change(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "eval/t/strict": 0.25}\n')
    page = write_report(tmp_path).read_text()
    assert "<td>all prompts</td><td>0.250</td></tr>" in page and "change" not in page


def test_after_a_resume_the_last_value_of_a_step_counts(tmp_path: Path) -> None:
    lines = [{"step": 1, "reward": 1.0}, {"step": 2, "reward": 9.0}, {"step": 2, "reward": 2.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (found,) = series(read_metrics(tmp_path / "metrics.jsonl"), "^reward$")
    assert found.points == [(1, 1.0), (2, 2.0)]


def test_a_run_of_several_tasks_names_the_reward_of_each(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "a/reward": 0.5, "b/reward": 2.0}\n')
    page = write_report(tmp_path).read_text()
    assert "rollouts of a: 0.500" in page and "rollouts of b: 2.000" in page


def test_long_curves_get_a_running_mean(tmp_path: Path) -> None:
    lines = [{"step": n, "reward": float(n % 2)} for n in range(100)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = write_report(tmp_path).read_text()
    assert page.count("stroke-opacity: 0.35") == 1 and "reward: 0 → 0.5" in page
    assert "Faint lines are single values" in page


def test_faint_lines_are_explained_only_where_there_are_some(tmp_path: Path) -> None:
    page = write_report(_run(tmp_path / "run")).read_text()
    assert "Each legend shows" in page
    assert "aint lines" not in page and "stroke-opacity: 0.35" not in page


def test_seconds_are_those_of_all_steps_between_two_lines(tmp_path: Path) -> None:
    lines = [{"step": n, "reward": 0.5, "step_time": 30.0} for n in (10, 20)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "20 steps in 10.0 minutes" in write_report(tmp_path).read_text()


def test_a_run_without_metrics_still_has_a_report(tmp_path: Path) -> None:
    assert "No steps yet" in write_report(tmp_path).read_text()


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    run = _run(tmp_path / "run")
    assert write_report(run).read_text() == write_report(run).read_text()
