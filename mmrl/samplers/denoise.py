"""The one denoising loop behind every sampler.

    logits where this step may write -> guidance -> temperature, top-k, top-p -> rule -> write

The network runs once per step on conditional and unconditional rows together, computes logits only
at the positions the rule asks for and only for the response vocabulary, and computes rows that are
still identical (a group before its first write) once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Generator, Tensor

from mmrl.config import check, check_choice
from mmrl.samplers.noise import row_seeds
from mmrl.samplers.schedule import SCHEDULES
from mmrl.samplers.state import Rule, State
from mmrl.types import Canvas, Rollout

if TYPE_CHECKING:
    from models import Policy


@dataclass(kw_only=True)
class SamplerConfig:
    """Settings of the denoising loop."""

    name: str = "emerge"
    """Commit rule."""
    steps: int = 12
    """Denoising steps S."""
    schedule: str = "cosine"
    """Masking schedule: cosine or linear."""
    cfg_scale: float = 0.0
    """Classifier-free guidance w: (1 + w) conditional - w unconditional logits; 0 is off."""
    temperature: float = 1.0
    """Divides the logits before the token draw."""
    top_k: int = 0
    """Only the k likeliest tokens can be drawn; 0 keeps all."""
    top_p: float = 1.0
    """Only the likeliest tokens that make up this probability can be drawn."""
    choice_temperature: float = 1.0
    """Starting scale of the Gumbel noise on the confidence (maskgit)."""
    rng: Literal["compact", "reference"] = "compact"
    """`compact` is fast and independent per row; `reference` draws as the public samplers do."""

    def __post_init__(self) -> None:
        check_choice("sampler.schedule", self.schedule, SCHEDULES)
        check(self.steps >= 1, "sampler.steps", self.steps, "at least 1")
        check(self.cfg_scale >= 0, "sampler.cfg_scale", self.cfg_scale, "at least 0 (0 = off)")
        check(self.temperature > 0, "sampler.temperature", self.temperature, "above 0")
        check(0 < self.top_p <= 1, "sampler.top_p", self.top_p, "in (0, 1]")
        check(self.top_k >= 0, "sampler.top_k", self.top_k, "at least 0 (0 = off)")


@torch.no_grad()
def denoise(
    policy: Policy,
    canvas: Canvas,
    config: SamplerConfig,
    rule: Rule,
    generator: Generator | Sequence[Generator],
) -> Rollout:
    """Write every masked response position of a canvas; see `mmrl.samplers.sample`."""
    reference = generator if config.rng == "reference" else None
    if reference is not None and not isinstance(reference, Generator):
        raise ValueError("rng: reference draws over the whole batch and takes a single generator")
    seeds = [] if reference else row_seeds(generator, len(canvas))
    canvas = replace(canvas, tokens=canvas.tokens.clone())
    written_at = torch.full_like(canvas.tokens, -1)
    logprobs = torch.zeros(canvas.tokens.shape, device=canvas.tokens.device)
    open_at_start = canvas.masked
    for step in range(config.steps):
        state = State(
            step, config.steps, config.schedule, config.choice_temperature,
            open_at_start, canvas.masked, seeds, reference,
        )  # fmt: skip
        where = canvas.response if reference else rule.candidates(state)
        if not where.any():
            continue
        logits = guided_logits(policy, canvas, where, config.cfg_scale, shared=step == 0)
        logp = filtered(logits.float(), config).log_softmax(-1)
        propose = rule.propose_reference if reference else rule.propose
        columns, written = propose(state, where, logp.exp())
        chosen = where.clone()
        chosen[where] = written
        canvas.tokens[chosen] = columns[written] + canvas.vocab[0]
        logprobs[chosen] = logp[written].gather(-1, columns[written].unsqueeze(-1)).squeeze(-1)
        written_at[chosen] = step
    return Rollout(canvas, written_at, logprobs, asdict(config))


def guided_logits(
    policy: Policy, canvas: Canvas, where: Tensor, cfg_scale: float, shared: bool = False
) -> Tensor:
    """Logits [N, C] at the N True entries of `where` [B, L], guidance applied.

    Args:
        policy: whose network is asked.
        canvas: B rows; with guidance it needs its unconditional twin.
        where: positions.
        cfg_scale: w in (1 + w) conditional - w unconditional.
        shared: whether to look for identical rows and compute them once.
    """
    sides = [canvas] if cfg_scale == 0 else [canvas, canvas.unconditional()]
    tokens = torch.cat([side.tokens for side in sides])
    attend = attention(sides)
    asked = where.repeat(len(sides), 1)
    logits = row_logits(policy, tokens, attend, asked, canvas.vocab, shared)
    if cfg_scale == 0:
        return logits
    conditional, unconditional = logits.chunk(2)
    return (1 + cfg_scale) * conditional - cfg_scale * unconditional


def row_logits(
    policy: Policy,
    tokens: Tensor,
    attend: Tensor | None,
    asked: Tensor,
    vocab: tuple[int, int],
    shared: bool,
) -> Tensor:
    """Logits [N, C] at the True entries of `asked` [R, L], in row-major order."""
    if not shared:
        return policy.model(
            input_ids=tokens, attention_mask=attend, positions=asked, columns=vocab
        ).logits
    key = tokens if attend is None else torch.cat((tokens, attend.long()), 1)
    _, twin = key.unique(dim=0, return_inverse=True)
    kept = torch.zeros(int(twin.max()) + 1, dtype=torch.long, device=tokens.device)
    kept[twin] = torch.arange(len(twin), device=tokens.device)
    union = torch.zeros(len(kept), asked.shape[1], dtype=torch.int, device=tokens.device)
    union = union.index_add(0, twin, asked.int()).bool()
    logits = row_logits(
        policy, tokens[kept], None if attend is None else attend[kept], union, vocab, False
    )
    place = (union.flatten().cumsum(0) - 1).view_as(union)
    return logits[place[twin][asked]]


def attention(sides: Sequence[Canvas]) -> Tensor | None:
    """The [R, L] key mask of canvases stacked over rows; None when nothing is padding."""
    masks = [side.attend for side in sides]
    if all(mask is None for mask in masks):
        return None
    full = torch.ones_like(sides[0].response)
    return torch.cat([full if mask is None else mask for mask in masks])


def filtered(logits: Tensor, config: SamplerConfig) -> Tensor:
    """Logits [N, C] after temperature, top-k and top-p; excluded columns become -inf."""
    if config.temperature != 1:
        logits = logits / config.temperature
    if 0 < config.top_k < logits.shape[-1]:
        floor = logits.topk(config.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < floor, -torch.inf)
    if config.top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True)
        probs = ordered.softmax(-1)
        # a token stays when the likelier ones before it leave room, so the likeliest always does
        out = probs.cumsum(-1) - probs >= config.top_p
        logits = logits.masked_fill(out.scatter(-1, order, out), -torch.inf)
    return logits
