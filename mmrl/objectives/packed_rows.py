"""Rows for a network out of pieces of different lengths: one per row and padded, or several.

Several pieces in a row do not attend to each other and each counts its positions from 0, so a
piece has the same logits packed and alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mmrl.features import Features


@dataclass
class Rows:
    """R rows of width L; or, with one dimension [L] less, one piece.

    Attributes:
        ids: [R, L] int64, what the network reads.
        targets: [R, L] int64, what stands there in truth.
        weight: [R, L] float32, of the cross-entropy; 0 is not scored.
        place: [R, L] int64, position within the piece.
        block: [R, L] int64, order of attention within the piece, see `pair_mask`.
        copy: [R, L] bool, corrupted copies of tokens that also stand clean in the piece.
        piece: [R, L] int64, number of the piece, -1 on padding.
        at: [R, L] int64, which embedding of an image stands there, -1 where a token does.
        features: the images themselves; None without.
        simple: every row is one piece in which all attend to all.
        padded: there is padding.
    """

    ids: Tensor
    targets: Tensor
    weight: Tensor
    place: Tensor
    block: Tensor
    copy: Tensor
    piece: Tensor
    at: Tensor
    features: Features | None = None
    simple: bool = True
    padded: bool = False

    def __len__(self) -> int:
        return self.ids.shape[0]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Rows:
        """The same rows on another device."""
        moved = {k: v.to(device, non_blocking=non_blocking) for k, v in _tensors(self).items()}
        seen = None if self.features is None else self.features.to(device)
        return replace(self, **moved, features=seen)

    @property
    def attention_mask(self) -> Tensor | None:
        """What the network takes as its mask: none, [R, L] keys or [R, 1, L, L] pairs, bool."""
        if not self.simple:
            return pair_mask(self.piece, self.block, self.copy)
        return self.piece >= 0 if self.padded else None

    @property
    def position_ids(self) -> Tensor | None:
        """[R, L] int64, or None where they count along the row."""
        return None if self.simple else self.place


def lay_out(pieces: Sequence[Rows], capacity: int, padding_id: int) -> Rows:
    """Rows of pieces; a piece is `Rows` with tensors [l].

    Args:
        pieces: of one micro-batch; `piece` must number them.
        capacity: longest row of several pieces; 0 puts every piece into a row of its own.
        padding_id: token behind the end of a row.
    """
    order = first_fit([len(piece) for piece in pieces], capacity)
    fill = {"ids": padding_id, "targets": padding_id, "piece": -1, "at": -1}
    columns = {}
    for name in _tensors(pieces[0]):
        rows = [torch.cat([_tensors(pieces[n])[name] for n in row]) for row in order]
        columns[name] = pad_sequence(rows, batch_first=True, padding_value=fill.get(name, 0))
    simple = all(len(row) == 1 for row in order) and not bool(columns["copy"].any())
    return Rows(**columns, simple=simple, padded=bool((columns["piece"] < 0).any()))


def first_fit(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Which lengths share a row: longest first, each into the first row with room for it."""
    rows: list[list[int]] = []
    used: list[int] = []
    for n in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        row = next((r for r, u in enumerate(used) if u + lengths[n] <= capacity), len(rows))
        if row == len(rows):
            rows.append([])
            used.append(0)
        rows[row].append(n)
        used[row] += lengths[n]
    return rows


def pair_mask(piece: Tensor, block: Tensor, copy: Tensor) -> Tensor:
    """[R, 1, L, L] bool, True where a query (row) may attend to a key (column).

    Both are of the same piece, and the key is a clean token of an earlier block, or one of the same
    block and of the same kind, clean or copy. Padding attends to padding, so no query is without
    keys.
    """
    same = piece[:, :, None] == piece[:, None, :]
    kin = (block[:, :, None] == block[:, None, :]) & (copy[:, :, None] == copy[:, None, :])
    earlier = (block[:, :, None] > block[:, None, :]) & ~copy[:, None, :]
    return (same & (kin | earlier)).unsqueeze(1)


def _tensors(rows: Rows) -> dict[str, Tensor]:
    values = {field.name: getattr(rows, field.name) for field in fields(rows)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}
