"""CLIP's text encoder beside a network that is conditioned on text; it is never trained."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmrl.models.weights import check_finite, list_first, read_headers

KEPT = 256
"""Prompts whose states are kept: 60 MB in float32 at CLIP-L's width."""


class TextEncoder:
    """transformers' `CLIPTextModelWithProjection`; part of no state. Prompts are
    encoded alone and once, so states do not depend, in any bit, on the others of a batch."""

    def __init__(self, model: Any) -> None:
        self.model = model.eval().requires_grad_(False)
        self._kept: dict[Any, tuple[Tensor, Tensor]] = {}

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype, device: torch.device | str) -> "TextEncoder":
        """The encoder of a folder in transformers' format. Raises ValueError: its files cannot be
        read, or hold other tensors or values than weights."""
        from transformers import CLIPTextModelWithProjection

        try:
            kind: Any = CLIPTextModelWithProjection
            read_headers(folder)
            model, report = kind.from_pretrained(folder, dtype=dtype, output_loading_info=True)
            if report["missing_keys"]:  # which transformers draws at random
                raise ValueError(f"it lacks {list_first(sorted(report['missing_keys']))}")
            for name, tensor in model.named_parameters():
                check_finite(tensor, folder, name)
        except Exception as error:  # transformers and safetensors raise many kinds
            raise ValueError(
                f"the text encoder of '{folder}' cannot be read ({error}); copy or download it"
                " again"
            ) from error
        return cls(model.to(device))

    @staticmethod
    def count(sizes: Mapping[str, Any]) -> int:
        """Parameters of an encoder of these sizes, the keys of its config.json."""
        from transformers import CLIPTextConfig, CLIPTextModelWithProjection

        with torch.device("meta"):
            model = CLIPTextModelWithProjection(CLIPTextConfig(**sizes))
        return sum(parameter.numel() for parameter in model.parameters())

    def convert(self, fn: Any) -> "TextEncoder":
        """The encoder with a function applied to its tensors, this one where that changes nothing:
        networks share it, and a copy in other memory gives other last bits."""
        tensors = (*self.model.parameters(), *self.model.buffers())
        if all(fn(tensor) is tensor for tensor in tensors):
            return self
        return TextEncoder(copy.deepcopy(self.model)._apply(fn))

    def __deepcopy__(self, _: Any) -> "TextEncoder":
        return self  # copies of a network share it

    @torch.no_grad()
    def __call__(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """ids [B, n] -> states [B, n, W] of the last layer but one, and pooled vectors [B, P]."""
        rows = [self._encode(row, text) for row, text in zip(ids, ids.tolist(), strict=True)]
        states, pooled = zip(*rows, strict=True)
        return torch.cat(states), torch.cat(pooled)

    def _encode(self, row: Tensor, text: list[int]) -> tuple[Tensor, Tensor]:
        weight = next(self.model.parameters())
        key = *text, weight.dtype, weight.device, torch.is_autocast_enabled(row.device.type)
        if key not in self._kept:
            output = self.model(row[None], output_hidden_states=True)
            self._kept[key] = output.hidden_states[-2], output.text_embeds
            if len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
        return self._kept[key]
