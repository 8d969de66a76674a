"""Sana and SANA-1.5 (Efficient-Large-Model/Sana_600M_512px_diffusers; arXiv 2410.10629).

A checkpoint is the directory of a `SanaPipeline`. A text is encoded behind the instruction that is
the default of that pipeline, and the empty one, of the branch without a text, alone. Images have
the size that is asked for, as with the pipeline's `use_resolution_binning=False`.
"""

from inspect import signature
from typing import Any

import torch
from torch import Tensor

from mmrl.models.families.latent_family import LatentFamily
from mmrl.models.network.sana import SanaNetwork


class Sana(LatentFamily):
    """A family; see `LatentFamily`."""

    pipeline, made = "SanaPipeline", SanaNetwork

    def encode_text(
        self, pipeline: Any, text: str | list[str], device: torch.device, max_length: int
    ) -> dict[str, Tensor]:
        """States of Gemma and where they are not padding, of each text encoded alone; see
        `SanaNetwork.forward`."""
        defaults = signature(type(pipeline).__call__).parameters
        instruction = defaults["complex_human_instruction"].default
        found = [
            pipeline.encode_prompt(
                each,
                False,
                device=device,
                max_sequence_length=max_length,
                complex_human_instruction=instruction if each else None,
            )
            for each in ([text] if isinstance(text, str) else text)
        ]
        states, masks, *_ = zip(*found, strict=True)
        return {"states": torch.cat(states), "mask": torch.cat(masks)}
