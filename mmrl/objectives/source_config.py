"""How a data set of completions is read, laid out and corrupted."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from mmrl.config import build_options, check, check_choice
from mmrl.data.formats import FORMATS
from mmrl.objectives.corruptions import CORRUPTIONS


@dataclass(kw_only=True)
class ExampleConfig:
    """How rows become examples."""

    where: ClassVar[str] = "objective"
    """Dotted key of these settings, for messages."""

    choices: ClassVar = {"format": FORMATS}

    format: str = "rows"
    """Data set whose columns the rows have, see `mmrl.data.formats`; `rows` leaves them as they
    are."""
    prompt_column: str = "prompt"
    """Text, a list of messages, or a list of token ids."""
    completion_column: str = "completion"
    """Text, or a list of token ids, to which nothing is added."""
    messages_column: str = "messages"
    """Conversation, a list of `role` and `content`; read where a row has it. Beside a completion it
    is the prompt."""
    order_column: str = "order"
    """Step at which each token of the completion was written, for `trace`."""
    image_root: str | None = None
    """Folder of the images that rows name by a path, and which no path may leave; null is the
    folder of the file."""
    chat_template: bool | None = None
    """Whether a text prompt becomes the message of a user; null does so where the tokenizer has a
    chat template."""
    turns: Literal["last", "all"] = "last"
    """Answers of a conversation to learn: the last one, or each of them behind those before it."""
    ends: list[str] = field(default_factory=lambda: ["eot", "eos"])
    """What is put behind a text: `eot` ends a turn, `eos` a document; [] leaves it without end. An
    answer about images never has the second, which no sampler writes there."""
    max_length: int = 1024
    """Longest example in tokens, prompt with its images and ends included."""
    overlong: Literal["drop", "cut"] = "drop"
    """What happens to a longer one; a cut completion has no end."""
    fill: Literal["none", "completion", "blocks", "row", "batch"] = "none"
    """How far completions are continued with eos (about images: eot), as samplers do behind an end:
    not at all; to `completion_length`; to a multiple of it; until the row has `max_length`; until
    it is as long as the longest of its micro-batch, as LLaDA does. Without, the number of masks
    gives away the length, which no sampler's canvas does."""
    completion_length: int = 0
    """Tokens of a completion with `fill: completion`, of a block with `fill: blocks`."""
    trained_padding: int | None = None
    """How many of those tokens are learned and belong to the length of the completion, null all;
    the others are always masked, like the unwritten rest of a sampler's canvas."""

    def __post_init__(self) -> None:
        where, padding = self.where, self.trained_padding
        check_choice(f"{where}.format", self.format, FORMATS)
        for end in self.ends:
            check(end in ("eot", "eos"), f"{where}.ends", self.ends, "a list of eot, eos")
        check(self.max_length >= 2, f"{where}.max_length", self.max_length, "at least 2")
        check(
            padding is None or padding >= 0,
            f"{where}.trained_padding",
            padding,
            "null or at least 0",
        )
        check(
            (self.completion_length > 0) == (self.fill in ("completion", "blocks")),
            f"{where}.completion_length",
            self.completion_length,
            "positive with fill: completion or blocks, and 0 without",
        )


@dataclass(kw_only=True)
class SourceConfig(ExampleConfig):
    """A data set of completions, and how they are corrupted."""

    data: str = ""
    """.jsonl, .json or .parquet file, or a hub data set, of examples."""
    data_config: str | None = None
    """Configuration of a hub data set."""
    data_split: str | None = None
    """Split of a hub data set, or a slice such as `train[:-500]`; null is `train`."""
    corruption: dict[str, Any] = field(
        default_factory=lambda: {"name": "random"},
        metadata={"holds": "mmrl.objectives.corruptions:CORRUPTIONS"},
    )
    """`name` and options: random, semi_ar, block, trace, left_to_right."""
    normalization: Literal["sequence", "token"] = "sequence"
    """What n_i is: the length of the completion, or the mean length over the data, so that every
    token counts the same in every batch."""
    packing: bool = False
    """Put several examples of a micro-batch into rows of up to `max_length` tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        where = self.where
        check(self.data != "", f"{where}.data", self.data, "a file or data set of completions")
        build_options(CORRUPTIONS, self.corruption, where=f"{where}.corruption")
        continued = CORRUPTIONS[self.corruption["name"]].continued
        check(
            continued or self.fill == "none" or self.trained_padding is None,
            f"{where}.trained_padding",
            self.trained_padding,
            f"null with corruption {self.corruption['name']!r}",
            "It has no unwritten rest.",
        )
        check(
            self.normalization == "sequence" or self.fill != "batch",
            f"{where}.normalization",
            self.normalization,
            "sequence with fill: batch",
            "The mean length is not known beforehand.",
        )
