"""Does an image show what a GenEval prompt asks for, by an open-vocabulary detector?

    GenEval's conditions on detected objects; colours by CLIP on the objects' boxes

GenEval (Ghosh et al. 2023, arXiv:2310.11513) detects COCO's classes with a Mask2Former of mmdet and
classifies colours with OpenAI's CLIP ViT-L/14. Here the detector is OWLv2 or Grounding DINO of
transformers, which know classes by name and give boxes and no masks. So scores are not GenEval's,
and these differ:

- Only the classes of the prompt are looked for.
- Scores of such detectors are lower than Mask2Former's: `threshold` is GenEval's 0.3, but its 0.9
  for counting would let nothing pass, so counting has the same threshold unless you set another.
  Measure both on images of your own before you train on the reward.
- They find an object several times: boxes that overlap a better one of their class by more than
  `max_overlap` are dropped (GenEval's 1.0 drops none, its detector has done so), and that before
  the best `max_objects` are taken.
- Colours are judged on the box as it is; GenEval greys what lies outside the mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from PIL import Image

from mmrl.config import check, check_choice
from mmrl.types import Sample
from rewards.detection.geneval_rules import (
    COLORS,
    MODES,
    Box,
    Condition,
    check_metadata,
    exclude_conditions,
    include_conditions,
    relative_position,
)
from rewards.networks.dual_encoder import DualEncoder
from rewards.networks.open_clip_encoder import open_clip_encoder
from rewards.parsing.images import image_of

if TYPE_CHECKING:
    from torch import Tensor

    from rewards.detection.object_detectors import Found

_ATTRIBUTES = {"class": None, "color": COLORS}
_COLOR_PROMPTS = ("a photo of a {} {}", "a photo of a {}-colored {}", "a photo of a {} object")


class CompositionalReward:
    """Score images against GenEval metadata.

    Args:
        model: hub id or directory of the detector: OWLv2, or Grounding DINO
            (IDEA-Research/grounding-dino-base).
        mode: `strict` is 1 where every condition holds and else 0; `partial` the share of the
            conditions that hold.
        exact: whether more objects of a class than the prompt asks for are one more condition that
            fails. False is GenEval's rule, with which a policy may learn to fill its images;
            flow_grpo's is exact.
        threshold: objects with a lower score are not there.
        counting_threshold: the same for the tag `counting`; None is `threshold`.
        max_objects: how many of each class are used, the best first.
        max_overlap: intersection over union with a better box of the class above which a box is
            the same object; 1 keeps all.
        clip_model: open_clip model that classifies colours, see `CLIPReward`.
        clip_pretrained: its weights; None takes `openai`.
        device: "auto", or a torch device.
        dtype: of detector and CLIP (autocast).
        batch_size: images of one size and prompts of the same classes in one forward pass.
        fill: batches are filled up to multiples of this, see `DualEncoder`.

    Raises:
        FileNotFoundError, ValueError: a wrong option, or models that are not there or not
            complete; NotHereError where they are to come from the hub.
    """

    scale: ClassVar[str] = "0 to 1"
    needs: ClassVar[tuple[str, ...]] = ("images", "metadata")

    def __init__(
        self,
        model: str = "google/owlv2-base-patch16-ensemble",
        mode: Literal["strict", "partial"] = "strict",
        exact: bool = False,
        threshold: float = 0.3,
        counting_threshold: float | None = None,
        max_objects: int = 16,
        max_overlap: float = 0.5,
        clip_model: str = "ViT-L-14",
        clip_pretrained: str | None = None,
        device: str = "auto",
        dtype: Literal["float32", "bfloat16", "float16"] = "float32",
        batch_size: int = 8,
        fill: int = 1,
    ) -> None:
        from rewards.detection.object_detectors import ObjectDetector

        check_choice("compositional.mode", mode, MODES)
        self.mode, self.exact = mode, exact
        self.threshold = threshold
        self.counting_threshold = threshold if counting_threshold is None else counting_threshold
        for key in ("threshold", "counting_threshold"):
            value = getattr(self, key)
            check(0 <= value < 1, f"compositional.{key}", value, "from 0 to below 1")
        check(max_objects >= 1, "compositional.max_objects", max_objects, "at least 1")
        check(0 < max_overlap <= 1, "compositional.max_overlap", max_overlap, "above 0, up to 1")
        self.max_objects, self.max_overlap = max_objects, max_overlap
        encoder = open_clip_encoder(
            "compositional.clip_",
            clip_model,
            clip_pretrained,
            device=device,
            dtype=dtype,
            fill=max(fill, 8),
        )
        self.colors = ColorClassifier(encoder)
        self.detector = ObjectDetector(
            model, "compositional.model", device, dtype, batch_size, fill
        )

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where metadata with `include` is not GenEval's."""
        if "include" in metadata:
            check_metadata(metadata, _ATTRIBUTES)
            for name in classes_of(metadata):
                check(not set(name) & set(".?"), "class", name, "a name without . and ?")

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Scores in [0, 1]; None for a sample whose metadata has no `include`.

        Raises:
            ValueError: a completion is not an image, or metadata is malformed.
        """
        images = [image_of(sample, "compositional") for sample in samples]
        alike: dict[tuple[Any, ...], list[int]] = {}
        for n, sample in enumerate(samples):
            if "include" in sample.metadata:
                self.check(sample.metadata)
                alike.setdefault((images[n].size, classes_of(sample.metadata)), []).append(n)
        scores: list[float | None] = [None] * len(samples)
        lowest = min(self.threshold, self.counting_threshold)
        for (_, names), places in alike.items():
            found = self.detector([images[n] for n in places], names, lowest)
            for n, objects in zip(places, found, strict=True):
                scores[n] = self._score(images[n], samples[n].metadata, objects)
        return scores

    def _score(
        self, image: Image.Image, metadata: Mapping[str, Any], found: Sequence[Found]
    ) -> float:
        counting = metadata["tag"] == "counting"
        threshold = self.counting_threshold if counting else self.threshold
        objects = kept(found, threshold, self.max_objects, self.max_overlap)
        holds = [holds for holds, _ in self._conditions(image, metadata, objects)]
        return float(all(holds)) if self.mode == "strict" else sum(holds) / len(holds)

    def _conditions(
        self, image: Image.Image, metadata: Mapping[str, Any], objects: Mapping[str, list[Found]]
    ) -> list[Condition]:
        def color(taken: Sequence[Found], name: str) -> list[str]:
            return self.colors([crop(image, item.box) for item in taken], name)

        def related(a: Found, b: Found) -> set[str]:
            return relative_position(a.box, b.box)

        include = metadata["include"]
        conditions = list(include_conditions(include, objects, {"color": color}, related))
        conditions += exclude_conditions(metadata.get("exclude", ()), objects)
        if self.exact:
            conditions += _no_more_than_asked(include, objects)
        return conditions


class ColorClassifier:
    """GenEval's: the colour whose three descriptions, averaged, lie closest to the image.

    Args:
        encoder: a CLIP.
    """

    def __init__(self, encoder: DualEncoder) -> None:
        self.encoder = encoder
        self._directions: dict[str, Tensor] = {}

    def __call__(self, crops: Sequence[Image.Image], name: str) -> list[str]:
        """One of `COLORS` for each image of an object of the class."""
        from torch.nn import functional as F

        if name not in self._directions:
            texts = [text.format(c, name) for c in COLORS for text in _COLOR_PROMPTS]
            rows = self.encoder.encode_texts(texts).unflatten(0, (len(COLORS), -1))
            self._directions[name] = F.normalize(rows.mean(1), dim=-1)
        closest = self.encoder.encode_images(crops) @ self._directions[name].T
        return [COLORS[n] for n in closest.argmax(-1).tolist()]


def classes_of(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """The classes a prompt names, in alphabetical order."""
    clauses = (*metadata["include"], *metadata.get("exclude", ()))
    return tuple(sorted({clause["class"] for clause in clauses}))


def kept(
    found: Sequence[Found], threshold: float, max_objects: int, max_overlap: float
) -> dict[str, list[Found]]:
    """The objects of each class that count, best first; see `CompositionalReward`."""
    objects: dict[str, list[Found]] = {}
    for item in sorted(found, key=lambda item: -item.score):
        if item.score <= threshold:
            continue
        mine = objects.setdefault(item.name, [])
        new = max_overlap == 1 or all(overlap(item.box, o.box) < max_overlap for o in mine)
        if new and len(mine) < max_objects:
            mine.append(item)
    return objects


def overlap(a: Box, b: Box) -> float:
    """Intersection over union of boxes in pixels, whose last row and column belong to them."""

    def area(left: float, top: float, right: float, bottom: float) -> float:
        return max(right - left + 1, 0) * max(bottom - top + 1, 0)

    shared = area(max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3]))
    return shared / (area(*a) + area(*b) - shared)


def crop(image: Image.Image, box: Box) -> Image.Image:
    """What lies in a box, at least a pixel, nothing from outside the image."""
    left, top = (min(max(round(box[n]), 0), image.size[n] - 1) for n in (0, 1))
    right, bottom = (
        min(max(round(box[n + 2]), start + 1), image.size[n]) for n, start in ((0, left), (1, top))
    )
    return image.crop((left, top, right, bottom))


def _no_more_than_asked(
    include: Sequence[Mapping[str, Any]], objects: Mapping[str, Sequence[Found]]
) -> list[Condition]:
    conditions = []
    for name in dict.fromkeys(clause["class"] for clause in include):
        asked = sum(clause["count"] for clause in include if clause["class"] == name)
        shown = len(objects.get(name, ()))
        conditions.append((shown <= asked, f"expected no more than {asked} {name}, found {shown}"))
    return conditions
