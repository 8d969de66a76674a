"""Options of the objectives that train a policy, `masked`, `text` and `flow`: where their data are,
how they are read, laid out and corrupted, and what training starts from."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from mmrl.config import Settings, above, at_least, build_options, check, filled, one_of
from mmrl.data.formats import FORMATS
from mmrl.models.layouts.layout_config import ImageFit
from mmrl.objectives.corruptions import CORRUPTIONS
from mmrl.pretrained.model_config import LoraConfig

PARTS = ("text_to_image", "image_to_text", "text", "image_edit")
"""Parts of the `masked` objective."""


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


@dataclass(kw_only=True)
class StartConfig(Settings):
    """The network that the training of a policy starts from, and how it is saved."""

    where: ClassVar[str] = "objective"

    model: str = ""
    """Checkpoint to continue from."""
    new_weights: bool = False
    """Draw the weights from the seed; of `model` only config.json and the tokenizer are read, and a
    directory with these two is enough."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights that are not trained, where the run computes in bfloat16; elsewhere they are
    float32. What is trained is float32 in any case, as accelerate's mixed precision and peft's
    adapters are."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass, also those of a trained vision tower."""
    lora: LoraConfig | None = None
    """Train a low-rank adapter of `model` instead of all weights."""
    train_vision_tower: bool = False
    """Train the vision tower too; its projector always is."""
    modules_to_train: list[str] | None = None
    """Parts to train, as patterns of names: `vision.projector`, `blocks.*.attn`. Null trains
    everything but the vision tower; with `lora` nothing, and what is named is trained in full
    besides the adapter."""
    attn_implementation: Literal["auto", "sdpa", "eager"] = "auto"
    """Attention kernel; `auto` follows device and precision: `mmrl.models.network.attention`."""
    encode_batch_size: Annotated[int, at_least(1)] = 8
    """Images that the image tokenizer encodes at once, on the device of the run. Each is encoded
    for its first micro-batch, and its codes stay in memory."""
    save_dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """Stored precision of the saved weights; the factors of an adapter keep theirs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = "a checkpoint, or with new_weights a directory with config.json and tokenizer"
        check(self.model != "", "objective.model", self.model, allowed)
        allowed = "null with objective.new_weights, which would stay random"
        for key in ("lora", "modules_to_train"):
            fits = getattr(self, key) is None or not self.new_weights
            check(fits, f"objective.{key}", getattr(self, key), allowed)


@dataclass(kw_only=True)
class CompletionConfig(StartConfig, SourceConfig):
    """Training of a LLaDA-, MMaDA- or LLaDA-V-type model on completions of prompts."""

    eval_data: str = ""
    """Held-out data for `eval_steps`, read like `data`; empty evaluates nothing."""
    eval_split: str | None = None
    """Split of `eval_data`, if it is a hub data set."""
    vq: str = ""
    """Path or hub id of the image tokenizer, for images under a MMaDA-type checkpoint."""
    image_fit: ImageFit = "crop"
    """How an image becomes the square that is encoded, as `model.image_fit` of the policy that is
    trained; only with `vq`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = "crop without objective.vq: a vision tower tiles images of any shape"
        fits = bool(self.vq) or self.image_fit == "crop"
        check(fits, "objective.image_fit", self.image_fit, allowed)


@dataclass(kw_only=True)
class QuestionsConfig(SourceConfig):
    """Questions about images, one image each, and their answers."""

    where: ClassVar[str] = "objective.questions"


@dataclass(kw_only=True)
class CompletionsConfig(SourceConfig):
    """Text prompts and their completions."""

    where: ClassVar[str] = "objective.completions"


@dataclass(kw_only=True)
class EditsConfig(PairsConfig):
    """Edits: source image, instruction (`text_column`) and edited image (`image_column`)."""

    where: ClassVar[str] = "objective.edits"
    kind: ClassVar[str] = "edits"

    source_column: str = "source_image"  # type: ignore[misc]
    """Column that holds the source images."""


