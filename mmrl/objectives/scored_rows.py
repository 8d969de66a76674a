"""Rows that a network reads, with the weights of their loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from mmrl.generation.tokens.scoring.chunked_logprobs import LogProbReduction
from mmrl.models.network.pattern import may_attend
from mmrl.models.network.token_network import TokenNetwork
from mmrl.runtime.logits_budget import rows_scored_at_once, wide_dtype


@dataclass
class Rows:
    """R rows of width L, or one with tensors [L].

    Attributes:
        ids: [R, L] int64, tokens that the network reads.
        targets: [R, L] int64, the tokens without masks.
        weight: [R, L] float32, of the cross-entropy; 0 is not scored.
        place: [R, L] int64, position of the token; that of its original for a copy.
        block: [R, L] int64, order of attention, see `build_pair_mask`.
        copy: [R, L] bool, corrupted copies of tokens that the row also holds clean.
        real: [R, L] bool, False on padding.
        at: [R, L] int64, which embedding of an image replaces the token, or which image it is of,
            -1 for none.
        features: the images, see `TokenCanvas`; None without.
        padded: there is padding.
        ordered: not all attend to all: there are several blocks, or copies.
    """

    ids: Tensor
    targets: Tensor
    weight: Tensor
    place: Tensor
    block: Tensor
    copy: Tensor
    real: Tensor
    at: Tensor
    features: Any = None
    padded: bool = False
    ordered: bool = False

    def __len__(self) -> int:
        return self.ids.shape[0]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Rows:
        """Move the rows to a device."""
        moved = {k: v.to(device, non_blocking=non_blocking) for k, v in _tensors(self).items()}
        features = None if self.features is None else self.features.to(device)
        return replace(self, **moved, features=features)

    @property
    def attention_mask(self) -> Tensor | None:
        """None, or where to attend: [R, L] keys or [R, 1, L, L] pairs, bool."""
        if self.ordered:
            return build_pair_mask(self.real, self.block, self.copy)
        return self.real if self.padded else None

    @property
    def position_ids(self) -> Tensor | None:
        """[R, L] int64, or None where they count along the row."""
        return self.place if self.ordered else None


def build_rows(ids: Tensor, targets: Tensor, weight: Tensor, attend: Tensor | None = None) -> Rows:
    """Rows in which all attend to all; `attend` [R, L] is False on padding."""
    zeros = torch.zeros_like(ids)
    real, padded = (~zeros.bool(), False) if attend is None else (attend, True)
    return Rows(ids, targets, weight, zeros, zeros, zeros.bool(), real, zeros - 1, padded=padded)


def stack_rows(rows: Sequence[Rows], padding_id: int) -> Rows:
    """Put rows with tensors [l] under each other, the longest first, with padding after them."""
    rows = sorted(rows, key=lambda row: -len(row))
    fill = {"ids": padding_id, "targets": padding_id, "at": -1}
    columns: dict[str, Any] = {
        name: pad_sequence([_tensors(row)[name] for row in rows], True, fill.get(name, 0))
        for name in _tensors(rows[0])
    }
    padded = not bool(columns["real"].all())
    ordered = bool((columns["copy"] | (columns["block"] != 0)).any())
    return Rows(**columns, padded=padded, ordered=ordered)


def build_pair_mask(real: Tensor, block: Tensor, copy: Tensor) -> Tensor:
    """[R, 1, L, L] bool, True where a query (row) may attend to a key (column): to a clean token of
    an earlier block, or to one of the same block and kind, clean or copy. Padding attends to
    padding alone, so every query has a key."""
    same = real[:, :, None] == real[:, None, :]
    kinds = copy[:, :, None], copy[:, None, :]
    return (same & may_attend(block[:, :, None], block[:, None, :], *kinds)).unsqueeze(1)


def compute_loss(
    module: nn.Module, network: TokenNetwork, rows: Rows, vocab: tuple[int, int] | None
) -> Tensor:
    """The sum of weight times cross-entropy in nats over the scored tokens, in one forward pass of
    the maybe wrapped `module`; `vocab` is first and end of the tokens that the softmax is over,
    None is all.

    Logits of many rows are computed in parts (`mmrl.runtime.logits_budget.rows_scored_at_once`),
    which a trained head computes again in the backward pass."""
    scored = rows.weight > 0
    first, end = vocab or (0, network.vocab_size)
    targets = rows.targets[scored] - first
    at_once = rows_scored_at_once(end - first, device=targets.device)
    in_parts = network.can_reduce and len(targets) > at_once
    if network.causal:
        rows = replace(rows, ordered=False)  # its attention is that of the rows by itself
    found = module(
        input_ids=rows.ids,
        attention_mask=rows.attention_mask,
        positions=scored,
        columns=vocab,
        position_ids=rows.position_ids,
        **({} if rows.features is None else rows.features.inputs([rows.features])),
        **({"reduce": LogProbReduction(targets)} if in_parts else {}),
    ).logits
    if in_parts:
        return -(rows.weight[scored] * found.target).sum()
    logits = found.to(wide_dtype(found.dtype))
    entropies = F.cross_entropy(logits, targets, reduction="none")
    return (rows.weight[scored] * entropies).sum()


def _tensors(rows: Rows) -> dict[str, Tensor]:
    return {name: value for name, value in vars(rows).items() if isinstance(value, Tensor)}
