import html
import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

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
    [pair] = re.findall(r'<div class="task">.*?</div>', page)
    assert re.findall("<figcaption>(.*?)<", pair) == ["step 0", "step 3"]
    assert "{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(280px" in page
    assert "reward: 0.1 → 0.3" in page
    assert "1.5 minutes" in page


def test_the_report_fetches_nothing_and_escapes_what_it_shows(tmp_path: Path) -> None:
    page = write_report(_run(tmp_path / "run")).read_text()
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    assert "<script" not in page
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


@pytest.mark.parametrize(
    ("rewards", "said"),
    [
        ([0.5], "0.500 over the only one of the logged steps"),
        ([0.25, 0.75], "0.250 over the first and 0.750 over the last 1 of 2 logged steps"),
        ([*range(10)], "0.500 over the first and 8.500 over the last 2 of 10 logged steps"),
        ([*range(100)], "9.500 over the first and 89.500 over the last 20 of 100 logged steps"),
    ],
)
def test_the_first_steps_are_compared_with_others_at_the_end(
    rewards: list[float], said: str, tmp_path: Path
) -> None:
    lines = [{"step": n + 1, "reward": reward} for n, reward in enumerate(rewards)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert f"Mean reward of the rollouts: {said}." in write_report(tmp_path).read_text()


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


NASTY = "<img src=x onerror=alert(1)></div><script>alert(2)</script>"


def _record(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    (folder / "samples").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "samples" / f"{name}.parquet")


def _texts(scores: list[float], **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "step": 3,
            "id": str(n),
            "prompt": f"sum {n}",
            "completion": f"answer {n}",
            "math": s,
            **more,
        }
        for n, s in enumerate(scores)
    ]


def _rows(page: str) -> list[tuple[str, str]]:
    return re.findall(r"<tr><td>(best|worst|random)</td>.*?answer (\d+)</div>", page)


def test_completions_are_the_best_the_worst_and_some_others_of_each_step(tmp_path: Path) -> None:
    _record(tmp_path, "eval_sums_000003", _texts([n / 20 for n in range(20)]))
    page = write_report(tmp_path).read_text()
    rows = _rows(page)
    assert [n for why, n in rows if why == "best"] == ["19", "18", "17"]
    assert [n for why, n in rows if why == "worst"] == ["0", "1", "2"]
    others = {int(n) for why, n in rows if why == "random"}
    assert len(others) == 3 and others <= set(range(3, 17))
    assert "Held-out completions: sums" in page and "step 3" in page
    lowest, highest = 'hsl(0 70% 78%)">0.000', 'hsl(120 70% 78%)">0.950'
    assert lowest in page and highest in page


def test_few_completions_are_shown_once_and_unscored_ones_too(tmp_path: Path) -> None:
    _record(tmp_path, "completions_a_b_000003", _texts([1.0, float("nan"), 0.0, 1.0]))
    page = write_report(tmp_path).read_text()
    assert sorted(n for _, n in _rows(page)) == ["0", "1", "2", "3"]
    assert "Rollouts: a_b" in page and "<td>-</td>" in page


def test_of_many_steps_the_first_and_the_last_are_among_those_shown(tmp_path: Path) -> None:
    for step in range(1, 41):
        _record(tmp_path, f"eval_t_{step:06d}", _texts([0.0, 1.0]))
    shown = re.findall(r"<summary>step (\d+)", write_report(tmp_path).read_text())
    assert shown[0] == "1" and shown[-1] == "40" and len(shown) == 6


def test_tokens_of_a_text_say_when_they_were_written_and_how_probable_they_were(
    tmp_path: Path,
) -> None:
    words = {"one": 0, "<b>two": 1, "[MASK]": 2}
    (tmp_path / "final").mkdir()
    Tokenizer(WordLevel(words, unk_token="[MASK]")).save(str(tmp_path / "final" / "tokenizer.json"))
    trace = {"tokens": [0, 1], "written_at": [1, 0], "logprobs": [0.0, -1.0]}
    _record(tmp_path, "completions_t_000001", _texts([1.0], **trace))
    page = write_report(tmp_path).read_text()
    assert 'title="step 2, position 1, probability 1.000">one</span>' in page
    assert 'title="step 1, position 2, probability 0.368">&lt;b&gt;two</span>' in page


def test_nothing_that_was_recorded_is_read_as_markup(tmp_path: Path) -> None:
    row = {"step": 1, "id": NASTY, "prompt": NASTY, "completion": NASTY, NASTY: 1.0}
    _record(tmp_path, "eval_<img src=x>_000001", [row])
    lines = [{"step": n, f"rewards/{NASTY.replace('/', '')}/mean": n, "reward": n} for n in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = write_report(tmp_path).read_text()
    assert "<img src=x" not in page and "<script>alert" not in page
    assert html.escape(NASTY) in page


def test_broken_images_and_files_are_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    drawn = io.BytesIO()
    Image.new("RGB", (2000, 1000)).save(drawn, "PNG")
    rows = [
        {"prompt": "x", "completion": {"bytes": data, "path": None}, "reward": 0.5}
        for data in (drawn.getvalue(), b"no image")
    ]
    _record(tmp_path, "completions_t_000001", rows)
    (tmp_path / "samples" / "completions_t_000002.parquet").write_bytes(b"PAR1 and no more")
    page = write_report(tmp_path).read_text()
    assert 'width="160" height="80" src="data:image/png;base64,' in page
    assert "(no image)" in page and "completions_t_000002.parquet cannot be read" in page
    assert len(page) < 40_000, "a large image is made small"


def test_the_page_has_dark_colours_that_follow_the_browser(tmp_path: Path) -> None:
    page = write_report(tmp_path).read_text()
    assert "@media(prefers-color-scheme:dark)" in page and "<script" not in page
