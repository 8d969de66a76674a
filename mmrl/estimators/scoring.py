"""Log-probabilities of a finished canvas under a policy, with some of its tokens hidden again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mmrl.samplers.denoise import guided_logits
from mmrl.types import Canvas, Passes

if TYPE_CHECKING:
    from models import Policy


def score(
    policy: Policy,
    canvas: Canvas,
    passes: Passes,
    cfg_scale: float = 0.0,
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Log-probs of the scored tokens and the entropy of their distributions.

    The head runs only at scored positions and only over the response vocabulary.

    Args:
        policy: whose network is asked, with gradient where the caller enables it.
        canvas: B finished rows.
        passes: K mask draws over them.
        cfg_scale: guidance applied while scoring; 0 scores the conditional model.
        temperature: divides the logits.

    Returns:
        logprobs [K, B, L] float32, 0 where not scored, and entropy of the same shape, detached.
    """
    shape = passes.scored.shape
    logprobs = torch.zeros(shape, device=canvas.tokens.device)
    entropy = torch.zeros(shape, device=canvas.tokens.device)
    for k in range(len(passes)):
        scored = passes.scored[k]
        masked = replace(canvas, tokens=canvas.tokens.masked_fill(passes.hidden[k], canvas.mask_id))
        logits = guided_logits(policy, masked, scored, cfg_scale).float()
        logp = (logits if temperature == 1 else logits / temperature).log_softmax(-1)
        del logits
        target = (canvas.tokens[scored] - canvas.vocab[0]).unsqueeze(-1)
        index = torch.zeros(shape, dtype=torch.bool, device=scored.device)
        index[k] = scored
        logprobs = logprobs.masked_scatter(index, logp.gather(-1, target).squeeze(-1))
        with torch.no_grad():
            entropy[index] = -logp.exp().mul_(logp).nan_to_num_().sum(-1)
    return logprobs, entropy
