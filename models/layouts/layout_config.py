"""Options of the layouts of a checkpoint."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from mmrl.config import Settings, at_least, check

MAX_COMPLETION_LENGTH = 256
"""Response positions of a text by default."""
LARGEST_IMAGE = 4096
"""Pixels a side: 65,536 tokens of MMaDA."""
ImageFit = Literal["crop", "squash", "pad"]
BlockAlignment = Literal["left", "right"]
MaskPolicy = Literal["ignore", "key_padding"]


@dataclass(kw_only=True)
class LayoutOptions:
    """What a user may choose about prompts and images; a family reads what concerns it."""

    max_prompt_length: Annotated[int, at_least(1)] = 256
    """Longest prompt in tokens."""

    long_prompts: Literal["leave_out", "cut", "refuse"] | None = None
    """What is done with longer ones: `leave_out` and count them, `cut` them to the first tokens for
    images and to the last ones for text, or `refuse` the run. Null cuts those for images and leaves
    out all others. Questions about images are never cut."""

    chat_template: bool | str | None = None
    """Whether a text prompt becomes a user's message; null follows the tokenizer. The path of a
    Jinja file takes that template in place of the tokenizer's (of MMaDA: of that in its code); it
    is saved with the model. Messages always go through it."""

    image_size: Annotated[int | None, at_least(1, up_to=LARGEST_IMAGE)] = None
    """Side in pixels of images that are codes; null follows the checkpoint."""

    image_height: Annotated[int | None, at_least(1, up_to=LARGEST_IMAGE)] = None
    """Height in pixels of images that are written, where it is not `image_size`."""

    image_width: Annotated[int | None, at_least(1, up_to=LARGEST_IMAGE)] = None
    """Width in pixels of images that are written, where it is not `image_size`."""

    num_frames: Annotated[int | None, at_least(1)] = None
    """Frames of videos that are written, 4 k + 1; null takes the number of the pipeline."""

    vae_tiling: bool = False
    """Whether the autoencoder of a pipeline decodes tile by tile: less memory, and slightly other
    pixels where tiles meet."""

    image_fit: ImageFit = "crop"
    """How an image in a prompt becomes that square: `crop` keeps its middle, `squash` changes its
    proportions, as MMaDA does with charts, documents and diagrams, `pad` puts grey around it, as
    dLLM-RL does. A vision tower tiles images of any shape and reads none of them."""

    min_pixels: Annotated[int | None, at_least(1)] = None
    """Fewest pixels of an image that Qwen-VL reads: a smaller one is enlarged; null follows the
    checkpoint."""

    max_pixels: Annotated[int | None, at_least(1)] = None
    """Most pixels of an image that Qwen-VL reads: a larger one is shrunk; null follows the
    checkpoint, whose limit is about 16,000 tokens."""

    mask_policy: MaskPolicy | None = None
    """`ignore` attends to the padding of image prompts, as when the public MMaDA was trained;
    `key_padding` does not, and cuts columns that are padding in every row; null follows the
    checkpoint, and takes `ignore` where it names none."""

    without_parts: list[str] = field(default_factory=list)
    """Parts of a diffusers pipeline that are not read, such as `text_encoder_3` of SD3, the T5 of
    4.8B parameters, whose states are then zeros."""

    encodings_dir: str | None = None
    """Folder in which the encodings of prompts by a pipeline's text encoders are kept by content,
    for this run and later ones; null keeps the last ones in memory alone."""

    unload_text_encoders: bool = False
    """Encode all prompts of a run of reinforcement learning before it begins, and free the text
    encoders; needs `encodings_dir`."""

    block_size: Annotated[int | None, at_least(1)] = None
    """Positions of a block of a network that writes block by block (SDAR, TraDo); null follows its
    config.json or its name."""

    block_alignment: BlockAlignment | None = None
    """Where the blocks of such a network begin: `left` at the first token, as its public samplers
    count, or `right` at the first token of the response, as TraceRL's training counts; null follows
    its config.json."""

    def __post_init__(self) -> None:
        super().__post_init__()
        kept, key = self.encodings_dir is not None, "model.unload_text_encoders"
        check(kept or not self.unload_text_encoders, key, True, "false without encodings_dir")


@dataclass(kw_only=True)
class LayoutConfig(LayoutOptions, Settings):
    """Options of the layouts of a checkpoint."""

    max_completion_length: int = MAX_COMPLETION_LENGTH
    """Response positions of a text."""
