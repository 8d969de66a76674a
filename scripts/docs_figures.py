"""The drawings of the documents, as SVG files.

    python scripts/docs_figures.py out=docs/images

`methods.svg` is drawn from the presets in `configs/algorithm/`, the others from the small examples
in this file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmrl.algorithms import load_algorithm  # noqa: E402
from mmrl.config import load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402
from mmrl.config.shipped import shipped  # noqa: E402

INK, FAINT, LINE = "#1f2937", "#6b7280", "#cbd5e1"
PADDING, PROMPT, IMAGE, MASKED, END = "#ffffff", "#dbeafe", "#fde68a", "#d1d5db", "#fecaca"
WRITTEN = ["#064e3b", "#047857", "#10b981", "#6ee7b7"]
SCORED = "#f97316"

RESPONSE = ["3", "*", "4", "=", "12", ";", "2", "+", "12", "=", "14", "end"]
WRITTEN_AT = [0, 0, 0, 1, 1, 2, 2, 2, 3, 1, 3, 3]
"""The denoising step at which each token of the example was written."""


@dataclass(kw_only=True)
class Config:
    """Where the drawings go."""

    out: str = "docs/images"
    """Folder of the SVG files."""


USAGE = Usage("python scripts/docs_figures.py", __doc__, Config)


class Drawing:
    """An SVG that grows with what is drawn on it."""

    def __init__(self, title: str) -> None:
        self.parts = [f"<title>{escape(title)}</title>"]
        self.width = self.height = 0.0

    def box(
        self, x: float, y: float, w: float, h: float, fill: str, edge: str = LINE, thick: float = 1
    ) -> None:
        self.grow(x + w, y + h)
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="3" fill="{fill}"'
            f' stroke="{edge}" stroke-width="{thick:g}"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float = 13,
        color: str = INK,
        anchor: str = "start",
        weight: str = "normal",
    ) -> None:
        self.grow(x + (0.58 * size * len(words) if anchor == "start" else 0), y + size / 2)
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{color}" text-anchor="{anchor}"'
            f' font-weight="{weight}" dominant-baseline="middle">{escape(words)}</text>'
        )

    def arrow(self, x: float, y: float, to_x: float, to_y: float, head: bool = True) -> None:
        self.grow(max(x, to_x), max(y, to_y))
        marker = ' marker-end="url(#head)"' if head else ""
        self.parts.append(
            f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{FAINT}"'
            f' stroke-width="1.5"{marker}/>'
        )

    def grow(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)

    def svg(self) -> str:
        w, h = self.width + 12, self.height + 12
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w:g} {h:g}" width="{w:g}"'
            f' height="{h:g}" font-family="system-ui, Helvetica, Arial, sans-serif">\n'
            f'<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
            f' markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{FAINT}"/></marker>'
            f'</defs>\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )

    def legend(self, x: float, y: float, entries: Sequence[tuple[str, str]]) -> None:
        for fill, words in entries:
            self.box(x, y - 7, 14, 14, fill, "#9ca3af")
            self.text(x + 20, y, words, 12, FAINT)
            x += 20 + 6.6 * len(words) + 22


def cells(
    drawing: Drawing,
    x: float,
    y: float,
    words: Sequence[str],
    fills: Sequence[str],
    scored: Sequence[bool] = (),
    size: float = 34,
) -> float:
    """A row of tokens; return the x behind it."""
    for n, (word, fill) in enumerate(zip(words, fills, strict=True)):
        drawing.box(x, y, size - 3, 26, fill)
        if scored and scored[n]:
            drawing.box(x + 1, y + 1, size - 5, 24, "none", SCORED, 2.5)
        dark = fill in WRITTEN[:2]
        drawing.text(
            x + (size - 3) / 2, y + 13, word, 12, "#ffffff" if dark else INK, anchor="middle"
        )
        x += size
    return x


def canvas() -> Drawing:
    """What a row of tokens holds, for the three tasks."""
    d = Drawing("A canvas: padding, prompt, images and masked response positions")
    rows = [
        ("text", [(PADDING, 2), (PROMPT, 6), (MASKED, 12)]),
        ("text_to_image", [(PADDING, 3), (PROMPT, 5), (MASKED, 12)]),
        ("image_to_text", [(IMAGE, 6), (PROMPT, 4), (MASKED, 10)]),
    ]
    for n, (name, parts) in enumerate(rows):
        y = 14 + 46 * n
        d.text(12, y + 13, name, 13, weight="bold")
        fills = [fill for fill, count in parts for _ in range(count)]
        cells(d, 130, y, ["M" if fill == MASKED else "" for fill in fills], fills, size=30)
    d.legend(
        130,
        168,
        [
            (PADDING, "padding"),
            (PROMPT, "prompt"),
            (IMAGE, "image of the prompt"),
            (MASKED, "response position, masked"),
        ],
    )
    return d


def denoising() -> Drawing:
    """A text that is written in four steps."""
    d = Drawing("Denoising: a completion is written in four steps")
    prompt = ["what", "is", "2", "+", "3", "*", "4", "?"]
    for step in range(5):
        y = 14 + 36 * step
        d.text(12, y + 13, "start" if step == 0 else f"step {step - 1}", 13, weight="bold")
        x = cells(d, 80, y, prompt, [PROMPT] * len(prompt), size=36)
        words = [word if at < step else "M" for word, at in zip(RESPONSE, WRITTEN_AT, strict=True)]
        fills = [WRITTEN[at] if at < step else MASKED for at in WRITTEN_AT]
        cells(d, x + 8, y, words, fills)
    y = 14 + 36 * 5 + 6
    d.text(12, y + 13, "written_at", 13, weight="bold")
    cells(d, 80 + 36 * len(prompt) + 8, y, [str(at) for at in WRITTEN_AT], ["#ffffff"] * 12)
    return d


def patterns(mask: str) -> list[tuple[str, list[bool], list[bool]]]:
    """(what it is, hidden, scored) of every pass of a mask strategy, on the example."""
    n = len(RESPONSE)
    chance = [bool(int(bit)) for bit in "101101101101"]
    other = [not bit for bit in chance]
    full = [True] * n
    if mask == "complementary":
        return [("a mask", chance, chance), ("its complement", other, other), ("all", full, full)]
    if mask == "full":
        return [("all", full, full)]
    if mask == "left_to_right":
        places = [(k, [i >= k for i in range(n)], [i == k for i in range(n)]) for k in (0, 1, 2)]
        return [(f"position {k}", hidden, scored) for k, hidden, scored in places]
    if mask == "trace":
        steps = [
            (k, [at >= k for at in WRITTEN_AT], [at == k for at in WRITTEN_AT]) for k in range(4)
        ]
        return [(f"step {k}", hidden, scored) for k, hidden, scored in steps]
    if mask == "blockwise":
        hidden = [i >= 4 and (chance[i] or i >= 8) for i in range(n)]
        return [
            ("a block, later ones hidden", hidden, [4 <= i < 8 and hidden[i] for i in range(n)])
        ]
    if mask == "ar_like":
        later = [bool(int(bit)) for bit in "000100110111"]
        return [("later positions more often", later, later)]
    return [("chance", chance, chance)]


def remasking() -> Drawing:
    """How finished completions are hidden again, a row per forward pass."""
    d = Drawing("Re-masking: which tokens a forward pass hides and scores")
    d.text(12, 27, "finished", 13, weight="bold")
    cells(d, 300, 14, RESPONSE, [WRITTEN[at] for at in WRITTEN_AT])
    y = 62.0
    for mask in (
        "random",
        "complementary",
        "full",
        "ar_like",
        "blockwise",
        "trace",
        "left_to_right",
    ):
        for n, (what, hidden, scored) in enumerate(patterns(mask)):
            if n == 0:
                d.text(12, y + 13, mask, 13, weight="bold")
            d.text(130, y + 13, what, 12, FAINT)
            words = ["M" if hide else word for hide, word in zip(hidden, RESPONSE, strict=True)]
            fills = [MASKED if hide else "#ecfdf5" for hide in hidden]
            cells(d, 300, y, words, fills, scored)
            y += 30
        if mask == "left_to_right":
            d.text(300, y + 8, "… and so on, one forward pass per position", 12, FAINT)
        y += 10
    d.legend(300, y + 24, [(MASKED, "hidden"), ("#ecfdf5", "visible")])
    d.box(480, y + 17, 14, 14, "none", SCORED, 2.5)
    d.text(500, y + 24, "scored: its log-prob counts", 12, FAINT)
    return d


def loop() -> Drawing:
    """One step of a run."""
    d = Drawing("One step of reinforcement learning")
    boxes = [
        ("prompts", "P of them"),
        ("rollouts", "G per prompt, by the sampler"),
        ("rewards", "a score per rollout"),
        ("advantages", "compared within the group"),
        ("mask draws", "hide the rollouts again"),
        ("log-probs", "new, old, reference policy"),
        ("loss", "ratio, clip, KL"),
        ("step", "optimiser, once per iteration"),
    ]
    for n, (name, what) in enumerate(boxes):
        row, column = divmod(n, 4)
        x, y = 14 + 220 * column, 14 + 110 * row
        d.box(
            x,
            y,
            186,
            62,
            "#eff6ff" if row == 0 else "#f0fdf4",
            "#93c5fd" if row == 0 else "#86efac",
        )
        d.text(x + 93, y + 22, name, 15, anchor="middle", weight="bold")
        d.text(x + 93, y + 44, what, 11.5, FAINT, anchor="middle")
        if column < 3:
            d.arrow(x + 188, y + 31, x + 216, y + 31)
    d.arrow(14 + 660 + 93, 78, 14 + 660 + 93, 97, head=False)
    d.arrow(14 + 660 + 93, 97, 107, 97, head=False)
    d.arrow(107, 97, 107, 121)
    return d


def methods() -> Drawing:
    """Every preset as a row: its masks, then its columns."""
    d = Drawing("Methods as rows of one table")
    names = sorted(path.stem for path in shipped("algorithm"))
    columns = [("method", 12), ("masks", 140), ("bound", 330), ("ratio", 420), ("mean over", 500)]
    columns += [("KL", 590), ("advantage divided by", 745)]
    for name, x in columns:
        d.text(x, 22, name, 13, weight="bold")
    for n, name in enumerate(names):
        row, y = load_algorithm({"name": name}), 40 + 26 * n
        if n % 2 == 0:
            d.box(6, y - 2, 900, 26, "#f8fafc", "#f8fafc")
        hidden, scored = patterns(row.mask)[min(1, len(patterns(row.mask)) - 1)][1:]
        for k, (hide, score) in enumerate(zip(hidden, scored, strict=True)):
            fill = SCORED if score else MASKED if hide else "#d1fae5"
            d.box(140 + 7 * k, y + 5, 6, 12, fill, fill, 0)
        kl = f"{row.kl}, {row.beta:g} to {row.kl_to}" if row.beta else "none"
        cells_of = [name, "", row.bound, row.ratio_level, row.aggregation, kl, row.scale_rewards]
        for words, (_, x) in zip(cells_of, columns, strict=True):
            d.text(x, y + 11, words, 12)
        d.text(140 + 90, y + 11, row.mask, 11, FAINT)
    y = 40 + 26 * len(names) + 16
    d.legend(140, y, [(SCORED, "hidden and scored"), (MASKED, "hidden"), ("#d1fae5", "visible")])
    return d


FIGURES: dict[str, Callable[[], Drawing]] = {
    "canvas": canvas,
    "denoising": denoising,
    "remasking": remasking,
    "loop": loop,
    "methods": methods,
}


def draw(config: Config) -> list[Path]:
    """Write every drawing; return their paths."""
    paths = [Path(config.out) / f"{name}.svg" for name in FIGURES]
    for path, figure in zip(paths, FIGURES.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(figure().svg(), encoding="utf-8")
    return paths


def main(arguments: list[str]) -> int:
    """Draw as the command line says; return the exit status."""

    def work() -> None:
        print("\n".join(map(str, draw(load_config(Config, arguments)))))

    return run_command(USAGE, arguments, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
