"""Latents that are denoised step by step, with every state that they went through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS = ("text", "empty", "path", "sigmas", "stochastic")
"""Tensors of a canvas with a row for each of its rows."""


@dataclass
class LatentCanvas:
    """A batch of latents; its actions are denoising steps. See `mmrl.types.Canvas`.

    A latent is flat: D numbers, of a smaller one followed by zeros. What it is conditioned on was
    computed when it was laid out, once for each distinct text, so that the branches of guidance are
    numbers of texts.

    Attributes:
        shapes: of each row's latent, such as (channels, height, width).
        texts: by keyword of the network's forward pass, [P, …] of distinct texts; where they come
            with an image, of distinct pairs.
        text: [B] int64, the text of each row.
        empty: [B] int64, the text of its unconditional branch.
        names: of each row's prompt, for messages; empty where they are not known.
        rule: the schedule of the checkpoint, see `mmrl.generation.flow.schedules`.
        path: [B, S + 1, D], from noise to the finished latent, as they are stored; None before
            anything is written.
        sigmas: [B, S + 1] float32, noise levels from 1 to 0 of these states; None as `path`.
        stochastic: [B, S] bool, steps that drew noise: the actions with a log-prob.
    """

    kind: ClassVar[str] = "flow"
    features: ClassVar[None] = None
    tokens: ClassVar[None] = None

    shapes: list[tuple[int, ...]]
    texts: Mapping[str, Tensor]
    text: Tensor
    empty: Tensor
    rule: Any
    names: Sequence[str] = ()
    path: Tensor | None = None
    sigmas: Tensor | None = None
    stochastic: Tensor | None = None

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, rows: slice | Tensor | list[int]) -> LatentCanvas:
        here = rows.cpu() if isinstance(rows, torch.Tensor) else rows  # slices wait for no device
        places = torch.arange(len(self))[here].tolist()
        own = self._rows(lambda each: each[rows])
        names = [self.names[place] for place in places] if self.names else ()
        return replace(self, shapes=[self.shapes[place] for place in places], names=names, **own)

    def to(self, device: torch.device | str) -> LatentCanvas:
        """The same canvas on another device."""
        texts = {key: each.to(device) for key, each in self.texts.items()}
        return replace(self, texts=texts, **self._rows(lambda each: each.to(device)))

    @property
    def response(self) -> Tensor:
        """[B, S] bool: all steps."""
        return self.counted | True

    @property
    def valid(self) -> None:
        """None: latents have no end."""

    @property
    def counted(self) -> Tensor:
        """[B, S] bool: the steps that have a log-prob. Raises ValueError: nothing is written."""
        if self.stochastic is None:
            raise ValueError("the latents have no steps: they are not sampled yet")
        return self.stochastic

    @property
    def written(self) -> tuple[Tensor, Tensor]:
        """`path` and `sigmas` of a written canvas. Raises ValueError: nothing is written."""
        if self.path is None or self.sigmas is None:
            raise ValueError("the latents have no path: they are not sampled yet")
        return self.path, self.sigmas

    @property
    def finished(self) -> Tensor:
        """[B, D]: the latents after the last step."""
        return self.written[0][:, -1]

    @property
    def rows(self) -> Tensor:
        """[B] int64: the numbers of the rows, on their device."""
        return torch.arange(len(self), device=self.text.device)

    def condition(self) -> dict[str, Tensor]:
        """What the network is conditioned on, by keyword, [B, …] each."""
        return {key: each[self.text] for key, each in self.texts.items()}

    def unconditional(self) -> LatentCanvas:
        """The branch with the empty text."""
        return replace(self, text=self.empty)

    def image_unconditional(self) -> LatentCanvas:
        """Raises ValueError: latents have no such branch."""
        raise ValueError("image_guidance_scale is above 0; latents are guided by the text alone")

    def drop_conditions(self, rows: Tensor) -> LatentCanvas:
        """Replace the texts of some rows ([B] bool) by the empty one."""
        return replace(self, text=self.empty.where(rows, self.text))

    def encode(self, model: Callable[..., Any]) -> LatentCanvas:
        """The canvas itself: texts are encoded when it is laid out."""
        return self

    freeze = encode

    def split(self, size: int | None = None) -> None:
        """None: steps are not divided into blocks."""

    def describe(self, row: int) -> dict[str, list[float]]:
        """What is kept of a row beside its trace, by the name of the column."""
        return {"sigmas": self.written[1][row, :-1][self.counted[row]].tolist()}

    def read_metadata(self, rows: Sequence[Mapping[str, Any]]) -> LatentCanvas:
        """See `Canvas.read_metadata`."""
        return self

    def unroll(self, row: int) -> LatentCanvas:
        """S + 1 rows that are finished with each state of a row, from its noise on."""
        states = self.written[0][row]
        one = self[[row] * len(states)]
        return replace(one, path=states[:, None])

    def by_shape(self) -> Iterator[tuple[tuple[int, ...], Any, LatentCanvas]]:
        """Yield each shape, its rows as an index and the canvas of these; all rows of one shape."""
        shapes = list(dict.fromkeys(self.shapes))
        if len(shapes) == 1:
            yield shapes[0], slice(None), self
            return
        for shape in shapes:
            places = [n for n, own in enumerate(self.shapes) if own == shape]
            rows = torch.tensor(places, device=self.text.device)
            yield shape, rows, self[rows]

    @classmethod
    def join(cls, parts: Sequence[LatentCanvas]) -> LatentCanvas:
        """Canvases of one task as one batch; their texts become one table."""
        numbers = [len(next(iter(part.texts.values()))) for part in parts]
        starts = list(accumulate(numbers[:-1], initial=0))
        texts = {key: stack_padded([p.texts[key] for p in parts]) for key in parts[0].texts}
        shifted = {
            name: torch.cat([getattr(p, name) + s for p, s in zip(parts, starts, strict=True)])
            for name in ("text", "empty")
        }
        shapes = [shape for part in parts for shape in part.shapes]
        names = [name for part in parts for name in part.names]
        whole = replace(parts[0], shapes=shapes, names=names, texts=texts, **shifted)
        if parts[0].path is None:
            return whole
        width = max(prod(shape) for shape in shapes)
        paths, sigmas = zip(*(p.written for p in parts), strict=True)
        path = torch.cat([F.pad(each, (0, width - each.shape[-1])) for each in paths])
        stochastic = torch.cat([p.counted for p in parts])
        return replace(whole, path=path, sigmas=torch.cat(sigmas), stochastic=stochastic)

    def _rows(self, change: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """The tensors that have a row for each row of the batch, changed."""
        own = {name: getattr(self, name) for name in ROWS}
        return {name: change(each) for name, each in own.items() if each is not None}


def stack_padded(parts: Sequence[Tensor]) -> Tensor:
    """Tensors [n], or [n, m, …], below each other, those of a smaller m with zeros behind."""
    longest = max((part.shape[1] for part in parts if part.ndim > 1), default=0)
    if longest == 0:
        return torch.cat([*parts])
    rooms = [(0, 0) * (part.ndim - 2) + (0, longest - part.shape[1]) for part in parts]
    return torch.cat([F.pad(part, room) for part, room in zip(parts, rooms, strict=True)])
