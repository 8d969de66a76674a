"""Layout of texts that a causal model continues."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mmrl.generation.causal.canvas import CausalCanvas
from mmrl.models.layouts.text_layout import TextLayout


@dataclass(frozen=True)
class CausalText(TextLayout):
    """Prompts, padded on the left, and behind them the columns of the responses. The other
    arguments are those of `TextLayout`.

    Args:
        ends: further ids that end a text.
        banned: ids that no response has.
    """

    ends: tuple[int, ...] = ()
    banned: tuple[int, ...] = ()

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The tokens that end a text; the first pads it."""
        return tuple(dict.fromkeys((self.ids["eos"], *self.ends)))

    def lay_out(self, rows: Sequence[list[int]], n: int) -> CausalCanvas:  # type: ignore[override]
        """Token ids of B prompts -> canvas with n response positions after each. Raises ValueError:
        n is below 1, or an empty prompt."""
        if not all(rows):
            raise ValueError("a prompt has no token that could predict the first of its text")
        tokens, attend, response = self._pad(rows, self.ids["eos"], n)
        keep = None if bool(attend.all()) else attend
        canvas = CausalCanvas(tokens, response, keep, self.vocab, stop_ids=self.stop_ids)
        return replace(canvas, banned=self.banned)

    def decode(self, canvas: CausalCanvas) -> list[str]:  # type: ignore[override]
        """Finished canvas -> B texts, up to the first end, without special tokens."""
        rows = canvas.tokens[canvas.response].view(len(canvas), -1)
        return [self._text(row) for row in rows]
