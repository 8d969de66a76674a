"""The shapes motion reward: does a clip show the shapes a prompt names, moving where it says?

The first and the last frame must show what `include` asks for and nothing else, by the rules of
`mmrl.rewards.shapes`. From the first frame by the middle one to the last, the centre of each shape
moves in its direction: by at least `TRAVEL` of the side, and less than half of that sideways.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from mmrl.config import Settings, check_choice
from mmrl.rewards.detection.geneval_rules import Condition, score_conditions
from mmrl.rewards.detection.shapes_detector import Detection, detect
from mmrl.rewards.shapes import check_asked, conditions
from mmrl.types import Sample, Video

DIRECTIONS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
TRAVEL = 5 / 32  # the shapes of the world travel 8 / 32


@dataclass(kw_only=True, eq=False)
class ShapesMotionReward(Settings):
    """Score clips of the shapes world."""

    where: ClassVar[str] = "shapes_motion"
    needs: ClassVar[tuple[str, ...]] = ("video", "metadata")

    mode: Literal["strict", "partial"] = "strict"
    """`strict` gives 1.0 when every condition holds, else 0.0; `partial` the share that hold."""

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Scores in [0, 1]; None without `include`."""
        return [self._score(sample) for sample in samples]

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where metadata with `include` is not of a clip of the shapes world."""
        if "include" in metadata:
            check_asked({**metadata, "include": without_motion(metadata)}, ("motion",))
            for clause in metadata["include"]:
                check_choice("metadata.include.motion", clause.get("motion"), DIRECTIONS)

    def _score(self, sample: Sample) -> float | None:
        if "include" not in sample.metadata:
            return None
        self.check(sample.metadata)
        assert isinstance(sample.completion, Video), "shapes_motion scores videos"
        return score_conditions(judge(sample.completion, sample.metadata), self.mode)


def without_motion(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The clauses as the rules of images read them."""
    return [{k: v for k, v in each.items() if k != "motion"} for each in metadata["include"]]


def judge(video: Video, metadata: Mapping[str, Any]) -> Iterator[Condition]:
    """The conditions of a clip, each with whether it fulfils it."""
    seen = [detect(video.image(n)) for n in (0, len(video) // 2, -1)]
    for frame in (seen[0], seen[-1]):
        yield from conditions(frame, {"include": without_motion(metadata)})
    for clause in metadata["include"]:
        shape, motion = clause["class"], clause["motion"]
        yield moves(seen, shape, *DIRECTIONS[motion]), f"expected a {shape} moving {motion}"


def moves(seen: Sequence[Detection], shape: str, across: int, down: int) -> bool:
    """Whether the one object of a shape in each of three frames moves in a direction."""
    boxes = [x.box for frame in seen for x in frame.objects if x.shape == shape]
    places = [((b[0] + b[2]) / 2, (b[1] + b[3]) / 2) for b in boxes]
    along = [x * across + y * down for x, y in places]
    aside = [x * down + y * across for x, y in places]
    holds = len(along) == len(seen) and along == sorted(along)
    return holds and along[2] - along[0] >= TRAVEL > 2 * abs(aside[2] - aside[0])
