"""Does the image show the text it should? Edit distance of what an OCR engine reads (flow_grpo,
Liu et al. 2025, arXiv:2505.05470).

    score = 1 - min(d(read, wanted), n) / n,   n the length of the wanted text

d is Levenshtein's distance; case and white space do not count. What is read may be longer: a wanted
text that occurs in it scores 1. The wanted text is the metadata `text`, otherwise the first part of
the prompt in double quotes; a prompt with neither has no score. An image on which nothing can be
read scores 0, as published; unlike there, an engine that fails is a failure and no 0.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from PIL import Image

from mmrl.config import Settings, at_least, check
from mmrl.rewards.networks.checkpoints import load_network, load_part
from mmrl.rewards.networks.placement import freeze, resolve_device
from mmrl.rewards.parsing.images import image_of
from mmrl.types import Sample

Reader = Callable[[Sequence[Image.Image]], list[str]]
_QUOTED = re.compile(r'"([^"]*)"|“([^”]*)”')


@dataclass(kw_only=True, eq=False)
class OCRReward(Settings):
    """Share of a wanted text that can be read in an image. Raises ConfigError: an engine that is
    not installed, found before anything loads; a model that is not there (NotHereError where it is
    to come from the hub)."""

    where: ClassVar[str] = "ocr"
    needs: ClassVar[tuple[str, ...]] = ("prompt", "images")

    engine: Literal["got", "paddleocr", "rapidocr"] = "got"
    """What reads: GOT-OCR 2.0 by transformers, or the package paddleocr (3 or later) or rapidocr,
    which brings its networks along and reads on the CPU."""
    model: str = "stepfun-ai/GOT-OCR-2.0-hf"
    """Hub id or directory of `got`."""
    max_tokens: Annotated[int, at_least(1)] = 256
    """Longest reading of `got`."""
    device: str = "auto"
    """`auto` or a torch device (of `paddleocr`: whether it is a GPU)."""
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """Precision of the weights of `got`."""
    batch_size: Annotated[int, at_least(1)] = 8
    """Images that `got` reads at once."""

    def __post_init__(self) -> None:
        super().__post_init__()
        there = self.engine == "got" or find_spec(self.engine) is not None
        needed = "paddleocr" if self.engine == "paddleocr" else "'mmrl[ocr]'"
        advice = f"pip install {needed}, or set ocr.engine to got."
        check(there, "ocr.engine", self.engine, "a package that is installed", advice)
        self.read: Reader = ENGINES[self.engine](self)

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where the wanted text is empty or no text."""
        find_wanted_text("", metadata)

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Scores in [0, 1]; None for a sample without a wanted text."""
        images = [image_of(sample, "ocr") for sample in samples]
        wanted = [find_wanted_text(sample.prompt, sample.metadata) for sample in samples]
        shown = [image for image, text in zip(images, wanted, strict=True) if text is not None]
        readings = iter(self.read(shown))
        return [None if text is None else score_reading(next(readings), text) for text in wanted]


def got(options: OCRReward) -> Reader:
    """GOT-OCR 2.0 (Wei et al. 2024, arXiv:2409.01704) by transformers, greedily."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    processor = load_part(AutoProcessor, options.model, "ocr.model")
    network = load_network(AutoModelForImageTextToText, options.model, "ocr.model")
    network = freeze(network.to(getattr(torch, options.dtype)), options.device)
    words = processor.tokenizer
    ends = words.convert_tokens_to_ids("<|im_end|>")
    greedy = {"do_sample": False, "max_new_tokens": options.max_tokens}

    @torch.no_grad()
    def read(images: Sequence[Image.Image]) -> list[str]:
        texts: list[str] = []
        for start in range(0, len(images), options.batch_size):
            part = list(images[start : start + options.batch_size])
            # Every image is as many tokens behind the same words, so nothing is padded.
            inputs = processor(part, return_tensors="pt").to(network.device, network.dtype)
            written = network.generate(**inputs, **greedy, eos_token_id=ends, pad_token_id=ends)
            new = written[:, inputs["input_ids"].shape[1] :]
            texts += words.batch_decode(new, skip_special_tokens=True)
        return texts

    return read


def paddleocr(options: OCRReward) -> Reader:
    """PaddleOCR 3, English; the lines of an image in the order it finds them."""
    from paddleocr import PaddleOCR  # pyright: ignore[reportMissingImports]

    engine = PaddleOCR(
        lang="en",
        device="gpu" if resolve_device(options.device).type == "cuda" else "cpu",
        use_doc_orientation_classify=False,
        use_doc_unwarping=False,
        use_textline_orientation=False,
    )

    def read(image: Image.Image) -> str:
        pages = engine.predict(np.ascontiguousarray(np.asarray(image)[..., ::-1]))  # in BGR
        return " ".join(line for page in pages for line in page["rec_texts"])

    return lambda images: [read(image) for image in images]


def rapidocr(options: OCRReward) -> Reader:
    """PP-OCR as RapidOCR ships it for onnxruntime; the lines of an image from top to bottom."""
    from rapidocr import RapidOCR

    engine: Any = RapidOCR(params={"Global.log_level": "error"})
    return lambda images: [" ".join(engine(image).txts or ()) for image in images]


ENGINES: dict[str, Callable[[OCRReward], Reader]] = {
    "got": got,
    "paddleocr": paddleocr,
    "rapidocr": rapidocr,
}


def find_wanted_text(prompt: str, metadata: Mapping[str, Any]) -> str | None:
    """The text an image should show: the metadata `text`, else the first part of the prompt in
    straight or curved double quotes that has a letter or digit; None where there is neither. Raises
    ValueError: the metadata `text` is empty or no text."""
    given = metadata.get("text")
    if given is not None:
        holds = isinstance(given, str) and bool(given.strip())
        check(holds, "metadata.text", given, "the text that the image should show")
        return given
    parts = (found[1] or found[2] or "" for found in _QUOTED.finditer(prompt))
    return next((part for part in parts if any(map(str.isalnum, part))), None)


def score_reading(reading: str, wanted: str) -> float:
    """The score of a reading, in [0, 1]; `wanted` has at least one character that is no space."""
    reading, wanted = _plain(reading), _plain(wanted)
    if wanted in reading:
        return 1.0
    return 1 - min(edit_distance(reading, wanted), len(wanted)) / len(wanted)


def edit_distance(a: str, b: str) -> int:
    """Characters to insert, delete or replace to make one text of the other (Levenshtein 1966)."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, start=1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(b, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
    return row[-1]


def _plain(text: str) -> str:
    return "".join(text.lower().split())
