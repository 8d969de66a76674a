"""Does an image show what a GenEval prompt asks for, by a detector?

    GenEval's conditions on detected objects; colours by CLIP on the objects' boxes

GenEval (Ghosh et al. 2023, arXiv:2310.11513) detects COCO's classes with a Mask2Former of mmdet and
classifies colours with OpenAI's CLIP ViT-L/14. With the Mask2Former of transformers
(`mmrl.rewards.detection.instance_segmenter`), `counting_threshold: 0.9` and `max_overlap: 1` this
is GenEval's procedure; its weights were trained by other people, so scores differ where a detection
is uncertain. The default detectors, OWLv2 and Grounding DINO, know classes by name and give boxes
and no masks, and there these differ:

- Only the classes of the prompt are looked for.
- Scores of such detectors are lower than Mask2Former's: `threshold` is GenEval's 0.3, but its 0.9
  for counting would let nothing pass, so counting has the same threshold unless you set another.
  Measure both on images of your own before you train on the reward.
- They find an object several times: boxes that overlap a better one of their class by more than
  `max_overlap` are dropped (GenEval's 1.0 drops none, its detector has done so), and that before
  the best `max_objects` are taken.
- Colours are judged on the box as it is; with a mask what lies outside is grey, as in GenEval.

`mode: continuous` is flow_grpo's reward (`mmrl.rewards.detection.continuous_credit`), `mode:
strict` with `exact: true` its strict verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from PIL import Image

from mmrl.config import above, at_least, check
from mmrl.rewards.detection.continuous_credit import continuous_terms
from mmrl.rewards.detection.geneval_rules import (
    COLORS,
    Box,
    Condition,
    check_metadata,
    exclude_conditions,
    find_relations,
    include_conditions,
)
from mmrl.rewards.networks.dual_encoder import DualEncoder
from mmrl.rewards.networks.open_clip_encoder import load_encoder
from mmrl.rewards.networks.placement import NetworkOptions
from mmrl.rewards.networks.pretrained import load_part
from mmrl.rewards.parsing.images import image_of
from mmrl.types import Sample

if TYPE_CHECKING:
    from torch import Tensor

    from mmrl.rewards.detection.instance_segmenter import InstanceSegmenter
    from mmrl.rewards.detection.object_detectors import Found, ObjectDetector

_ATTRIBUTES = {"class": None, "color": COLORS}
_OTHERS = "OWLv2 and Grounding DINO know others."
_GREY = "#999"
_COLOR_PROMPTS = ("a photo of a {} {}", "a photo of a {}-colored {}", "a photo of a {} object")


@dataclass(kw_only=True, eq=False)
class CompositionalReward(NetworkOptions):
    """Score images against GenEval metadata.

    Raises:
        FileNotFoundError, ValueError: a wrong option, or models that are not there or not
            complete; NotHereError where they are to come from the hub.
    """

    name: ClassVar[str] = "compositional"
    scale: ClassVar[str] = "0 to 1"
    needs: ClassVar[tuple[str, ...]] = ("images", "metadata")

    model: str = "google/owlv2-base-patch16-ensemble"
    """Hub id or directory of the detector: OWLv2, Grounding DINO
    (IDEA-Research/grounding-dino-base), or GenEval's Mask2Former
    (facebook/mask2former-swin-small-coco-instance)."""
    mode: Literal["strict", "partial", "continuous"] = "strict"
    """`strict` is 1 where every condition holds and else 0; `partial` the share of the conditions
    that hold; `continuous` flow_grpo's mean over clauses, which falls below 0 where far too many
    objects are found."""
    position_credit: bool = False
    """Whether a wrong position earns half with `mode: continuous`, as flow_grpo's server pays by
    mistake."""
    exact: bool = False
    """Whether more objects of a class than the prompt asks for are one more condition that fails.
    False is GenEval's rule, with which a policy may learn to fill its images; flow_grpo's is
    exact."""
    threshold: Annotated[float, at_least(0, below=1)] = 0.3
    """Objects with a lower score are ignored."""
    counting_threshold: Annotated[float | None, at_least(0, below=1)] = None
    """The same for the tag `counting`; null is `threshold`."""
    max_objects: Annotated[int, at_least(1)] = 16
    """How many of each class are used, the best first."""
    max_overlap: Annotated[float, above(0, up_to=1)] = 0.5
    """Intersection over union with a better box of the class above which a box is the same object;
    1 keeps all."""
    clip_model: str = "ViT-L-14"
    """open_clip model that classifies colours, see `model` of the reward `clip`."""
    clip_pretrained: str | None = None
    """Its weights; null takes `openai`."""
    batch_size: int = 8
    """Images of one size and prompts of the same classes in one forward pass."""
    fill: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        other = self.threshold if self.counting_threshold is None else self.counting_threshold
        self.thresholds = {"threshold": self.threshold, "counting_threshold": other}
        options = NetworkOptions(device=self.device, dtype=self.dtype, fill=max(self.fill, 8))
        model, pretrained = self.clip_model, self.clip_pretrained
        self.colors = ColorClassifier(
            load_encoder("compositional.clip_", model, pretrained, options)
        )
        self.detector = build_detector(self.model, "compositional.model", self)

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where metadata with `include` is not GenEval's."""
        if "include" in metadata:
            check_metadata(metadata, _ATTRIBUTES)
            for name in list_classes(metadata):
                check(not set(name) & set(".?"), "class", name, "a name without . and ?")
                known = self.detector.names
                check(known is None or name in known, "class", name, "a class of COCO", _OTHERS)

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Scores in [0, 1]; None for a sample whose metadata has no `include`."""
        images = [image_of(sample, self.name) for sample in samples]
        alike: dict[tuple[Any, ...], list[int]] = {}
        for n, sample in enumerate(samples):
            if "include" in sample.metadata:
                self.check(sample.metadata)
                alike.setdefault((images[n].size, list_classes(sample.metadata)), []).append(n)
        scores: list[float | None] = [None] * len(samples)
        lowest = min(self.thresholds.values())
        for (_, names), places in alike.items():
            found = self.detector([images[n] for n in places], names, lowest)
            for n, objects in zip(places, found, strict=True):
                scores[n] = self._score(images[n], samples[n].metadata, objects)
        return scores

    def _score(
        self, image: Image.Image, metadata: Mapping[str, Any], found: Sequence[Found]
    ) -> float:
        key = "counting_threshold" if metadata["tag"] == "counting" else "threshold"
        objects = select_objects(found, self.thresholds[key], self.max_objects, self.max_overlap)
        if self.mode == "continuous":
            color, related = self._measures(image)
            include, credit = metadata["include"], self.position_credit
            return fmean(continuous_terms(include, objects, color, related, credit))
        holds = [holds for holds, _ in self._conditions(image, metadata, objects)]
        return float(all(holds)) if self.mode == "strict" else sum(holds) / len(holds)

    def _measures(self, image: Image.Image) -> tuple[Any, Any]:
        """What tells the colours of objects of a class, and where one lies relative to another."""

        def color(taken: Sequence[Found], name: str) -> list[str]:
            return self.colors([crop(image, item.box, item.mask) for item in taken], name)

        def related(a: Found, b: Found) -> set[str]:
            return find_relations(a.box, b.box)

        return color, related

    def _conditions(
        self, image: Image.Image, metadata: Mapping[str, Any], objects: Mapping[str, list[Found]]
    ) -> list[Condition]:
        color, related = self._measures(image)
        include = metadata["include"]
        conditions = list(include_conditions(include, objects, {"color": color}, related))
        conditions += exclude_conditions((metadata.get("exclude") or ()), objects)
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


def list_classes(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """The classes a prompt names, in alphabetical order."""
    clauses = (*metadata["include"], *(metadata.get("exclude") or ()))
    return tuple(sorted({clause["class"] for clause in clauses}))


def select_objects(
    found: Sequence[Found], threshold: float, max_objects: int, max_overlap: float
) -> dict[str, list[Found]]:
    """The objects of each class that count, best first; see `CompositionalReward`."""
    objects: dict[str, list[Found]] = {}
    for item in sorted(found, key=lambda item: -item.score):
        if item.score <= threshold:
            continue
        mine = objects.setdefault(item.name, [])
        new = max_overlap == 1 or all(compute_overlap(item.box, o.box) < max_overlap for o in mine)
        if new and len(mine) < max_objects:
            mine.append(item)
    return objects


def compute_overlap(a: Box, b: Box) -> float:
    """Intersection over union of boxes in pixels, whose last row and column belong to them."""

    def area(left: float, top: float, right: float, bottom: float) -> float:
        return max(right - left + 1, 0) * max(bottom - top + 1, 0)

    shared = area(max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3]))
    return shared / (area(*a) + area(*b) - shared)


def build_detector(
    model: str, key: str, options: NetworkOptions
) -> ObjectDetector | InstanceSegmenter:
    """The detector of a checkpoint, by the `model_type` of its configuration; see both classes."""
    from transformers import AutoConfig

    from mmrl.rewards.detection.instance_segmenter import InstanceSegmenter
    from mmrl.rewards.detection.object_detectors import ObjectDetector

    kind = load_part(AutoConfig, model, key).model_type
    return (InstanceSegmenter if kind == "mask2former" else ObjectDetector)(model, key, options)


def crop(image: Image.Image, box: Box, mask: Any = None) -> Image.Image:
    """What lies in a box, at least a pixel, nothing from outside the image; grey outside the mask
    [H, W], if there is one."""
    if mask is not None:
        grey = Image.new("RGB", image.size, _GREY)
        image = Image.composite(image, grey, Image.fromarray(mask))
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
