"""Diversity: how different the completions of one prompt are.

    diversity: [tokens, shapes]

A metric describes every completion and compares two descriptions. Its values are means over the
pairs of a prompt's completions, so their expectation does not depend on the size of a group:

    D = 2 / (G (G - 1)) · Σ_{i<j} d(i, j)

To add one, write its two functions and a line in `DIVERSITY`. They are, with A and B the multisets
of the objects' positions, or of their sizes,

    tokens  d = #{p : a_p != b_p} / max(|a|, |b|), position by position; those beyond the end of the
            shorter text count as different. The same for texts and for images of any tokenizer
    text    d = 1 where texts differ, apart from white space
    shapes  d_background = 1 where the backgrounds differ; d_position, d_size =
            1 - 2 |A ∩ B| / (|A| + |B|), for images of the shapes world, read by their pixels

The position of a shape is its upper left corner on the 8 x 8 grid of the world. Prompts leave all
three open, so a policy may lose them without losing reward. An image without a background of the
world has no known background, and one without objects no known positions and sizes: such pairs are
left out, so that broken images are not counted as diverse.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean
from typing import Any, NamedTuple

from PIL import Image

from mmrl.config import check, check_choice
from mmrl.models.task_names import IMAGES, TEXTS, completions_of
from mmrl.types import Completion


class Completions(NamedTuple):
    """Completions, and the tokens of each: up to and including the first end token of a text, all
    of an image."""

    completions: Sequence[Completion]
    tokens: Sequence[Sequence[int]]


class DiversityMetric(NamedTuple):
    """A row of `DIVERSITY`.

    `describe` returns what is compared of each completion, `compare` the difference of two
    descriptions by each of the `values`: 0 for equal ones, NaN where it is not known. `images`:
    whether it compares images (True), texts (False), or both (None).
    """

    describe: Callable[[Completions], Sequence[Any]]
    compare: Callable[[Any, Any], Sequence[float]]
    values: tuple[str, ...]
    images: bool | None = None


@dataclass
class Diversity:
    """Diversity of some groups.

    `groups`: by name of a value, that of each group; NaN where it is not known, as for a group of
    one completion.
    """

    groups: dict[str, list[float]] = field(default_factory=dict)

    def metrics(self) -> dict[str, float]:
        """`diversity/<value>`, a mean over groups; what is known of none is left out."""
        means = {f"diversity/{name}": _known_mean(values) for name, values in self.groups.items()}
        return {name: mean for name, mean in means.items() if not math.isnan(mean)}

    def gather(self) -> Diversity:
        """The diversity of the groups of all processes, which all call this: in the order of the
        prompts, so that means do not depend on the number of processes."""
        from accelerate.utils import gather_object

        parts = gather_object([self])
        return Diversity({n: [v for part in parts for v in part.groups[n]] for n in self.groups})


def measure(names: Sequence[str], completions: Completions, size: int) -> Diversity:
    """The diversity of consecutive groups of completions, each of one size, by checked metrics."""
    found: dict[str, list[float]] = {}
    for metric in (DIVERSITY[name] for name in names):
        described = metric.describe(completions)
        groups = [
            [metric.compare(*pair) for pair in combinations(described[start : start + size], 2)]
            for start in range(0, len(described), size)
        ]
        for n, value in enumerate(metric.values):
            found[value] = [_known_mean(pair[n] for pair in group) for group in groups]
    return Diversity(found)


def check_metrics(names: Sequence[str], task: str, key: str) -> None:
    """Check the metrics of a task; `key` is the dotted one of their names, for messages. Raises
    ConfigError: an unknown name, a metric that cannot read the completions of the task, or one that
    is named twice."""
    made = completions_of(task)
    images = {IMAGES: True, TEXTS: False}.get(made)
    fits = [n for n, metric in DIVERSITY.items() if metric.images in (images, None)]
    advice = f"The task {task} makes {made}."
    for name in names:
        check_choice(key, name, DIVERSITY)
        check(name in fits, key, name, f"of {', '.join(fits)}", advice)
        check(list(names).count(name) == 1, key, name, "named once")


def list_tokens(canvas: Any) -> list[list[int]]:
    """Tokens of each of B finished responses, see `Completions`; empty where they have none."""
    if canvas.tokens is None:
        return []
    tokens, scorable = canvas.tokens.cpu(), canvas.counted.cpu()
    return [row[mine].tolist() for row, mine in zip(tokens, scorable, strict=True)]


def _known_mean(values: Iterable[float]) -> float:
    """The mean of what is known, NaN without any."""
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else math.nan


def _as_arrays(completions: Completions) -> Sequence[Any]:
    import numpy as np

    return [np.asarray(row, dtype=np.int64) for row in completions.tokens]


def _compare_tokens(one: Any, other: Any) -> Sequence[float]:
    longest, shared = max(len(one), len(other)), min(len(one), len(other))
    same = int((one[:shared] == other[:shared]).sum())
    return [1 - same / longest if longest else 0.0]


class _Scene(NamedTuple):
    """What an image shows: its background, "" where it is none of the world, and how often objects
    have a position and a size."""

    background: str
    positions: Counter[tuple[int, int]]
    sizes: Counter[str]


def _read_scenes(completions: Completions) -> Sequence[_Scene]:
    from mmrl.rewards.detection.shapes_detector import detect

    scenes = []
    for image in completions.completions:
        assert isinstance(image, Image.Image)
        found = detect(image)
        corners = Counter((round(8 * o.box[0]), round(8 * o.box[1])) for o in found.objects)
        sizes = Counter(o.size for o in found.objects)
        scenes.append(_Scene(found.background or "", corners, sizes))
    return scenes


def _compare_scenes(one: _Scene, other: _Scene) -> Sequence[float]:
    known = one.background and other.background
    background = float(one.background != other.background) if known else math.nan
    parts = ((one.positions, other.positions), (one.sizes, other.sizes))
    return [background, *(_unshared(*pair) for pair in parts)]


def _unshared(one: Counter[Any], other: Counter[Any]) -> float:
    if not one or not other:
        return math.nan
    return 1 - 2 * (one & other).total() / (one.total() + other.total())


DIVERSITY = {
    "shapes": DiversityMetric(
        _read_scenes, _compare_scenes, ("background", "position", "size"), images=True
    ),
    "text": DiversityMetric(
        lambda made: [str(text).split() for text in made.completions],
        lambda one, other: [float(one != other)],
        ("text",),
        images=False,
    ),
    "tokens": DiversityMetric(_as_arrays, _compare_tokens, ("tokens",)),
}
"""Metrics by the name used in configurations."""
