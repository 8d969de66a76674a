"""Records that sampler, rewards, estimators and training loop exchange.

Shape legend, used in every docstring: B rollouts (= P prompts x G generations), L sequence length,
n response positions, V vocabulary, C columns of the response vocabulary, K mask draws,
S denoising steps, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from PIL import Image

from mmrl.features import Features

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Chunk(NamedTuple):
    """A chunk of a response.

    `end` is its last position, counted from the end of the row, so that padding on the left moves
    nothing: -1 is the last of the row. `before` is the text of the response up to the chunk, `text`
    that of the chunk. A character whose bytes are split belongs to the later chunk.
    """

    end: int
    before: str
    text: str


@dataclass(frozen=True)
class Cutting:
    """How responses are split: after every `size` tokens, or with `at: lines` at the next line end.
    White space alone is never a chunk."""

    size: int
    at: Literal["tokens", "lines"] = "tokens"


@dataclass
class Prompt:
    """One row of a prompt set.

    `task` names the layout with which the policy renders the prompt; `metadata` goes to the rewards
    unchanged (for GenEval-style prompts: `tag`, `include`, `exclude`).

    `images` of a prompt file are not in memory: each access (`images[0]`, a loop) opens one in mode
    RGB, and `len` opens none. In `messages` each has a part `{"type": "image"}`, in the same order;
    without messages they precede the text.

    `prefill` is what the completion begins with: given after the prompt, not sampled.
    """

    id: str
    task: str
    text: str
    messages: list[dict[str, Any]] | None = None
    images: Sequence[Image.Image] | None = None
    answer: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    place: str = field(default="", compare=False)
    """File and line of the row, for messages, such as `rows.jsonl, line 3`."""
    prefill: str = ""

    @property
    def image_sizes(self) -> list[tuple[int, int]]:
        """Width and height of each image in pixels; those of a prompt file are not opened."""
        sizes = getattr(self.images, "sizes", None)
        return [image.size for image in self.images or ()] if sizes is None else sizes

    @property
    def facts(self) -> dict[str, Any]:
        """The metadata with the answer, for the rewards."""
        return {**self.metadata, "answer": self.answer}


@dataclass
class Sample:
    """What a reward scores: the prompt text, a finished completion (text or image), its metadata.

    `images` and `id` are those of the prompt. `chunks` are those of the completion, None unless a
    reward of the task scores chunks.
    """

    prompt: str
    completion: str | Image.Image
    metadata: dict[str, Any] = field(default_factory=dict)
    images: Sequence[Image.Image] | None = None
    chunks: Sequence[Chunk] | None = None
    id: str = ""

    @staticmethod
    def of(
        prompt: Prompt, completion: str | Image.Image, chunks: Sequence[Chunk] | None = None
    ) -> Sample:
        """A completion of a prompt."""
        return Sample(prompt.text, completion, prompt.facts, prompt.images, chunks, prompt.id)


@dataclass
class Canvas:
    """A batch of partly written token rows.

    Attributes:
        tokens: [B, L] int64, `mask_id` where a response position is still unwritten.
        response: [B, L] bool, the positions the policy writes.
        attend: [B, L] bool, False on padding, which is never attended to; None without padding.
        vocab: half-open range of token ids a response token may come from.
        mask_id: id of the mask token.
        uncond_tokens: [B, L] int64 or None, the other branch of classifier-free guidance: the same
            length, with the unconditional prompt. Its response is copied from `tokens`.
        uncond_attend: [B, L] bool or None, `attend` of that branch.
        image_uncond_tokens: [B, L] int64 or None, the branch that keeps the text of the prompt and
            has no source image, for `image_guidance_scale`.
        image_uncond_attend: [B, L] bool or None, `attend` of that branch.
        grid: height and width of the response in image tokens, None for text.
        stop_ids: ids that end a text; the first also fills the positions after the end. Empty where
            responses have a fixed length, as images have.
        valid: [B, L] bool, the response positions that are scored in a finished canvas (a text up
            to and including its first end token); None for all.
        features: embeddings in place of tokens, for prompts with images that are not tokens; None
            otherwise. The unconditional branch has none.
        banned: ids that a response never contains, beside that of the mask.
        blocks: [B, L] int64, the block of each position for a network whose attention is causal
            between blocks of `block_size` positions, from 0 at the first token; None where all
            attend to all.
        copies: [B, L] int64, see `mmrl.models.network.pattern`; None where all tokens are clean.
        places: [B, L] int64, position of each token in its text; None where they are the columns.
    """

    tokens: Tensor
    response: Tensor
    attend: Tensor | None
    vocab: tuple[int, int]
    mask_id: int
    uncond_tokens: Tensor | None = None
    uncond_attend: Tensor | None = None
    grid: tuple[int, int] | None = None
    stop_ids: tuple[int, ...] = ()
    valid: Tensor | None = None
    features: Features | None = None
    banned: tuple[int, ...] = ()
    image_uncond_tokens: Tensor | None = None
    image_uncond_attend: Tensor | None = None
    blocks: Tensor | None = None
    block_size: int | None = None
    copies: Tensor | None = None
    places: Tensor | None = None

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> Canvas:
        """The canvas of some rows (a slice, or an int64 or bool index of shape [b])."""
        return replace(self, **{name: _take(getattr(self, name), rows) for name in _CANVAS_TENSORS})

    def to(self, device: torch.device | str) -> Canvas:
        """The same canvas on another device."""
        own = ((name, getattr(self, name)) for name in _CANVAS_TENSORS)
        return replace(self, **{name: None if x is None else x.to(device) for name, x in own})

    def pad_left(self, width: int) -> Canvas:
        """Add `width` columns on the left that are never attended to; fewer than 0 drops some."""
        import torch
        import torch.nn.functional as F

        known = {name: getattr(self, name) for name in CANVAS_PADDING}
        for name, tokens in _MASKED_TOKENS.items():
            if known[name] is None and known[tokens] is not None:
                known[name] = torch.ones_like(self.response)
        padded = {
            name: None if tensor is None else F.pad(tensor, (width, 0), value=CANVAS_PADDING[name])
            for name, tensor in known.items()
        }
        return replace(self, **padded, features=self.features and self.features.pad_left(width))

    def trim(self) -> tuple[Canvas, int]:
        """Drop the columns on the left that no row attends to, and masks that hide nothing then.

        Attention without a mask has the fastest kernels, and rows that share a prompt need none.

        Returns:
            The canvas and the number of columns dropped.
        """
        import torch

        given = [name for name, rows in _MASKED_TOKENS.items() if getattr(self, rows) is not None]
        masks = [getattr(self, name) for name in given]
        if any(mask is None for mask in masks):  # what has none attends to every column
            return self, 0
        stacked = torch.stack(masks)
        needless = ~stacked.any(0).any(0)
        first = needless.long().cumprod(0).sum()
        hiding = (~stacked).sum((1, 2)) - first * len(self)
        width, *rest = torch.cat((first[None], hiding)).tolist()
        trimmed = self.pad_left(-width) if width else self
        none = {name: None for name, left in zip(given, rest, strict=True) if not left}
        return replace(trimmed, **none), width

    @property
    def forbidden_columns(self) -> list[int]:
        """Columns of the response vocabulary that are never written."""
        first, end = self.vocab
        return [token - first for token in (self.mask_id, *self.banned) if first <= token < end]

    @property
    def masked(self) -> Tensor:
        """[B, L] bool: response positions that are still unwritten."""
        return self.response & (self.tokens == self.mask_id)

    @property
    def ends(self) -> Tensor:
        """[B, L] bool: response positions with a token that ends a text."""
        found = self.response.new_zeros(self.response.shape)
        for token in self.stop_ids:
            found |= self.tokens == token
        return found & self.response

    def split(self, size: int | None = None) -> Tensor | None:
        """[B, L] int64: the blocks of response positions, counted from the first with one, -1
        elsewhere: those of the network's attention, or else of `size` positions; None where there
        are neither."""
        if self.blocks is not None:
            place = self.blocks - self._first_block(self.blocks)
        elif size is None:
            return None
        else:
            place = (self.response.cumsum(1) - 1) // size
        return place.where(self.response, -1)

    @property
    def first_response_column(self) -> int:
        """The first column that in some row belongs to the block of the first response token; what
        is left of it is in blocks of the prompt alone. The canvas must have blocks."""
        assert self.blocks is not None
        return int((self.blocks >= self._first_block(self.blocks)).any(0).int().argmax())

    def _first_block(self, blocks: Tensor) -> Tensor:
        """[B, 1] int64: the block of the first response token."""
        return blocks.where(self.response, blocks.amax() + 1).amin(-1, keepdim=True)

    @property
    def scorable(self) -> Tensor:
        """[B, L] bool: response positions whose log-probs count."""
        return self.response if self.valid is None else self.response & self.valid

    def unconditional(self) -> Canvas:
        """The branch without the text of the prompt, with the response written so far.

        Raises:
            ValueError: the canvas was laid out without that branch.
        """
        if self.uncond_tokens is None:
            raise ValueError(
                "cfg_scale > 0 needs a layout with a branch without text; set it to 0."
            )
        return self._branch(self.uncond_tokens, self.uncond_attend)

    def image_unconditional(self) -> Canvas:
        """The branch without the source image; otherwise as `unconditional`."""
        if self.image_uncond_tokens is None:
            raise ValueError("image_guidance_scale > 0 needs a source image to drop; set it to 0.")
        return self._branch(self.image_uncond_tokens, self.image_uncond_attend)

    def _branch(self, prompt: Tensor, attend: Tensor | None) -> Canvas:
        tokens = self.tokens.where(self.response, prompt)
        return replace(self, tokens=tokens, attend=attend, features=None)

    def hide(self, hidden: Tensor) -> Canvas:
        """Put the mask token at the True entries of `hidden` [B, L]."""
        features = self.features
        if features is not None:
            features = replace(features, at=features.at.masked_fill(hidden, -1))
        tokens = self.tokens.masked_fill(hidden, self.mask_id)
        return replace(self, tokens=tokens, features=features)

    def encode_images(self, model: Callable[..., Any]) -> Canvas:
        """Compute the image embeddings with a model, each image once for all passes.

        Returns:
            The canvas with them; the same canvas without images, or where they are final.
        """
        if self.features is None or self.features.source is None:
            return self
        features = self.features.drop_unused()
        return replace(self, features=replace(features.compute(model), source=features.source))

    def freeze_images(self, model: Callable[..., Any]) -> Canvas:
        """Compute the image embeddings without gradient and keep them: rows of the result may be
        scored in any parts without encoding an image again."""
        import torch

        with torch.no_grad():
            seen = self.encode_images(model)
        features = seen.features and replace(seen.features, source=None)
        return replace(seen, features=features)


CANVAS_PADDING = {
    "tokens": 0,
    "response": False,
    "attend": False,
    "uncond_tokens": 0,
    "uncond_attend": False,
    "image_uncond_tokens": 0,
    "image_uncond_attend": False,
    "valid": False,
    "blocks": 0,
}
"""Tensors of a canvas, and what they hold at padding."""
_CANVAS_TENSORS = (*CANVAS_PADDING, "features", "copies", "places")
_MASKED_TOKENS = {
    "attend": "tokens",
    "uncond_attend": "uncond_tokens",
    "image_uncond_attend": "image_uncond_tokens",
}
"""Masks of a canvas, by the tokens they belong to."""


def _take(tensor: Any, index: Any) -> Any:
    return None if tensor is None else tensor[index]


@dataclass
class Rollout:
    """A finished canvas and how it was written.

    Attributes:
        canvas: the finished canvas; no response position holds `mask_id`.
        written_at: [B, L] int64, the denoising step that wrote the position, -1 where the token
            was given.
        logprobs: [B, L] float32, log-probability of each response token under the sampler's
            distribution (after guidance, temperature and filters) when it was written; 0 where the
            token was given or filled in after the end of a text. With a cache they come from stale
            keys and values, so an update must not use them as those of the policy.
        settings: the sampler configuration.
        seeds: [B] int64, from which all draws of a row follow; None where it was not
            sampled here.
        forwards: forward passes over the batch; the branches of a guided one count once.
    """

    canvas: Canvas
    written_at: Tensor
    logprobs: Tensor
    settings: dict[str, Any]
    seeds: Tensor | None = None
    forwards: int = 0

    def __len__(self) -> int:
        return len(self.canvas)

    @property
    def blocks(self) -> Tensor | None:
        """[B, L] int64: the block that a response position was written in, from 0, -1 elsewhere;
        None where responses are not divided."""
        return self.canvas.split(self.settings.get("block_size"))

    def __getitem__(self, rows: slice | Tensor) -> Rollout:
        """The rollout of some rows."""
        parts = ("canvas", "written_at", "logprobs", "seeds")
        return replace(self, **{name: _take(getattr(self, name), rows) for name in parts})


@dataclass
class Passes:
    """K mask draws over a batch of finished canvases, drawn once and shared by all policies.

    Attributes:
        hidden: [K, B, L] bool, positions masked in this pass: of the response, and of the prompt
            where it is noised.
        scored: [K, B, L] bool, subset of `hidden` whose log-probs count.
        weight: [K, B, L] float32; the mean over passes of the weighted sum of scores estimates the
            log-likelihood of the response.
        length: [B] int64, number of counted positions of a response; None for those scored in any
            pass.
        blocks: [B, L] int64, the block of each response position, -1 elsewhere; None without.
        steps: [B, L] int64, ordered as the steps in which positions were written, where a pass
            scores several steps; None where the passes are in this order.
    """

    hidden: Tensor
    scored: Tensor
    weight: Tensor
    length: Tensor | None = None
    blocks: Tensor | None = None
    steps: Tensor | None = None

    def __len__(self) -> int:
        return self.hidden.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> Passes:
        """The same draws for some rows of the batch."""
        names = ("length", "blocks", "steps")
        rest = {name: _take(getattr(self, name), rows) for name in names}
        return replace(self._with_draws(lambda each: each[:, rows]), **rest)

    def drop_columns(self, first: int) -> Passes:
        """The same draws without the first columns."""
        names, kept = ("hidden", "scored", "weight", "blocks", "steps"), (..., slice(first, None))
        return replace(self, **{name: _take(getattr(self, name), kept) for name in names})

    def select_draws(self, draws: slice) -> Passes:
        """Select draws for all rows."""
        return self._with_draws(lambda each: each[draws])

    def exclude_rows(self, rows: Tensor) -> Passes:
        """Score nothing in some rows ([B] bool); the draws stay."""
        kept = ~rows[:, None]
        return replace(self, scored=self.scored & kept, weight=self.weight * kept)

    def restrict_to(self, tokens: Tensor) -> Passes:
        """Score only some of the tokens ([K, B, L] bool). Draws of a row that then score nothing
        are moved to the end, and dropped where they do so in all rows."""
        scored = self.scored & tokens
        used = scored.any(-1)
        number = max(1, int(used.sum(0).max()))
        first = used.byte().argsort(dim=0, descending=True, stable=True)[:number]
        places = first[..., None].expand(-1, *scored.shape[1:])
        kept = replace(self, scored=scored, weight=self.weight * scored)
        return kept._with_draws(lambda each: each.gather(0, places))

    def pad_draws(self, number: int) -> Passes:
        """Add draws up to `number` that hide and score nothing; the estimate stays the same."""
        import torch

        shape = (number - len(self), *self.hidden.shape[1:])
        scaled = replace(self, weight=self.weight * (number / len(self)))
        return scaled._with_draws(lambda each: torch.cat((each, each.new_zeros(shape))))

    def _with_draws(self, change: Callable[[Tensor], Tensor]) -> Passes:
        names = ("hidden", "scored", "weight")
        return replace(self, **{name: change(getattr(self, name)) for name in names})

    @property
    def tokens(self) -> Tensor:
        """[B] int64: number of counted positions of each response."""
        return self.scored.any(0).sum(-1) if self.length is None else self.length
