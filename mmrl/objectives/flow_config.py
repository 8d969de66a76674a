"""Options of the objective that trains a pipeline of latents: `flow`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from mmrl.config import above, at_least, check
from mmrl.objectives.data_config import PairsConfig
from mmrl.objectives.options import StartConfig


@dataclass(kw_only=True)
class FlowConfig(StartConfig, PairsConfig):
    """Flow matching of a diffusers pipeline on images and their texts."""

    eval_data: str = ""
    """Held-out pairs for `eval_steps`, read like `data`; empty evaluates nothing."""
    image_size: Annotated[int | None, at_least(1)] = None
    """Side in pixels of the square that images become, cropped from their middle; null follows the
    checkpoint."""
    max_prompt_length: Annotated[int, at_least(1)] = 256
    """Longest prompt in tokens of T5; CLIP's is that of its tokenizer."""
    cond_dropout_prob: Annotated[float, at_least(0, up_to=1)] = 0.1
    """Share of pairs whose text becomes the empty one, for classifier-free guidance."""
    sigmas: Literal["logit_normal", "uniform"] = "logit_normal"
    """Distribution of the noise levels, before the shift."""
    logit_mean: float = 0.0
    """Mean of log(sigma / (1 - sigma)) with `logit_normal`; above 0 is more noise."""
    logit_std: Annotated[float, above(0)] = 1.0
    """Its standard deviation."""
    shift: Annotated[float, above(0)] = 1.0
    """k of a drawn sigma's shift to k sigma / (1 + (k - 1) sigma); above 1 is more noise."""
    train_text_encoder: bool = False
    """Train the CLIP text encoders with the network, and with `new_weights` draw theirs anew. Texts
    are then encoded in every micro-batch, with gradient."""
    encodings_dir: str | None = None
    """Folder in which the encodings of texts are kept by content, for this run and later ones."""
    keep_latents: bool = True
    """Encode each image for its first micro-batch only, and keep its latent in memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = self.lora is None or not self.train_text_encoder
        allowed = "null with objective.train_text_encoder: an adapter holds no text encoders"
        check(fits, "objective.lora", self.lora, allowed)
