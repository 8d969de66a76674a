"""Questions about images as canvases, for Lumina-DiMOO: the row `mmu` of
`mmrl.models.layouts.lumina_rows`.

Images have the sides of `fit_size` whose aspect ratio is nearest theirs, and precede the last token
of the prompt, `</user>`, so marks only say that there is one. Padding, on the left, is never
attended to; a response holds no image codes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.models.layouts.image_codes_chat import CodesChat
from mmrl.models.layouts.image_marks import check_images, without_images
from mmrl.models.layouts.layout_config import ImageFit
from mmrl.models.layouts.lumina_rows import ANSWER, LuminaRows
from mmrl.models.layouts.pixels import fit_size
from mmrl.types import Prompt


@dataclass(frozen=True)
class LuminaChat(CodesChat):
    """Renders prompts with images of at most `side` x `side` codes, which take their sides by
    `image_fit`; the end tokens of its text are `end_answer`."""

    rows: LuminaRows
    side: int
    image_fit: ImageFit = "crop"

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The token that ends an answer."""
        return (self.ids["end_answer"],)

    @staticmethod
    def check(prompt: Prompt) -> None:
        """Raise a ValueError unless a prompt has images, with a mark for each or none, and is one
        turn of a user, after a system message or none."""
        check_images(prompt)
        roles = [message["role"] for message in prompt.messages or ()]
        if roles not in ([], ["user"], ["system", "user"]):
            raise ValueError(
                f"prompt {prompt.id!r} has messages of {', '.join(roles)}; this checkpoint reads"
                " one of a user, after one of the system or none."
            )

    def pieces(self, prompt: Prompt) -> list[list[int]]:
        """Token ids of the text before, between and after the images of a prompt."""
        self.check(prompt)
        bare = without_images(prompt)
        said = {message["role"]: message["content"] for message in bare.messages or ()}
        ids = self.rows.prompt(said.get("user", bare.text), said.get("system", ANSWER))
        given = self.rows.tokenizer(prompt.prefill, add_special_tokens=False)["input_ids"]
        between = [[]] * (len(prompt.images or ()) - 1)
        return [ids[:-1], *between, [ids[-1], self.ids["answer"], *given]]

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> MaskedCanvas:
        """B prompts -> canvas; see `QuestionLayout.canvas`. The end of the answer is given."""
        canvas: Any = super().canvas(prompts, length)
        end = torch.full((len(canvas), 1), self.ids["end_answer"])
        added = {"tokens": end, "uncond_tokens": torch.full_like(end, self.ids["mask"])}
        added |= {"response": end < 0, "attend": end >= 0, "uncond_attend": end >= 0}
        known = {name: getattr(canvas, name) for name in added}
        longer = {k: torch.cat((v, added[k]), 1) for k, v in known.items() if v is not None}
        return replace(canvas, columns=(0, self.rows.code_offset), **longer)

    def grid_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width in codes of an image of so many pixels, width first."""
        width, height = fit_size(size, (self.side // 2) ** 2)
        return 2 * height, 2 * width
