"""Where the data of an objective are, and how they are read, laid out and corrupted."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from mmrl.config import Settings, at_least, build_options, check, filled, one_of
from mmrl.data.formats import FORMATS
from mmrl.objectives.corruptions import CORRUPTIONS


@dataclass(kw_only=True)
class RowsConfig(Settings):
    """Where rows are, and whether they are read as a stream."""

    where: ClassVar[str] = "objective"
    """Dotted key of these settings, for messages."""

    data: Annotated[str, filled("a file or data set")] = ""
    """Rows: a .jsonl, .json or .parquet file, a WebDataset `.tar`, a pattern such as
    `shards/*.parquet`, a folder, or a hub data set."""
    data_config: str | None = None
    """Configuration of a hub data set."""
    data_split: str | None = None
    """Split of a hub data set, or a slice such as `train[:-500]`; null is `train`."""
    streaming: bool = False
    """Read rows while the run goes on: of the hub without a download before the first step, of
    WebDataset archives, folders and patterns of files. Each process reads all rows."""
    shuffle_buffer: Annotated[int, at_least(1)] = 1000
    """Rows of the buffer that shuffles them, with streaming: all that is held in memory."""

    @property
    def source(self) -> tuple[str, str | None, str | None]:
        """The place of the rows, see `mmrl.data.rows`."""
        return self.data, self.data_config, self.data_split


@dataclass(kw_only=True)
class PairsConfig(RowsConfig):
    """Training pairs, an image and its text per row."""

    source_column: ClassVar[str] = ""
    """Column that holds the images before edits; empty where there is one image a row."""
    kind: ClassVar[str] = "pairs"
    """What rows are, in words."""

    image_column: str = "image"
    """Column that holds the images."""
    text_column: str = "prompt"
    """Column that holds the captions, or the instructions of edits."""


@dataclass(kw_only=True)
class SourceConfig(RowsConfig):
    """A data set of completions, and how they are corrupted."""

    format: Annotated[str, one_of(FORMATS)] = "rows"
    """Data set whose columns the rows have, see `mmrl.data.formats`; `rows` leaves them as they
    are. A conversation is read from `messages`, the step at which each token was written from
    `order`."""
    prompt_column: str = "prompt"
    """Text, a list of messages, or a list of token ids."""
    completion_column: str = "completion"
    """Text, or a list of token ids, to which nothing is added."""
    image_root: str | None = None
    """Folder of the images that rows name by a path, and which no path may leave; null is the
    folder of the file."""
    turns: Literal["last", "all"] = "last"
    """Answers of a conversation to learn: the last one, or each of them given those before it."""
    ends: list[Literal["eot", "eos"]] = field(default_factory=lambda: ["eot", "eos"])
    """Tokens appended to a text: `eot` ends a turn, `eos` a document; [] appends none. An answer
    about images never gets `eos`, which no sampler writes there."""
    max_length: Annotated[int, at_least(2)] = 1024
    """Longest example in tokens, with the prompt, its images and the ends."""
    overlong: Literal["drop", "cut"] = "drop"
    """Drop a longer example, or truncate its completion, which then has no end."""
    fill: Literal["none", "completion", "blocks", "row", "batch"] = "none"
    """How far completions are padded with eos (about images: eot), as samplers do after an end: not
    at all; to `completion_length`; to a multiple of it; until the row has `max_length`; or to the
    longest example of the micro-batch, as LLaDA does. Without padding the number of masks reveals
    the length, which no sampler's canvas does."""
    completion_length: Annotated[int, at_least(0)] = 0
    """Tokens of a completion with `fill: completion`, of a block with `fill: blocks`."""
    trained_padding: Annotated[int | None, at_least(0)] = None
    """How many padding tokens are learned and count towards the length of the completion, null all;
    the others are always masked, like the unwritten rest of a sampler's canvas."""
    corruption: dict[str, Any] = field(
        default_factory=lambda: {"name": "random"},
        metadata={"holds": "mmrl.objectives.corruptions:CORRUPTIONS"},
    )
    """`name` and options: random, semi_ar, block, trace, block_trace, left_to_right, causal."""

    def __post_init__(self) -> None:
        super().__post_init__()
        where, padding, length = self.where, self.trained_padding, self.completion_length
        fits = (length > 0) == (self.fill in ("completion", "blocks"))
        allowed = "positive with fill: completion or blocks, and 0 without"
        check(fits, f"{where}.completion_length", length, allowed)
        build_options(CORRUPTIONS, self.corruption, where=f"{where}.corruption")
        name = self.corruption["name"]
        fits = CORRUPTIONS[name].continued or self.fill == "none" or padding is None
        allowed = f"null with corruption {name!r}, which has no unwritten rest"
        check(fits, f"{where}.trained_padding", padding, allowed)
