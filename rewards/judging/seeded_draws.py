"""Draws the tokens of each row of a batch with a generator for that row.

    argmax over tokens of  log p / temperature + Gumbel noise   is a draw from  p^(1 / temperature)

The noise of a row depends on its seed alone, so that a reply depends neither on what else is in the
batch nor on the generators of the process. Greedy decoding then takes the drawn token.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, TopPLogitsWarper


class SeededDraws(LogitsProcessor):
    """Adds temperature, `top_p` and noise to the logits of a batch.

    Args:
        requests: of the rows, in the form of chat completions; a row without a temperature stays
            as it is.
        seeds: of the noise of each row.
    """

    def __init__(self, requests: Sequence[dict[str, Any]], seeds: Sequence[int]) -> None:
        self.requests = requests
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """[b, V] logits whose greatest is the drawn token."""
        rows = zip(scores, self.requests, self.generators, strict=True)
        return torch.stack([_perturb(*row) for row in rows])


def _perturb(logits: Tensor, request: dict[str, Any], generator: torch.Generator) -> Tensor:
    if not request.get("temperature"):
        return logits
    scaled = logits.float()[None] / request["temperature"]
    if request.get("top_p", 1) < 1:
        scaled = TopPLogitsWarper(request["top_p"])(None, scaled)  # type: ignore[arg-type]
    noise = torch.empty(logits.shape).exponential_(generator=generator).log()
    return (scaled[0] - noise.to(logits.device)).to(logits.dtype)
