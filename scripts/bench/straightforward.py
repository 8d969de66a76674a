"""A network called as the public code calls it: logits of every position over the whole vocabulary.

In the place of `policy.model` it makes a sampler, scoring and an update straightforward. What stays
is in both ways alike: the rule of the sampler, LoRA's layers, and that the rows of a group are
computed once while they are identical (before its first write).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmrl.models.network.network import MaskedLMOutput


class EverythingEverywhere(nn.Module):
    """Calls a network on whole rows and selects from its logits.

    Args:
        inner: the model of a policy.
        padding: columns of padding before every row, as where prompts are padded to one length.
    """

    def __init__(self, inner: nn.Module, padding: int) -> None:
        super().__init__()
        self.inner, self.padding = inner, padding

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        columns: tuple[int, int] | None = None,
        **others: Any,
    ) -> MaskedLMOutput:
        """Arguments and result of `MaskedTokenModel.forward`."""
        if self.padding:
            if attention_mask is None:
                attention_mask = torch.ones_like(input_ids)
            input_ids, attention_mask = (
                F.pad(each, (self.padding, 0)) for each in (input_ids, attention_mask)
            )
        logits, values = self.inner(input_ids=input_ids, attention_mask=attention_mask, **others)
        logits = logits[:, self.padding :, slice(*columns or (0, None))]
        return MaskedLMOutput(logits if positions is None else logits[positions], values)
