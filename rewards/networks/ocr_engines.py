"""OCR engines: each builds a function from RGB images to the text in them.

A new engine is a function here and a line in `ENGINES`; one that needs a package has its name, so
that its absence is found before anything loads.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any, Literal

import numpy as np
from PIL import Image

from mmrl.config import ConfigError, at_least
from mmrl.rewards.networks.checkpoints import load_network, load_part
from mmrl.rewards.networks.placement import resolve_device

Reader = Callable[[Sequence[Image.Image]], list[str]]


@dataclass(kw_only=True, eq=False)
class OCROptions:
    """Options of the OCR reward that engines read."""

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


def got(options: OCROptions) -> Reader:
    """GOT-OCR 2.0 (Wei et al. 2024, arXiv:2409.01704) by transformers, greedily."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    processor = load_part(AutoProcessor, options.model, "ocr.model")
    network = load_network(AutoModelForImageTextToText, options.model, "ocr.model")
    device = resolve_device(options.device)
    network = network.to(device, getattr(torch, options.dtype)).eval().requires_grad_(False)
    words = processor.tokenizer
    ends = words.convert_tokens_to_ids("<|im_end|>")

    @torch.no_grad()
    def read(images: Sequence[Image.Image]) -> list[str]:
        texts: list[str] = []
        for start in range(0, len(images), options.batch_size):
            part = list(images[start : start + options.batch_size])
            # Every image is as many tokens behind the same words, so nothing is padded.
            inputs = processor(part, return_tensors="pt").to(device, network.dtype)
            written = network.generate(
                **inputs,
                do_sample=False,
                max_new_tokens=options.max_tokens,
                eos_token_id=ends,
                pad_token_id=ends,
            )
            new = written[:, inputs["input_ids"].shape[1] :]
            texts += words.batch_decode(new, skip_special_tokens=True)
        return texts

    return read


def paddleocr(options: OCROptions) -> Reader:
    """PaddleOCR 3, English."""
    from paddleocr import PaddleOCR  # pyright: ignore[reportMissingImports]

    gpu = resolve_device(options.device).type == "cuda"
    engine = PaddleOCR(
        lang="en",
        device="gpu" if gpu else "cpu",
        use_doc_orientation_classify=False,
        use_doc_unwarping=False,
        use_textline_orientation=False,
    )
    return lambda images: [paddle_text(engine.predict(bgr(image))) for image in images]


ENGINES: dict[str, Callable[[OCROptions], Reader]] = {
    "got": got,
    "paddleocr": paddleocr,
}


def require(engine: str) -> None:
    """Raise a ConfigError if the package of an engine is not installed."""
    if engine != "got" and find_spec(engine) is None:
        raise ConfigError(
            f"ocr.engine is {engine!r}, and {engine} is not installed: pip install {engine}, or"
            " set ocr.engine to got, which needs nothing further."
        )


def paddle_text(pages: Sequence[Mapping[str, Any]]) -> str:
    """The lines that PaddleOCR 3 found, in its order."""
    return " ".join(line for page in pages for line in page["rec_texts"])


def bgr(image: Image.Image) -> np.ndarray:
    """[H, W, 3] uint8 with the channels as OpenCV has them, which these packages expect."""
    return np.ascontiguousarray(np.asarray(image)[..., ::-1])
