"""Options of the layouts of a checkpoint."""

from dataclasses import dataclass
from typing import Literal, get_args

MAX_COMPLETION_LENGTH = 256
"""Response positions of a text by default."""
ImageFit = Literal["crop", "squash"]
"""How an image becomes a square: `crop` resizes its shorter side and keeps the middle; `squash`
resizes both sides, as MMaDA does for charts, documents and diagrams."""
BlockAlignment = Literal["left", "right"]
"""Where blocks of a block-causal network begin: `left`: at the first token, as the public samplers
count, so that the end of a prompt may share a block with the begin of the response; `right`: at the
first response token, as TraceRL's training counts."""
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
    image_height: int | None = None
    """Height in pixels of images that are written, where it is not `image_size`."""
    image_width: int | None = None
    """Width in pixels of images that are written, where it is not `image_size`."""
    image_fit: ImageFit = "crop"
    """How an image in a prompt becomes the square whose codes the network reads; a vision tower
    tiles images of any shape."""
    mask_policy: MaskPolicy | None = None
    """What padding of image prompts means; None follows the checkpoint, and `ignore` where it names
    none."""
    block_size: int | None = None
    """Positions of a block of a network whose attention is causal between blocks; None follows the
    checkpoint, by its config.json or its name."""
    block_alignment: BlockAlignment | None = None
    """Whether blocks are counted from the first token, or from the first one of the response; None
    follows the checkpoint, and `left` where its config.json names none."""

    def __post_init__(self) -> None:
        kinds = {
            "image_fit": ImageFit,
            "mask_policy": MaskPolicy,
            "block_alignment": BlockAlignment,
        }
        for key, kind in kinds.items():
            value, allowed = getattr(self, key), get_args(kind)
            if value is not None and value not in allowed:
                raise ValueError(f"{key} is {value!r}; allowed: {', '.join(allowed)}")
        if self.block_size is not None and self.block_size < 1:
            raise ValueError(f"block_size is {self.block_size}; it must be at least 1")
