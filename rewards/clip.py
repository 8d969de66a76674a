"""CLIP reward: cosine between image and prompt (Radford et al. 2021, arXiv:2103.00020).

    score = <f(image), g(prompt)>,   both of length one

The score is the raw cosine, about 0.15 to 0.35 for OpenAI's ViT-L/14. Other conventions are a
`scale` of the configuration entry: CLIPScore has 2.5 (Hessel et al. 2021, who also clip at 0),
logits / 30 are 100 / 30. The prompt goes in as it is, without a template, and is cut at the context
length.
"""

from __future__ import annotations

import pickle
from typing import Any, Literal

from safetensors import SafetensorError

from mmrl.types import Sample
from rewards.architectures import resolve_architecture, resolve_weights, uses_quick_gelu
from rewards.dual_encoder import DualEncoder
from rewards.pictures import picture_of


class CLIPReward:
    """Cosine of any open_clip model.

    Args:
        model: built-in architecture, directory with `open_clip_config.json` and weights, or
            `hf-hub:owner/name`.
        pretrained: tag or checkpoint file of a built-in architecture; None takes `openai`.
        device: "auto", or a torch device.
        dtype: precision of the towers; normalisation and dot product are float32.
        batch_size: images encoded at once.

    Raises:
        FileNotFoundError, ValueError: model or weights that do not exist or cannot be read.
    """

    def __init__(
        self,
        model: str = "ViT-L-14",
        pretrained: str | None = None,
        device: str = "auto",
        dtype: Literal["float32", "bfloat16", "float16"] = "float32",
        batch_size: int = 32,
    ) -> None:
        import open_clip

        architecture = resolve_architecture(model, "clip.model")
        weights = resolve_weights(architecture, pretrained, "clip.pretrained")
        network, transform = _load(architecture, weights)
        tokenizer = open_clip.get_tokenizer(architecture)
        self.encoder = DualEncoder(network, tokenizer, transform, device, dtype, batch_size)

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Cosines in [-1, 1].

        Raises:
            ValueError: a completion is not an image.
        """
        images = [picture_of(sample, "clip") for sample in samples]
        return list(self.encoder.cosine(images, [sample.prompt for sample in samples]))


def _load(architecture: str, weights: str | None) -> tuple[Any, Any]:
    import open_clip

    try:
        return open_clip.create_model_from_pretrained(  # type: ignore[return-value]
            architecture,
            pretrained=weights,
            force_quick_gelu=uses_quick_gelu(architecture, weights),
            weights_only=True,
        )
    except (RuntimeError, ValueError, EOFError, pickle.UnpicklingError, SafetensorError) as error:
        raise ValueError(
            f"clip.model {architecture!r} with weights {weights!r} could not be loaded: {error}."
            " Check that the checkpoint is complete and belongs to this architecture."
        ) from error
