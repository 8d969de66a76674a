"""Does an image show what a GenEval prompt asks for, by a detector?

    GenEval's conditions on detected objects; colours by CLIP on the objects' boxes

GenEval (Ghosh et al. 2023, arXiv:2310.11513) detects COCO's classes with a Mask2Former of mmdet and
classifies colours with OpenAI's CLIP ViT-L/14. This is its procedure with the Mask2Former of
transformers (`mmrl.rewards.detection.instance_segmenter`); those weights were trained by other
people, so scores differ where a detection is uncertain.

`mode: continuous` is flow_grpo's reward (`continuous_terms`), `mode: strict` with `exact: true` its
strict verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from PIL import Image

from mmrl.config import at_least
from mmrl.rewards.detection.geneval_rules import (
    COCO_NAMES,
    COLORS,
    Box,
    Condition,
    check_metadata,
    continuous_terms,
    exclude_conditions,
    find_relations,
    include_conditions,
    score_conditions,
)
from mmrl.rewards.networks.dual_encoder import DualEncoder
from mmrl.rewards.networks.open_clip_encoder import load_encoder
from mmrl.rewards.networks.placement import NetworkOptions
from mmrl.rewards.parsing.images import image_of
from mmrl.types import Sample

if TYPE_CHECKING:
    from torch import Tensor

    from mmrl.rewards.detection.instance_segmenter import Found

_ATTRIBUTES = {"class": COCO_NAMES, "color": COLORS}
MAX_OBJECTS = 16
"""Of a class, as in GenEval."""
_GREY = "#999"
_COLOR_PROMPTS = ("a photo of a {} {}", "a photo of a {}-colored {}", "a photo of a {} object")


@dataclass(kw_only=True, eq=False)
class CompositionalReward(NetworkOptions):
    """Score images against GenEval metadata."""

    where: ClassVar[str] = "compositional"
    needs: ClassVar[tuple[str, ...]] = ("images", "metadata")

    model: str = "facebook/mask2former-swin-small-coco-instance"
    """Hub id or directory of a Mask2Former with COCO's classes."""
    mode: Literal["strict", "partial", "continuous"] = "strict"
    """`strict` is 1 where every condition holds and else 0; `partial` the share of the conditions
    that hold; `continuous` flow_grpo's mean over clauses, which falls below 0 where far too many
    objects are found."""
    exact: bool = False
    """Whether more objects of a class than the prompt asks for are one more condition that fails.
    False is GenEval's rule, with which a policy may learn to fill its images; flow_grpo's is
    exact."""
    threshold: Annotated[float, at_least(0, below=1)] = 0.3
    """Objects with a lower score are ignored."""
    counting_threshold: Annotated[float, at_least(0, below=1)] = 0.9
    """The same for the tag `counting`."""
    clip_model: str = "ViT-L-14"
    """open_clip model that classifies colours, see `model` of the reward `clip`; the weights of a
    built-in architecture are those of `openai`."""
    batch_size: int = 8
    """Images of one size in one forward pass."""
    fill: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        from mmrl.rewards.detection.instance_segmenter import InstanceSegmenter

        options = NetworkOptions(device=self.device, dtype=self.dtype, fill=max(self.fill, 8))
        encoder = load_encoder("compositional.clip_", self.clip_model, None, options)
        self.colors = ColorClassifier(encoder)
        self.detector = InstanceSegmenter(self.model, "compositional.model", self)

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where metadata with `include` is not GenEval's."""
        if "include" in metadata:
            check_metadata(metadata, _ATTRIBUTES)

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Scores in [0, 1]; None for a sample whose metadata has no `include`."""
        images = [image_of(sample, self.where) for sample in samples]
        alike: dict[tuple[Any, ...], list[int]] = {}
        for n, sample in enumerate(samples):
            if "include" in sample.metadata:
                self.check(sample.metadata)
                alike.setdefault((images[n].size, list_classes(sample.metadata)), []).append(n)
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
        objects, include = select_objects(found, threshold), metadata["include"]

        def color(taken: Sequence[Found], name: str) -> list[str]:
            return self.colors([crop(image, item.box, item.mask) for item in taken], name)

        def related(a: Found, b: Found) -> set[str]:
            return find_relations(a.box, b.box)

        if self.mode == "continuous":
            return fmean(continuous_terms(include, objects, color, related))
        conditions = [
            *include_conditions(include, objects, {"color": color}, related),
            *exclude_conditions((metadata.get("exclude") or ()), objects),
            *(_no_more_than_asked(include, objects) if self.exact else ()),
        ]
        return score_conditions(conditions, self.mode)


class ColorClassifier:
    """GenEval's: the colour whose three descriptions, averaged, lie closest to the image."""

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


def select_objects(found: Sequence[Found], threshold: float) -> dict[str, list[Found]]:
    """The objects of each class that count, best first and at most `MAX_OBJECTS`."""
    objects: dict[str, list[Found]] = {}
    for item in sorted(found, key=lambda item: -item.score):
        if item.score > threshold:
            objects.setdefault(item.name, []).append(item)
    return {name: mine[:MAX_OBJECTS] for name, mine in objects.items()}


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
