"""How a data set of completions is read, laid out and corrupted."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from mmrl.config import build_options, check, check_choice
from mmrl.data.formats import FORMATS
from mmrl.objectives.corruptions import CORRUPTIONS
from mmrl.objectives.stream_config import StreamConfig


@dataclass(kw_only=True)
class SourceConfig(StreamConfig):
    """A data set of completions, and how they are corrupted."""

    choices: ClassVar = {"format": FORMATS}

    data: str = ""
    """Examples: a .jsonl, .json or .parquet file, a WebDataset `.tar`, a pattern such as
    `shards/*.parquet`, a folder, or a hub data set."""
    data_config: str | None = None
    """Configuration of a hub data set."""
    data_split: str | None = None
    """Split of a hub data set, or a slice such as `train[:-500]`; null is `train`."""
    format: str = "rows"
    """Data set whose columns the rows have, see `mmrl.data.formats`; `rows` leaves them as they
    are."""
    prompt_column: str = "prompt"
    """Text, a list of messages, or a list of token ids."""
    completion_column: str = "completion"
    """Text, or a list of token ids, to which nothing is added."""
    messages_column: str = "messages"
    """Conversation, a list of `role` and `content`; read where a row has it. In a row with a
    completion it is the prompt."""
    order_column: str = "order"
    """Step at which each token of the completion was written, for `trace`."""
    image_root: str | None = None
    """Folder of the images that rows name by a path, and which no path may leave; null is the
    folder of the file."""
    chat_template: bool | None = None
    """Whether a text prompt becomes the message of a user; null does so where the tokenizer has a
    chat template."""
    turns: Literal["last", "all"] = "last"
    """Answers of a conversation to learn: the last one, or each of them given those before it."""
    ends: list[str] = field(default_factory=lambda: ["eot", "eos"])
    """Tokens appended to a text: `eot` ends a turn, `eos` a document; [] appends none. An answer
    about images never gets `eos`, which no sampler writes there."""
    max_length: int = 1024
    """Longest example in tokens, with the prompt, its images and the ends."""
    overlong: Literal["drop", "cut"] = "drop"
    """Drop a longer example, or truncate its completion, which then has no end."""
    fill: Literal["none", "completion", "blocks", "row", "batch"] = "none"
    """How far completions are padded with eos (about images: eot), as samplers do after an end: not
    at all; to `completion_length`; to a multiple of it; until the row has `max_length`; or to the
    longest example of the micro-batch, as LLaDA does. Without padding the number of masks reveals
    the length, which no sampler's canvas does."""
    completion_length: int = 0
    """Tokens of a completion with `fill: completion`, of a block with `fill: blocks`."""
    trained_padding: int | None = None
    """How many padding tokens are learned and count towards the length of the completion, null all;
    the others are always masked, like the unwritten rest of a sampler's canvas."""
    corruption: dict[str, Any] = field(
        default_factory=lambda: {"name": "random"},
        metadata={"holds": "mmrl.objectives.corruptions:CORRUPTIONS"},
    )
    """`name` and options: random, semi_ar, block, trace, left_to_right."""
    packing: bool = False
    """Put several examples of a micro-batch into rows of up to `max_length` tokens."""

    def __post_init__(self) -> None:
        StreamConfig.__post_init__(self)
        where, padding, length = self.where, self.trained_padding, self.completion_length
        check(self.data != "", f"{where}.data", self.data, "a file or data set of completions")
        check_choice(f"{where}.format", self.format, FORMATS)
        for end in self.ends:
            check(end in ("eot", "eos"), f"{where}.ends", self.ends, "a list of eot, eos")
        check(self.max_length >= 2, f"{where}.max_length", self.max_length, "at least 2")
        none_or_more = padding is None or padding >= 0
        check(none_or_more, f"{where}.trained_padding", padding, "null or at least 0")
        check(
            (length > 0) == (self.fill in ("completion", "blocks")),
            f"{where}.completion_length",
            length,
            "positive with fill: completion or blocks, and 0 without",
        )
        build_options(CORRUPTIONS, self.corruption, where=f"{where}.corruption")
        name = self.corruption["name"]
        check(
            CORRUPTIONS[name].continued or self.fill == "none" or padding is None,
            f"{where}.trained_padding",
            padding,
            f"null with corruption {name!r}",
            "It has no unwritten rest.",
        )
