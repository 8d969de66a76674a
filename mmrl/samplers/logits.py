"""Logits of a canvas at chosen positions, guidance applied; shared by samplers and scoring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mmrl.samplers.guidance import Guidance
from mmrl.samplers.rule import forbid
from mmrl.types import Canvas

if TYPE_CHECKING:
    from mmrl.models import Policy


def guided_output(
    policy: Policy,
    canvas: Canvas,
    where: Tensor,
    guidance: Guidance,
    shared: bool = False,
    cache: Any = None,
    reduce: Callable[..., Any] | None = None,
) -> Any:
    """Logits [N, C] at the N True entries of `where` [B, L], guidance applied.

    What is never written (the mask token, and what the canvas bans) has the logit -inf, where it
    lies in the response vocabulary.

    Args:
        policy: whose network predicts.
        canvas: B rows; with guidance it needs its unconditional branches.
        where: positions.
        guidance: its scales.
        shared: whether identical rows are computed once.
        cache: the network's cache; only the columns of its span are computed.
        reduce: called with the hidden states of the branches and the head, see `Network.forward`;
            what it returns takes the place of the logits.
    """
    branches = guidance.build_branches(canvas)
    inputs: dict[str, Any] = {
        "input_ids": torch.cat([branch.tokens for branch in branches]),
        "attention_mask": attention(branches),
        "positions": where.repeat(len(branches), 1),
        "columns": canvas.vocab,
        **embeddings(branches),
        **block_inputs(branches),
    }
    if reduce is not None:
        inputs["reduce"] = reduce
    if cache is not None:
        inputs = {**_select_columns(inputs, cache.span), "cache": cache}
    logits = _compute_once(policy, inputs) if shared else policy.model(**inputs).logits
    if reduce is not None:
        return logits
    if len(branches) > 1:
        logits = guidance.combine(logits.chunk(len(branches)))
    return forbid(logits, canvas.forbidden_columns)


def _compute_once(policy: Policy, inputs: Mapping[str, Any]) -> Tensor:
    """Logits [N, C] with identical rows computed once; a cache then holds all rows."""
    names = ("input_ids", "attention_mask", "feature_at", "blocks")
    rows = {name: inputs[name] for name in names if inputs.get(name) is not None}
    distinct, original = take_distinct(rows)
    number, positions = len(distinct["input_ids"]), inputs["positions"]
    union = torch.zeros(number, positions.shape[1], dtype=torch.int, device=original.device)
    union = union.index_add(0, original, positions.int()).bool()
    place = (union.flatten().cumsum(0) - 1).view_as(union)[original][positions]
    reduce = inputs.get("reduce")
    again = {} if reduce is None else {"reduce": lambda x, head: reduce(x[place], head)}
    found = policy.model(**{**inputs, **distinct, "positions": union, **again}).logits
    if "cache" in inputs:
        inputs["cache"].take_rows(original)
    return found[place] if reduce is None else found


def take_distinct(rows: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """One of each set of rows that are equal in all of some tensors [R, n].

    Returns:
        The tensors of these rows, and [R] int64, which of them equals each row.
    """
    key = torch.cat([each.long() for each in rows.values()], 1)
    _, original = key.unique(dim=0, return_inverse=True)
    kept = torch.zeros(int(original.max()) + 1, dtype=torch.long, device=key.device)
    kept[original] = torch.arange(len(original), device=key.device)
    return {name: each[kept] for name, each in rows.items()}, original


def _select_columns(inputs: Mapping[str, Any], span: tuple[int, int, int]) -> dict[str, Any]:
    """The inputs in the columns start to stop, with attention to the first `seen` columns."""
    start, stop, seen = span
    names = [name for name in ("input_ids", "positions", "feature_at") if name in inputs]
    selected = {name: inputs[name][:, start:stop] for name in names}
    keys = [name for name in ("attention_mask", "blocks") if inputs.get(name) is not None]
    return {**inputs, **selected, **{name: inputs[name][:, :seen] for name in keys}}


def attention(branches: Sequence[Canvas]) -> Tensor | None:
    """The [R, L] key mask of canvases stacked over rows; None when nothing is padding."""
    masks = [branch.attend for branch in branches]
    if all(mask is None for mask in masks):
        return None
    full = torch.ones_like(branches[0].response)
    return torch.cat([full if mask is None else mask for mask in masks])


def block_inputs(branches: Sequence[Canvas]) -> dict[str, Tensor]:
    """Inputs of a network whose attention is causal between blocks; none where it is not."""
    own = {
        "blocks": branches[0].blocks,
        "copies": branches[0].copies,
        "position_ids": branches[0].places,
    }
    return {k: v.repeat(len(branches), 1) for k, v in own.items() if v is not None}


def embeddings(branches: Sequence[Canvas]) -> dict[str, Tensor]:
    """Inputs of the network that replace tokens, for canvases stacked over rows; mostly none.

    The branches differ in the positions of the embeddings, not in the embeddings.
    """
    features = next((branch.features for branch in branches if branch.features is not None), None)
    if features is None or features.embeddings is None:
        return {}
    tokens = torch.full_like(features.at, -1)
    places = [tokens if branch.features is None else branch.features.at for branch in branches]
    return {"features": features.embeddings, "feature_at": torch.cat(places)}
