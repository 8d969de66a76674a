"""Open-vocabulary detectors of transformers: boxes of named objects in images.

A new family is a class with `inputs` and `scores` here and a line in `FAMILIES`, under the
`model_type` of its configuration. A box is one object, of the class with its highest score.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from mmrl.config import check_choice
from mmrl.rewards.detection.geneval_rules import Box
from mmrl.rewards.networks.placement import NetworkOptions
from mmrl.rewards.networks.pretrained import load_network, load_part


@dataclass(frozen=True)
class Found:
    """One object: the class asked for, its box in pixels, the detector's confidence in (0, 1), and
    where the detector has one its mask, [H, W] bool."""

    name: str
    box: Box
    score: float
    mask: Any = field(default=None, compare=False, repr=False)


class DetectorFamily(ABC):
    """The inputs and outputs of a family of detectors.

    Args:
        processor: of transformers, for the checkpoint.
    """

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    @abstractmethod
    def inputs(self, images: list[Image.Image], names: Sequence[str]) -> dict[str, Tensor]:
        """What `outputs` reads, for images of one size: [b, …] each."""

    def outputs(self, network: Any, inputs: dict[str, Tensor]) -> Any:
        """What the network gives, with `logits` [b, Q, …] and `pred_boxes` [b, Q, 4]."""
        return network(**inputs)

    @abstractmethod
    def scores(self, logits: Tensor, tokens: Tensor, names: Sequence[str]) -> Tensor:
        """[b, Q, N] in [0, 1]: of each of Q boxes for each name."""

    def unit(self, width: int, height: int) -> tuple[float, float]:
        """Pixels to which boxes in [0, 1] refer on both axes."""
        return float(width), float(height)


class Owlv2(DetectorFamily):
    """OWLv2 (Minderer et al. 2023, arXiv:2306.09683): a query per name, "a photo of a …".

    Images are padded to a square at the right and below, so boxes refer to the longest side.
    """

    def inputs(self, images: list[Image.Image], names: Sequence[str]) -> dict[str, Tensor]:
        words = [f"a photo of a {name}" for name in names]
        found = self.processor(
            images=images, text=[words] * len(images), truncation=True, return_tensors="pt"
        )
        rows = (len(images), len(names))  # transformers has the queries of all images in a row
        return {k: v.unflatten(0, rows) if k != "pixel_values" else v for k, v in found.items()}

    def outputs(self, network: Any, inputs: dict[str, Tensor]) -> Any:
        flat = {k: v.flatten(0, 1) if k != "pixel_values" else v for k, v in inputs.items()}
        return network(**flat)

    def scores(self, logits: Tensor, tokens: Tensor, names: Sequence[str]) -> Tensor:
        return logits.sigmoid()

    def unit(self, width: int, height: int) -> tuple[float, float]:
        longest = float(max(width, height))
        return longest, longest


class GroundingDino(DetectorFamily):
    """Grounding DINO (Liu et al. 2023, arXiv:2303.05499): one caption, "a cat. a dog.".

    The score for a name is the mean over its tokens, as in the authors' evaluation on COCO.
    """

    def __init__(self, processor: Any) -> None:
        super().__init__(processor)
        self.stop = processor.tokenizer.convert_tokens_to_ids(".")

    def inputs(self, images: list[Image.Image], names: Sequence[str]) -> dict[str, Tensor]:
        caption = " ".join(f"{name.lower().strip()}." for name in names)
        found = self.processor(images=images, text=[caption] * len(images), return_tensors="pt")
        return dict(found)

    def scores(self, logits: Tensor, tokens: Tensor, names: Sequence[str]) -> Tensor:
        stops = (tokens[0] == self.stop).nonzero()[:, 0].tolist()
        assert len(stops) == len(names), f"{len(stops)} stops for the names {list(names)}"
        starts = [1, *[stop + 1 for stop in stops[:-1]]]  # behind [CLS] and each stop
        columns = [
            logits[..., start:stop].sigmoid().mean(-1)
            for start, stop in zip(starts, stops, strict=True)
        ]
        return torch.stack(columns, dim=-1)


FAMILIES: dict[str, type[DetectorFamily]] = {
    "owlv2": Owlv2,
    "grounding-dino": GroundingDino,
    "mm-grounding-dino": GroundingDino,
}


class ObjectDetector:
    """Finds objects by the names of their classes.

    Args:
        model: directory or hub id of a detector out of `FAMILIES`.
        key: configuration key of `model`, for messages.
        options: device, precision and batches; scores and boxes are float32.

    Raises:
        ValueError: a model that is not there, not complete or of no known family; NotHereError
            where it is to come from the hub.
    """

    names: tuple[str, ...] | None = None
    """The classes it knows; None for any."""

    def __init__(self, model: str, key: str, options: NetworkOptions) -> None:
        from transformers import AutoConfig, AutoModelForZeroShotObjectDetection, AutoProcessor

        kind = load_part(AutoConfig, model, key).model_type
        check_choice(f"model_type of {key} {model!r}", kind, FAMILIES)
        self.family = FAMILIES[kind](load_part(AutoProcessor, model, key))
        self.network = options.freeze(load_network(AutoModelForZeroShotObjectDetection, model, key))
        self.options = options

    def __call__(
        self, images: Sequence[Image.Image], names: Sequence[str], threshold: float
    ) -> list[list[Found]]:
        """The objects in each image that score more than `threshold`, best first.

        Args:
            images: mode RGB, all of one size, so that nothing is padded and no image's result
                depends on the others.
            names: classes, without full stops and question marks.
            threshold: in [0, 1].
        """
        results: list[list[Found]] = []
        for part in self.options.split(images):
            scores, boxes = self._detect(list(part), names)
            width, height = part[0].size
            corners = _corners(boxes, *self.family.unit(width, height))
            results += [_find(s, c, names, threshold) for s, c in zip(scores, corners, strict=True)]
        return results

    @torch.no_grad()
    def _detect(self, images: list[Image.Image], names: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Scores [b, Q, N] and boxes [b, Q, 4] as centre and size, on the CPU."""
        inputs = self.family.inputs(images, names)
        inputs = {k: self.options.fill_up(v) for k, v in inputs.items()}
        with self.options.autocast():
            output = self.family.outputs(self.network, inputs)
        scores = self.family.scores(output.logits.float(), inputs["input_ids"], names)
        return scores[: len(images)].cpu(), output.pred_boxes[: len(images)].float().cpu()


def _corners(boxes: Tensor, across: float, down: float) -> Tensor:
    """[…, 4] centre and size in [0, 1] to left, top, right, bottom in pixels."""
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    unit = boxes.new_tensor((across, down))
    return torch.cat(((centre - half) * unit, (centre + half) * unit), dim=-1)


def _find(scores: Tensor, corners: Tensor, names: Sequence[str], threshold: float) -> list[Found]:
    best, kind = scores.max(-1)
    places = (best > threshold).nonzero()[:, 0]
    places = places[best[places].argsort(descending=True, stable=True)]
    return [
        Found(names[int(kind[n])], tuple(corners[n].tolist()), best[n].item())  # type: ignore[arg-type]
        for n in places
    ]
