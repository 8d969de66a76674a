"""Logits of a canvas at chosen positions, guidance applied; shared by samplers and scoring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mmrl.generation.tokens.canvas import TokenCanvas
from mmrl.generation.tokens.draw import forbid
from mmrl.types.guidance import Guidance

if TYPE_CHECKING:
    from mmrl.models import Policy


def guided_output(
    policy: Policy,
    canvas: TokenCanvas,
    where: Tensor,
    guidance: Guidance,
    shared: bool = False,
    cache: Any = None,
    reduce: Callable[..., Any] | None = None,
) -> Any:
    """Logits [N, C] at the N True entries of `where` [B, L], guidance applied; of a canvas of B
    rows, which needs the unconditional branches.

    What is never written has the logit -inf, where it lies in the response vocabulary. `shared`:
    identical rows are computed once. `cache`: only the columns of its span are computed. What
    `reduce` makes of the final states of the branches and the head, see `Network.forward`, takes
    the place of the logits."""
    branches = guidance.build_branches(canvas)
    inputs = network_inputs(branches)
    inputs |= {"positions": where.repeat(len(branches), 1), "columns": canvas.columns}
    if reduce is not None:
        inputs["reduce"] = reduce
    if cache is not None:
        inputs = {**_select_columns(inputs, cache.span), "cache": cache}
    found = _compute_once(policy, inputs) if shared else policy.model(**inputs).logits
    if reduce is not None:
        return found
    if len(branches) > 1:
        found = guidance.combine(found.chunk(len(branches)))
    return forbid(found, canvas.forbidden_columns)


def _compute_once(policy: Policy, inputs: Mapping[str, Any]) -> Tensor:
    """Logits [N, C] with identical rows computed once; a cache then holds all rows."""
    names = ("input_ids", "attention_mask", "feature_at", "blocks")
    rows = {name: inputs[name] for name in names if name in inputs}
    kept, original = find_distinct(rows)
    distinct = {name: each[kept] for name, each in rows.items()}
    positions = inputs["positions"]
    union = torch.zeros(len(kept), positions.shape[1], dtype=torch.int, device=original.device)
    union = union.index_add(0, original, positions.int()).bool()
    place = (union.flatten().cumsum(0) - 1).view_as(union)[original][positions]
    reduce = inputs.get("reduce")
    again = {} if reduce is None else {"reduce": lambda x, head: reduce(x[place], head)}
    found = policy.model(**{**inputs, **distinct, "positions": union, **again}).logits
    if "cache" in inputs:
        inputs["cache"].take_rows(original)
    return found[place] if reduce is None else found


def find_distinct(rows: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """One of each set of rows that are equal in all of some tensors [R, n]: the numbers [r] int64
    of these rows, and [R] int64, which of them equals each row."""
    key = torch.cat([each.long() for each in rows.values()], 1)
    _, original = key.unique(dim=0, return_inverse=True)
    kept = torch.zeros(int(original.max()) + 1, dtype=torch.long, device=key.device)
    kept[original] = torch.arange(len(original), device=key.device)
    return kept, original


def read_prompts(
    policy: Policy, given: Mapping[str, Tensor], columns: tuple[int, int], cache: Any
) -> None:
    """Put the keys and values of prompts, inputs [R, n] of the network, into its cache, set to
    their columns, each distinct one computed once; it then holds R rows. No logit of the response
    vocabulary is computed."""
    kept, original = find_distinct(given)
    distinct = {name: each[kept] for name, each in given.items()}
    nowhere = torch.zeros_like(distinct["input_ids"], dtype=torch.bool)
    policy.model(**distinct, positions=nowhere, columns=columns, cache=cache)
    cache.take_rows(original)


def _select_columns(inputs: Mapping[str, Any], span: tuple[int, int, int]) -> dict[str, Any]:
    """The inputs in the columns start to stop, with attention to the first `seen` columns."""
    start, stop, seen = span
    parts = dict.fromkeys(("input_ids", "positions", "feature_at"), slice(start, stop))
    parts |= dict.fromkeys(("attention_mask", "blocks"), slice(seen))
    selected = {name: inputs[name][:, part] for name, part in parts.items() if name in inputs}
    return {**inputs, **selected}


def network_inputs(branches: Sequence[TokenCanvas]) -> dict[str, Any]:
    """What the network reads of the branches of guidance, stacked over rows R: their `inputs`, and
    embeddings in place of tokens. Branches differ in where the embeddings are, not in them.
    """
    rows = [branch.inputs() for branch in branches]
    full = torch.ones_like(branches[0].response)  # of a branch that attends to every position
    inputs: dict[str, Any] = {
        name: torch.cat([each.get(name, full) for each in rows])
        for name in {name: None for each in rows for name in each}
    }
    shown = [branch.features for branch in branches]
    known = next((features for features in shown if features is not None), None)
    if known is not None:
        inputs |= known.inputs(shown)
    return inputs
