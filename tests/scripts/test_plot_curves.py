import json
import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "plot_curves.py"


def _run(folder: Path, values: list[float]) -> str:
    folder.mkdir()
    lines = [{"step": 10 * n, "eval/shapes/strict": value} for n, value in enumerate(values)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder)


def _plot(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True)


def test_the_mean_of_the_runs_and_of_the_control_is_drawn(tmp_path: Path) -> None:
    runs = f"{_run(tmp_path / 'a', [0.2, 0.4])} {_run(tmp_path / 'b', [0.4, 0.8])}"
    out = tmp_path / "curves.svg"
    done = _plot(f"runs={runs}", f"control={_run(tmp_path / 'c', [0.3, 0.3])}", f"out={out}")
    assert done.returncode == 0, done.stderr
    text = out.read_text()
    assert "trained, mean of 2: 0.3 → 0.6" in text
    assert "shuffled advantages: 0.3 → 0.3" in text
    drawn = re.findall(r"<path [^>]*clip-path=[^>]* stroke: (#1f77b4|#7f7f7f)", text)
    assert sorted(drawn) == ["#1f77b4"] * 3 + ["#7f7f7f"] * 2


def test_a_metric_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    done = _plot(f"runs={_run(tmp_path / 'a', [0.2])}", "metric=nonsense")
    assert done.returncode == 1
    assert "metric is 'nonsense'" in done.stderr


def test_another_format_than_svg_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    done = _plot("runs=nowhere", f"out={tmp_path / 'x.png'}")
    assert done.returncode == 1
    assert "x.png'; it must be the name of an .svg file" in done.stderr
    assert not (tmp_path / "x.png").exists()


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    done = _plot(f"runs={_run(tmp_path / 'a', [0.2])}", f"out={tmp_path / 'no' / 'curves.svg'}")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and "curves.svg" in done.stderr
