"""Mask2Former of transformers: objects of COCO's classes with their masks, as GenEval finds them.

    score = probability of the class * mean probability of the mask where it is above a half

GenEval runs `mask2former_swin-s-p4-w7-224_lsj_8x2_50e_coco` of mmdet; the same network, trained by
its authors, is `facebook/mask2former-swin-small-coco-instance` on the hub. Images are scaled as
mmdet does (shortest side 800, longest up to 1333), masks to the size of the image, and a query may
be objects of several classes. The box is that of the mask.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from mmrl.config import ConfigError
from mmrl.rewards.detection.geneval_rules import COCO_NAMES, Box
from mmrl.rewards.networks.checkpoints import load_network
from mmrl.rewards.networks.placement import NetworkOptions

EDGES = {"shortest_edge": 800, "longest_edge": 1333}
DIVISOR = 32
MOST = 100
"""Objects of an image, as in mmdet."""


@dataclass(frozen=True)
class Found:
    """One object: its class, its box in pixels, the detector's confidence in (0, 1), and its mask,
    [H, W] bool."""

    name: str
    box: Box
    score: float
    mask: Any = field(default=None, compare=False, repr=False)


class InstanceSegmenter:
    """Finds objects by the names of COCO's classes; scores and boxes are float32. `model` is the
    directory or hub id of a `Mask2FormerForUniversalSegmentation` with COCO's 80 classes in their
    order, and `key` its configuration key, for messages. Raises ConfigError: a model that is not
    there, not complete or of other classes; NotHereError where it is to come from the hub."""

    def __init__(self, model: str, key: str, options: NetworkOptions) -> None:
        from transformers import Mask2FormerForUniversalSegmentation, Mask2FormerImageProcessorPil

        network = load_network(Mask2FormerForUniversalSegmentation, model, key)
        labels = network.config.id2label
        if len(labels) != len(COCO_NAMES) or (labels[0], labels[79]) != ("person", "toothbrush"):
            raise ConfigError(
                f"{key} {model!r} has {len(labels)} classes; GenEval's rules need a detector of"
                " COCO's 80, such as facebook/mask2former-swin-small-coco-instance."
            )
        self.processor = Mask2FormerImageProcessorPil(size=EDGES, size_divisor=DIVISOR)
        self.network, self.options = options.freeze(network), options

    def __call__(
        self, images: Sequence[Image.Image], names: Sequence[str], threshold: float
    ) -> list[list[Found]]:
        """The objects in each of some images, mode RGB and all of one size, that score more than
        `threshold` in [0, 1], best first; `names` are classes out of `COCO_NAMES`."""
        wanted = {COCO_NAMES.index(name): name for name in names}
        return [
            list(_find(classes, masks, wanted, threshold))
            for part in self.options.split(images)
            for classes, masks in self._detect(list(part))
        ]

    @torch.no_grad()
    def _detect(self, images: list[Image.Image]) -> Iterator[tuple[Tensor, Tensor]]:
        """Of each image the scores of queries for classes [Q, 80] and their mask logits [Q, H, W],
        on the device."""
        inputs: Any = self.processor(images=images, return_tensors="pt")
        inputs = {k: self.options.fill_up(inputs[k]) for k in ("pixel_values", "pixel_mask")}
        with self.options.autocast():
            output = self.network(**inputs)
        scaled = tuple(inputs["pixel_values"].shape[-2:])
        width, height = images[0].size
        for n in range(len(images)):
            masks = output.masks_queries_logits[n][None].float()
            for size in (scaled, (height, width)):
                masks = F.interpolate(masks, size=size, mode="bilinear", align_corners=False)
            classes = output.class_queries_logits[n].float().softmax(-1)[:, :-1]
            yield classes, masks[0]


def _find(
    classes: Tensor, masks: Tensor, wanted: dict[int, str], threshold: float
) -> Iterator[Found]:
    """The objects of an image, best first."""
    best, places = classes.flatten().topk(min(MOST, classes.numel()))
    inside = masks > 0
    area = inside.flatten(1).sum(1)
    sure = (masks.sigmoid() * inside).flatten(1).sum(1) / (area + 1e-6)
    query, kind = places // classes.shape[1], places % classes.shape[1]
    scores = best * sure[query]
    for n in scores.argsort(descending=True, stable=True).tolist():
        name, score = wanted.get(int(kind[n])), scores[n].item()
        if name is not None and score > threshold and area[query[n]]:
            mask = inside[query[n]].cpu()
            yield Found(name, _box(mask), score, mask.numpy())


def _box(mask: Tensor) -> tuple[float, float, float, float]:
    """The box of a mask [H, W] that is not empty."""
    down, across = mask.any(1).nonzero()[:, 0], mask.any(0).nonzero()[:, 0]
    return float(across[0]), float(down[0]), float(across[-1] + 1), float(down[-1] + 1)
