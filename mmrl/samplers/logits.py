"""Logits of a canvas at chosen positions, guidance applied; shared by samplers and scoring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mmrl.types import Canvas

if TYPE_CHECKING:
    from models import Policy


def guided_logits(
    policy: Policy,
    canvas: Canvas,
    where: Tensor,
    cfg_scale: float,
    shared: bool = False,
    cache: Any = None,
) -> Tensor:
    """Logits [N, C] at the N True entries of `where` [B, L], guidance applied.

    What is never written (the mask token, and what the canvas bans) has the logit -inf, where it
    lies in the response vocabulary.

    Args:
        policy: whose network is asked.
        canvas: B rows; with guidance it needs its unconditional twin.
        where: positions.
        cfg_scale: w in (1 + w) conditional - w unconditional.
        shared: whether to look for identical rows and compute them once.
        cache: the network's cache; only the columns of its span are computed.
    """
    return guided_output(policy, canvas, where, cfg_scale, shared, cache)[0]


def guided_output(
    policy: Policy,
    canvas: Canvas,
    where: Tensor,
    cfg_scale: float,
    shared: bool = False,
    cache: Any = None,
) -> tuple[Tensor, Tensor | None]:
    """`guided_logits`, and the values [N] at the same positions, see `models.network.value_head`.

    Values are those of the conditional side; None for a network without a value head, or with
    `shared`.
    """
    sides = [canvas] if cfg_scale == 0 else [canvas, canvas.unconditional()]
    tokens = torch.cat([side.tokens for side in sides])
    attend = attention(sides)
    given = embeddings(sides)
    asked = where.repeat(len(sides), 1)
    values = None
    if cache is not None:
        logits = cached_logits(policy, tokens, attend, asked, canvas.vocab, cache, given)
    elif shared:
        logits = shared_logits(policy, tokens, attend, asked, canvas.vocab, given)
    else:
        logits, values = policy.model(
            input_ids=tokens, attention_mask=attend, positions=asked, columns=canvas.vocab, **given
        )
    if cfg_scale != 0:
        conditional, unconditional = logits.chunk(2)
        logits = (1 + cfg_scale) * conditional - cfg_scale * unconditional
        values = None if values is None else values.chunk(2)[0]
    for column in canvas.never:
        logits[:, column] = -torch.inf
    return logits, values


def shared_logits(
    policy: Policy,
    tokens: Tensor,
    attend: Tensor | None,
    asked: Tensor,
    vocab: tuple[int, int],
    given: Mapping[str, Tensor],
) -> Tensor:
    """Logits [N, C] at the True entries of `asked` [R, L], identical rows computed once."""
    key = tokens if attend is None else torch.cat((tokens, attend.long()), 1)
    if given:
        key = torch.cat((key, given["feature_at"]), 1)
    _, twin = key.unique(dim=0, return_inverse=True)
    kept = torch.zeros(int(twin.max()) + 1, dtype=torch.long, device=tokens.device)
    kept[twin] = torch.arange(len(twin), device=tokens.device)
    union = torch.zeros(len(kept), asked.shape[1], dtype=torch.int, device=tokens.device)
    union = union.index_add(0, twin, asked.int()).bool()
    logits = policy.model(
        input_ids=tokens[kept],
        attention_mask=None if attend is None else attend[kept],
        positions=union,
        columns=vocab,
        **embeddings_at(given, kept),
    ).logits
    place = (union.flatten().cumsum(0) - 1).view_as(union)
    return logits[place[twin][asked]]


def cached_logits(
    policy: Policy,
    tokens: Tensor,
    attend: Tensor | None,
    asked: Tensor,
    vocab: tuple[int, int],
    cache: Any,
    given: Mapping[str, Tensor],
) -> Tensor:
    """The same from the columns in the cache's span only, with cached keys and values around."""
    start, stop, seen = cache.span
    return policy.model(
        input_ids=tokens[:, start:stop],
        attention_mask=None if attend is None else attend[:, :seen],
        positions=asked[:, start:stop],
        columns=vocab,
        cache=cache,
        **embeddings_at(given, (slice(None), slice(start, stop))),
    ).logits


def attention(sides: Sequence[Canvas]) -> Tensor | None:
    """The [R, L] key mask of canvases stacked over rows; None when nothing is padding."""
    masks = [side.attend for side in sides]
    if all(mask is None for mask in masks):
        return None
    full = torch.ones_like(sides[0].response)
    return torch.cat([full if mask is None else mask for mask in masks])


def embeddings(sides: Sequence[Canvas]) -> dict[str, Tensor]:
    """What the network takes in place of tokens for canvases stacked over rows; mostly nothing.

    The sides differ in where embeddings stand, not in the embeddings.
    """
    features = next((side.features for side in sides if side.features is not None), None)
    if features is None or features.rows is None:
        return {}
    tokens = torch.full_like(features.at, -1)
    places = [tokens if side.features is None else side.features.at for side in sides]
    return {"features": features.rows, "feature_at": torch.cat(places)}


def embeddings_at(given: Mapping[str, Tensor], part: Any) -> dict[str, Tensor]:
    """The same for some rows or columns of the stack."""
    return {**given, "feature_at": given["feature_at"][part]} if given else {}