@dataclass(kw_only=True)
class MaskedConfig(StartConfig, PairsConfig):
    """Mixed training of a MMaDA-type model: text to image, image to text, and text."""

    vq: Annotated[str, filled("the path or hub id of an image tokenizer")] = ""
    """Path or hub id of the image tokenizer."""
    image_size: Annotated[int, at_least(1)] = 256
    """Side in pixels of the square that images become, cropped from their middle."""
    max_prompt_length: Annotated[int, at_least(1)] = 256
    """Longest prompt in tokens."""
    cond_dropout_prob: Annotated[float, at_least(0, up_to=1)] = 0.1
    """Share of text-to-image rows whose text is dropped, for classifier-free guidance; of edits
    the share whose text is dropped and, drawn apart, the share whose source image is."""
    min_mask_rate: Annotated[float, at_least(0, up_to=1)] = 0.0
    """Lowest share of image tokens that is masked; lower shares are raised to it."""
    shares: dict[str, float] = field(default_factory=lambda: {"text_to_image": 1.0})
    """Share of every batch that goes to each of text_to_image, image_to_text, text, image_edit."""
    weights: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS[:3], 1.0))
    """Weight of each part in the loss; 1 where it is not named."""
    questions: QuestionsConfig | None = None
    """Data that the image-to-text part learns instead of captions: rows with an image, read as the
    `text` objective reads them."""
    completions: CompletionsConfig | None = None
    """Data that the text part learns instead of captions: rows with a prompt and a completion."""
    edits: EditsConfig | None = None
    """Data of the image_edit part: rows of source image, instruction and edited image."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = set(self.shares) <= set(PARTS) and set(self.weights) <= set(PARTS)
        check(known, "objective.shares, objective.weights", self.shares, f"of {', '.join(PARTS)}")
        data = {"image_to_text": "questions", "text": "completions", "image_edit": "edits"}
        for part, key in data.items():
            learned, given = self.shares.get(part, 0.0) > 0, getattr(self, key) is not None
            allowed = f"null where {part} has no share"
            check(learned or not given, f"objective.{key}", "given", allowed)
            allowed, needed = f"given where {part} has a share", learned and key == "edits"
            check(given or not needed, f"objective.{key}", None, allowed)
        total = sum(self.shares.values())
        check(abs(total - 1) < 1e-6, "objective.shares", self.shares, "shares that add up to 1")

    @property
    def sources(self) -> dict[str, SourceConfig]:
        """Data of the parts that learn answers instead of captions."""
        given = {"image_to_text": self.questions, "text": self.completions}
        return {part: source for part, source in given.items() if source is not None}


@dataclass(kw_only=True)
class FlowConfig(StartConfig, PairsConfig):
    """Flow matching of a diffusers pipeline on images and their texts."""

    eval_data: str = ""
    """Held-out pairs for `eval_steps`, read like `data`; empty evaluates nothing."""
    image_size: Annotated[int | None, at_least(1)] = None
    """Side in pixels of the square that images become, cropped from their middle; null follows the
    checkpoint."""
    num_frames: Annotated[int | None, at_least(1)] = None
    """Frames of a video, the first ones of an animated image; null follows the checkpoint."""
    max_prompt_length: Annotated[int, at_least(1)] = 256
    """Longest prompt in tokens of T5; CLIP's is that of its tokenizer."""
    cond_dropout_prob: Annotated[float, at_least(0, up_to=1)] = 0.1
    """Share of pairs whose text becomes the empty one, for classifier-free guidance."""
    sigmas: Literal["logit_normal", "uniform"] = "logit_normal"
    """Distribution of the noise levels, before the shift."""
    logit_mean: float = 0.0
    """Mean of log(sigma / (1 - sigma)) with `logit_normal`; above 0 is more noise."""
    logit_std: Annotated[float, above(0)] = 1.0
    """Its standard deviation."""
    shift: Annotated[float, above(0)] = 1.0
    """k of a drawn sigma's shift to k sigma / (1 + (k - 1) sigma); above 1 is more noise."""
    train_text_encoder: bool = False
    """Train the text encoders of CLIP, and UMT5 without dropout, with the network, and with
    `new_weights` draw theirs anew. Texts are then encoded in every micro-batch, with gradient."""
    encodings_dir: str | None = None
    """Folder in which the encodings of texts and the latents of images are kept by content, for
    this run and later ones."""
    keep_latents: bool = True
    """Encode each image for its first micro-batch only, and keep its latent in memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = self.lora is None or not self.train_text_encoder
        allowed = "null with objective.train_text_encoder: an adapter holds no text encoders"
        check(fits, "objective.lora", self.lora, allowed)
