"""Options of the `masked` objective."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from mmrl.config import at_least, check, filled
from mmrl.objectives.data_config import ImageCodesConfig, PairsConfig, SourceConfig
from mmrl.objectives.start_config import StartConfig

PARTS = ("text_to_image", "image_to_text", "text", "image_edit")


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

    source_column: str = "source_image"  # type: ignore[misc]
    """Column that holds the source images."""


@dataclass(kw_only=True)
class MaskedConfig(StartConfig, ImageCodesConfig, PairsConfig):
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
        sources = {"questions": "image_to_text", "completions": "text", "edits": "image_edit"}
        for key, part in sources.items():
            learned, given = self.shares.get(part, 0.0) > 0, getattr(self, key) is not None
            allowed = f"null where {part} has no share"
            check(learned or not given, f"objective.{key}", "given", allowed)
        learned = self.shares.get("image_edit", 0.0) > 0
        allowed = "given where image_edit has a share"
        check(not learned or self.edits is not None, "objective.edits", self.edits, allowed)
        total = sum(self.shares.values())
        check(abs(total - 1) < 1e-6, "objective.shares", self.shares, "shares that add up to 1")

    @property
    def sources(self) -> dict[str, SourceConfig]:
        """Data of the parts that learn answers instead of captions."""
        given = {"image_to_text": self.questions, "text": self.completions}
        return {part: source for part, source in given.items() if source is not None}
