import subprocess
import sys
from xml.etree import ElementTree

from mmrl.run.curves import Series, line_plot


def test_every_curve_is_drawn_and_named_with_its_first_and_last_value() -> None:
    names = ["a <b>", "cost in $ and $x_{", r"\$2^$", "_hidden"]
    curves = [
        *(Series(name, [(0, 1.0), (1, 2.0)], "#ff0000") for name in names),
        Series("", [(0, 0.0), (1, 1.0)], "#00ff00", linestyle="--"),
    ]
    svg = line_plot(curves, "step", "$ per $sample")
    assert "stroke: #ff0000" in svg and "stroke: #00ff00" in svg and "stroke-dasharray" in svg
    texts = [each.text for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("text")]
    assert {f"{name}: 1 → 2" for name in names} | {"step", "$ per $sample"} <= {*texts}
    assert not any(text and text.startswith(": ") for text in texts)
    assert svg == line_plot(curves, "step", "$ per $sample") and "date" not in svg.lower()


def test_one_point_is_drawn_and_none_is_no_plot() -> None:
    assert "a: 7 → 7" in line_plot([Series("a", [(3, 7.0)])])
    assert line_plot([Series("a", [])]) == ""


def test_matplotlib_is_imported_only_when_a_plot_is_drawn() -> None:
    code = "import sys, mmrl.run.report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
