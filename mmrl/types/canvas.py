"""What a policy writes: the protocol that the canvases of all kinds of generation share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from typing_extensions import Self


class Canvas(Protocol):
    """A batch of partly written completions. A row does not depend on the others of its batch.

    `kind` names the entry of `mmrl.generation.kinds.GENERATIONS` that writes and scores it.
    """

    kind: ClassVar[str]

    @property
    def response(self) -> Tensor:
        """[B, N] bool: the actions that the policy takes, whether or not they count."""
        ...

    @property
    def valid(self) -> Tensor | None:
        """[B, N] bool: the part of a text up to its end; None where completions have no end."""
        ...

    def describe(self, row: int) -> dict[str, list[Any]]:
        """What is kept of a finished row for each action that counts, by the name of a column."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice | Tensor, /) -> Self:
        """The canvas of some rows (a slice, or an int64 or bool index of shape [b])."""
        ...

    def to(self, device: torch.device | str) -> Self:
        """The same canvas on another device."""
        ...

    @property
    def counted(self) -> Tensor:
        """[B, N] bool: the actions whose log-probs count."""
        ...

    def read_metadata(self, rows: Sequence[Mapping[str, Any]], /) -> Self:
        """Take from the metadata of B prompts what says how their rows are written."""
        ...

    def unconditional(self) -> Self:
        """The branch without the text of the prompt, with what is written so far. Raises
        ValueError: the canvas was laid out without it."""
        ...

    def image_unconditional(self) -> Self:
        """The branch without the source image; otherwise as `unconditional`."""
        ...

    def drop_conditions(self, rows: Tensor) -> Self:
        """Replace the prompts of some rows ([B] bool) by those of `unconditional`. Raises
        ValueError: they cannot be left out."""
        ...

    def encode(self, model: Callable[..., Any]) -> Self:
        """Compute what prompts are conditioned on with a model, once for all passes."""
        ...

    def freeze(self, model: Callable[..., Any]) -> Self:
        """The same without gradient, to be kept: rows of the result may be scored in any parts
        without computing it again."""
        ...

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Canvases of one task as one batch."""
        ...
