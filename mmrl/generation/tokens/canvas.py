"""Rows of tokens, some of which a policy writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from mmrl.types import Rollout

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from typing_extensions import Self


@dataclass
class TokenCanvas:
    """A batch of partly written rows of tokens, see `mmrl.types.Canvas`.

    Attributes:
        tokens: [B, L] int64.
        response: [B, L] bool, the positions the policy writes.
        attend: [B, L] bool, False on padding, which is never attended to; None without padding.
        columns: half-open range of token ids a response token may come from.
        stop_ids: ids that end a text; the first also fills the positions after the end. Empty where
            responses have a fixed length, as images have.
        valid: [B, L] bool, the response positions that are scored in a finished canvas (a text up
            to and including its first end token); None for all.
        features: images of prompts that are not tokens, `Features` or those of another kind; None
            without.
        banned: ids that a response never contains.
        grid: height and width of the response in image tokens, None for text.
    """

    kind: ClassVar[str]
    PADDING: ClassVar[Mapping[str, int | bool]] = {
        "tokens": 0,
        "response": False,
        "attend": False,
        "valid": False,
    }
    """Tensors with a column per position, and what they hold at padding."""
    ATTENDED: ClassVar[Mapping[str, str]] = {"attend": "tokens"}
    """Those that say what is attended to, by the tokens they belong to."""
    ROWS: ClassVar[tuple[str, ...]] = ("features",)
    """What else has rows."""

    tokens: Tensor
    response: Tensor
    attend: Tensor | None
    columns: tuple[int, int]
    _: KW_ONLY
    stop_ids: tuple[int, ...] = ()
    valid: Tensor | None = None
    features: Any = None
    banned: tuple[int, ...] = ()
    grid: tuple[int, int] | None = None

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> Self:
        """The canvas of some rows (a slice, or an int64 or bool index of shape [b])."""
        return self._map(lambda each: each[rows])

    def to(self, device: torch.device | str) -> Self:
        """The same canvas on another device."""
        return self._map(lambda each: each.to(device))

    def _map(self, change: Callable[[Any], Any]) -> Self:
        """The canvas with everything that has rows changed."""
        own = ((name, getattr(self, name)) for name in (*self.PADDING, *self.ROWS))
        return replace(self, **{name: None if x is None else change(x) for name, x in own})

    def pad_left(self, width: int) -> Self:
        """Add `width` columns on the left that are never attended to; fewer than 0 drops some."""
        import torch
        import torch.nn.functional as F

        known = {name: getattr(self, name) for name in self.PADDING}
        for name, tokens in self.ATTENDED.items():
            if known[name] is None and known[tokens] is not None:
                known[name] = torch.ones_like(self.response)
        padded = {
            name: None if tensor is None else F.pad(tensor, (width, 0), value=self.PADDING[name])
            for name, tensor in known.items()
        }
        return replace(self, **padded, features=self.features and self.features.pad_left(width))

    def take_columns(self, columns: slice | Tensor) -> Self:
        """Some columns of all rows (a slice, or an int64 index), without their features."""
        own = ((name, getattr(self, name)) for name in self.PADDING)
        return replace(self, **{name: x if x is None else x[:, columns] for name, x in own})

    def trim(self) -> tuple[Self, int]:
        """The canvas without the columns on the left that no row attends to, and without what then
        says that every position is attended to; and the number of columns dropped.

        Attention to all positions has the fastest kernels, and rows that share a prompt are so."""
        import torch

        given = [name for name, rows in self.ATTENDED.items() if getattr(self, rows) is not None]
        attended = [getattr(self, name) for name in given]
        if any(each is None for each in attended):  # what has none attends to every column
            return self, 0
        stacked = torch.stack(attended)
        needless = ~stacked.any(0).any(0)
        first = needless.long().cumprod(0).sum()
        unseen = (~stacked).sum((1, 2)) - first * len(self)
        width, *rest = torch.cat((first[None], unseen)).tolist()
        trimmed = self.pad_left(-width) if width else self
        none = {name: None for name, left in zip(given, rest, strict=True) if not left}
        return replace(trimmed, **none), width

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Canvases of one task as one; shorter rows are padded on the left, never attended to."""
        length = max(part.tokens.shape[1] for part in parts)
        padded = [
            part if part.tokens.shape[1] == length else part.pad_left(length - part.tokens.shape[1])
            for part in parts
        ]
        features = [each.features for each in padded if each.features is not None]
        return replace(
            padded[0],
            **{name: _concatenate(padded, name) for name in cls.PADDING},
            features=type(features[0]).concatenate(features) if features else None,
        )

    def columns_of(self, tokens: Sequence[int]) -> list[int]:
        """The columns of those of some tokens that lie in the response vocabulary."""
        first, end = self.columns
        return [token - first for token in tokens if first <= token < end]

    @property
    def forbidden_columns(self) -> list[int]:
        """Columns of the response vocabulary that are never written."""
        return self.columns_of(self.banned)

    @property
    def ends(self) -> Tensor:
        """[B, L] bool: response positions with a token that ends a text."""
        found = self.response.new_zeros(self.response.shape)
        for token in self.stop_ids:
            found |= self.tokens == token
        return found & self.response

    def split(self, size: int | Tensor | None = None) -> Tensor | None:
        """[B, L] int64: the blocks of `size` response positions (those of a row may have one of
        their own, [B, L]), counted from the first with one,
        -1 elsewhere; None without a size."""
        if size is None:
            return None
        return ((self.response.cumsum(1) - 1) // size).where(self.response, -1)

    def read_metadata(self, rows: Sequence[Mapping[str, Any]]) -> Self:
        """See `Canvas.read_metadata`."""
        return self

    @property
    def counted(self) -> Tensor:
        """[B, L] bool: response positions whose log-probs count."""
        return self.response if self.valid is None else self.response & self.valid

    def unconditional(self) -> Self:
        """The branch without the text of the prompt. Raises ValueError: there is none."""
        raise ValueError("cfg_scale > 0 needs a layout with a branch without text; set it to 0.")

    def image_unconditional(self) -> Self:
        """The branch without the source image. Raises ValueError: there is none."""
        raise ValueError("image_guidance_scale > 0 needs a source image to drop; set it to 0.")

    def drop_conditions(self, rows: Tensor) -> Self:
        """Replace the prompts of some rows ([B] bool) by those of `unconditional`. Raises
        ValueError: there is no such branch, or there are images that are not tokens."""
        import torch

        if self.features is not None:
            raise ValueError("the prompts have images that are not tokens")
        dropped, other, attend = rows[:, None], self.unconditional(), None
        if self.attend is not None or other.attend is not None:
            every = torch.ones_like(self.response)
            known = (every if each is None else each for each in (other.attend, self.attend))
            attend = torch.where(dropped, *known)
        return replace(self, tokens=other.tokens.where(dropped, self.tokens), attend=attend)

    def encode(self, model: Callable[..., Any]) -> Self:
        """The canvas with its image embeddings computed by a model, each image once for all passes;
        the same canvas without images, or where they are final."""
        if self.features is None or self.features.source is None:
            return self
        features = self.features.drop_unused()
        return replace(self, features=replace(features.compute(model), source=features.source))

    def freeze(self, model: Callable[..., Any]) -> Self:
        """Compute the image embeddings without gradient and keep them: rows of the result may be
        scored in any parts without encoding an image again."""
        import torch

        if self.features is None or self.features.source is None:
            return self
        with torch.no_grad():
            seen = self.encode(model)
        return replace(seen, features=replace(seen.features, source=None))

    def describe(self, row: int) -> dict[str, list[Any]]:
        """See `Canvas.describe`: the tokens, and of an image its height and width in tokens."""
        tokens = self.tokens[row][self.counted[row]].tolist()
        return {"tokens": tokens, **({} if self.grid is None else {"grid": list(self.grid)})}

    def begin(self, config: Any, seeds: Sequence[int]) -> Rollout:
        """An unwritten rollout of a copy of the canvas."""
        import torch

        nowhere = torch.full_like(self.tokens, -1)
        zeros = torch.zeros(nowhere.shape, device=nowhere.device)
        named = torch.tensor(seeds, device=nowhere.device)
        copy = replace(self, tokens=self.tokens.clone())
        return Rollout(copy, nowhere, zeros, asdict(config), named)

    def inputs(self) -> dict[str, Tensor]:
        """What the network reads of the rows, [B, L] each, but for the embeddings."""
        known = {"input_ids": self.tokens, "attention_mask": self.attend}
        return {name: each for name, each in known.items() if each is not None}


def _concatenate(canvases: Sequence[TokenCanvas], name: str) -> Tensor | None:
    """A tensor of all canvases; where only some have one that selects positions, the others get one
    that selects all."""
    import torch

    own = [(getattr(canvas, name), canvas.response) for canvas in canvases]
    if all(tensor is None for tensor, _ in own):
        return None
    return torch.cat([torch.ones_like(full) if tensor is None else tensor for tensor, full in own])
