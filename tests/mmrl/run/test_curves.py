from xml.etree import ElementTree

from mmrl.run.curves import line_plot


def test_every_curve_is_drawn_and_named_with_its_first_and_last_value() -> None:
    names = ["a <b>", "cost in $ and $x_{", r"\$2^$", "_hidden"]
    curves = {name: [(0, 1.0), (1, 2.0)] for name in names} | {"one": [(3, 7.0)]}
    svg = line_plot(curves)
    texts = [each.text for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("text")]
    assert {f"{name}: 1 → 2" for name in names} | {"step", "one: 7 → 7"} <= {*texts}
    assert svg == line_plot(curves) and "date" not in svg.lower()
