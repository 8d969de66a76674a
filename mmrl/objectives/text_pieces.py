"""An example and a view of its completion as a piece of a row."""

import torch
from torch import Tensor

from mmrl.models.layouts.question_layout import Album, with_images
from mmrl.objectives.corruptions.corruption import View
from mmrl.objectives.packed_rows import Rows
from mmrl.objectives.text_examples import Example


def build_prompt(example: Example, album: Album | None) -> tuple[Tensor, Tensor]:
    """Put the images of an example into its prompt; they are opened here.

    Args:
        example: P tokens of text, and images.
        album: of the micro-batch; None where no example has images.

    Returns:
        Token ids, and the embedding that replaces each (-1 for none), int64 [P + positions of
        images].
    """
    if album is None or not example.cuts:
        return example.prompt, torch.full_like(example.prompt, -1)
    images = [album.add(example.images, n) for n in range(len(example.cuts))]
    texts = [part.tolist() for part in example.prompt.tensor_split(example.cuts)]
    row, at = with_images(texts, images)
    return torch.tensor(row), torch.tensor(at)


def build_piece(
    example: Example,
    given: tuple[Tensor, Tensor],
    view: View,
    number: int,
    scale: float,
    mask_id: int,
    block_size: int | None = None,
) -> Rows:
    """Join prompt, view and untrained rest of an example.

    Args:
        example: n completion tokens.
        given: its prompt of P positions, see `build_prompt`.
        view: of its `trained` tokens, m columns.
        number: of the piece in its micro-batch.
        scale: divides the weights.
        mask_id: replaces hidden tokens.
        block_size: of a network whose attention is causal between blocks; None lets the prompt
            attend to all of itself.

    Returns:
        Tensors [P + m + n - trained].
    """
    (prompt, at), rest = given, len(example.completion) - example.trained
    first = len(prompt)
    index = torch.cat((view.index, torch.arange(example.trained, len(example.completion))))
    targets = torch.cat((prompt, example.completion[index]))
    hidden = _extend(first, False, view.hidden, rest, True)
    # the prompt is block 0 where all attend to all, and an earlier block where there are copies
    before = -1 if bool(view.copy.any()) else 0
    block = _extend(first, before, view.block, rest, 0)
    if block_size is not None:  # those of the prompt end where the completion begins
        block[:first] = (torch.arange(first) - first) // block_size
    return Rows(
        ids=torch.where(hidden, mask_id, targets),
        targets=targets,
        weight=_extend(first, 0.0, view.weight, rest, 0.0) / scale,
        place=torch.cat((torch.arange(first), first + index)),
        block=block,
        copy=_extend(first, False, view.copy, rest, False),
        piece=torch.full((len(targets),), number),
        at=torch.cat((at, torch.full_like(index, -1))),
    )


def _extend(left: int, before: float, middle: Tensor, right: int, after: float) -> Tensor:
    """`middle` with `left` values before it and `right` values after it."""
    return torch.cat((middle.new_full((left,), before), middle, middle.new_full((right,), after)))
