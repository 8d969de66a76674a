"""Options of the layouts of a checkpoint."""

from dataclasses import dataclass
from typing import Literal, get_args

MAX_COMPLETION_LENGTH = 256
"""Response positions of a text by default."""
ImageFit = Literal["crop", "squash"]
"""How an image becomes a square: `crop` resizes its shorter side and keeps the middle; `squash`
resizes both sides, as MMaDA does for charts, documents and diagrams."""
MaskPolicy = Literal["ignore", "key_padding"]
"""`ignore`: padding is attended to like any token (how the public MMaDA weights were trained);
`key_padding`: padding is never attended to, and columns that are padding in every row are cut."""


@dataclass(kw_only=True)
class LayoutConfig:
    """What a user may choose about prompts and images; a family reads what concerns it."""

    max_prompt_length: int = 256
    """Longest prompt in tokens; longer ones are cut for images and refused for text."""
    max_completion_length: int = MAX_COMPLETION_LENGTH
    """Response positions of a text."""
    chat_template: bool | str | None = None
    """Whether a text prompt goes through the chat template; None where the tokenizer has one. A
    path takes the template of a Jinja file instead. Messages always go through it."""
    image_size: int | None = None
    """Side in pixels of images that are codes; None follows the checkpoint."""
    image_fit: ImageFit = "crop"
    """How an image in a prompt becomes the square whose codes the network reads; a vision tower
    tiles images of any shape."""
    mask_policy: MaskPolicy | None = None
    """What padding of image prompts means; None follows the checkpoint, and `ignore` where it names
    none."""

    def __post_init__(self) -> None:
        for key, kind in (("image_fit", ImageFit), ("mask_policy", MaskPolicy)):
            value, allowed = getattr(self, key), get_args(kind)
            if value is not None and value not in allowed:
                raise ValueError(f"{key} is {value!r}; allowed: {', '.join(allowed)}")
