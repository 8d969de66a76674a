"""Rows of tokens that are written by un-masking them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from mmrl.generation.tokens.canvas import TokenCanvas

if TYPE_CHECKING:
    from torch import Tensor

OWN_SIZE = "block_size"
"""Column of prompts with the block size of each."""


def read_block_size(metadata: Mapping[str, Any]) -> int | None:
    """The block size that a prompt says; None where it says none, or an impossible one."""
    text = str(metadata.get(OWN_SIZE))
    return int(text) if text.isdecimal() and int(text) > 0 else None


@dataclass
class MaskedCanvas(TokenCanvas):
    """A batch of partly written token rows; see `TokenCanvas`.

    Attributes:
        tokens: [B, L] int64, `mask_id` where a response position is still unwritten.
        mask_id: id of the mask token.
        uncond_tokens: [B, L] int64 or None, the other branch of classifier-free guidance: the same
            length, with the unconditional prompt. Its response is copied from `tokens`. It has no
            `features`.
        uncond_attend: [B, L] bool or None, `attend` of that branch.
        image_uncond_tokens: [B, L] int64 or None, the branch that keeps the text of the prompt and
            has no source image, for `image_guidance_scale`.
        image_uncond_attend: [B, L] bool or None, `attend` of that branch.
        blocks: [B, L] int64, the block of each position for a network whose attention is causal
            between blocks of `block_size` positions, from 0 at the first token; None where all
            attend to all.
        copies: [B, L] int64, see `mmrl.models.network.pattern`; None where all tokens are clean.
        places: [B, L] int64, position of each token in its text; None where they are the columns.
        sizes: [B, L] int64, response positions of a block of the row, as its prompt says; None
            where a prompt does not.
    """

    kind: ClassVar[str] = "masked"
    PADDING = {
        **TokenCanvas.PADDING,
        "uncond_tokens": 0,
        "uncond_attend": False,
        "image_uncond_tokens": 0,
        "image_uncond_attend": False,
        "blocks": 0,
        "sizes": 1,
    }
    ATTENDED = {
        **TokenCanvas.ATTENDED,
        "uncond_attend": "uncond_tokens",
        "image_uncond_attend": "image_uncond_tokens",
    }
    ROWS = (*TokenCanvas.ROWS, "copies", "places")

    mask_id: int
    uncond_tokens: Tensor | None = None
    uncond_attend: Tensor | None = None
    _: KW_ONLY
    image_uncond_tokens: Tensor | None = None
    image_uncond_attend: Tensor | None = None
    blocks: Tensor | None = None
    block_size: int | None = None
    copies: Tensor | None = None
    places: Tensor | None = None
    sizes: Tensor | None = None

    @property
    def forbidden_columns(self) -> list[int]:
        """Columns of the response vocabulary that are never written; that of the mask is one."""
        return self.columns_of((self.mask_id, *self.banned))

    @property
    def masked(self) -> Tensor:
        """[B, L] bool: response positions that are still unwritten."""
        return self.response & (self.tokens == self.mask_id)

    def split(self, size: int | str | None = None) -> Tensor | None:  # type: ignore[override]
        """[B, L] int64: the blocks of response positions, counted from the first with one, -1
        elsewhere: those of the network's attention, or else of `size` positions, with `prompt` of
        the `sizes`; None where there are neither."""
        if self.blocks is None:
            return super().split(self.sizes if isinstance(size, str) else size)
        return (self.blocks - self._first_block(self.blocks)).where(self.response, -1)

    @property
    def first_response_column(self) -> int:
        """The first column that in some row belongs to the block of the first response token; what
        is left of it is in blocks of the prompt alone. The canvas must have blocks."""
        assert self.blocks is not None
        return int((self.blocks >= self._first_block(self.blocks)).any(0).int().argmax())

    def _first_block(self, blocks: Tensor) -> Tensor:
        """[B, 1] int64: the block of the first response token."""
        return blocks.where(self.response, blocks.amax() + 1).amin(-1, keepdim=True)

    def read_metadata(self, rows: Sequence[Mapping[str, Any]]) -> MaskedCanvas:
        """The canvas with the block sizes that its prompts say, where all of them do."""
        import torch

        sizes = [read_block_size(row) for row in rows]
        if None in sizes:
            return self
        own = torch.tensor(sizes, device=self.tokens.device)[:, None]
        return replace(self, sizes=own.expand_as(self.tokens))

    def unconditional(self) -> MaskedCanvas:
        """See `Canvas.unconditional`."""
        if self.uncond_tokens is None:
            return super().unconditional()
        return self._branch(self.uncond_tokens, self.uncond_attend)

    def image_unconditional(self) -> MaskedCanvas:
        """See `Canvas.image_unconditional`."""
        if self.image_uncond_tokens is None:
            return super().image_unconditional()
        return self._branch(self.image_uncond_tokens, self.image_uncond_attend)

    def _branch(self, prompt: Tensor, attend: Tensor | None) -> MaskedCanvas:
        tokens = self.tokens.where(self.response, prompt)
        return replace(self, tokens=tokens, attend=attend, features=None)

    def hide(self, hidden: Tensor) -> MaskedCanvas:
        """Put the mask token at the True entries of `hidden` [B, L]."""
        features = self.features
        if features is not None:
            features = replace(features, at=features.at.masked_fill(hidden, -1))
        tokens = self.tokens.masked_fill(hidden, self.mask_id)
        return replace(self, tokens=tokens, features=features)

    def inputs(self) -> dict[str, Tensor]:
        """What the network reads of the rows, [B, L] each, but for the embeddings; with blocks also
        their numbers."""
        own = {"blocks": self.blocks, "copies": self.copies, "position_ids": self.places}
        return super().inputs() | {name: each for name, each in own.items() if each is not None}
