"""Supervised fine-tuning of masked-token models on completions, the prompt always visible: words,
and for networks that see also images.

    loss = 1/B sum_i 1/n_i sum_j w_ij CE_ij

over the B examples of a micro-batch, n_i the tokens of completion i (its ends and learned padding
included) and w the weights of a corruption (`mmrl.objectives.corruptions`), whose sum is, in
expectation, that corruption's bound. With `random` and `fill: batch` this is LLaDA's objective
(arXiv 2502.09992, section 2.3).
Deviations from the public scripts: tokens are normalised over the tokenizer's vocabulary (the mask
token among them, so that it is learned that nobody writes it) and not over unused rows; what pads
rows of different lengths is never attended to; every visit of an example draws new masks, which
depend on nothing else in the batch. Of LLaDA-V (arXiv 2505.16933) this is the loss of its own
training with `fill: none`; no earlier turn of a conversation sees less than the whole prompt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from mmrl.config import NotHereError, check, component
from mmrl.model_config import ModelConfig, is_hub_id
from mmrl.objectives.corruptions import CORRUPTIONS
from mmrl.objectives.corruptions.corruption import draw_chance
from mmrl.objectives.masked import NetworkConfig
from mmrl.objectives.objective import outline_of
from mmrl.objectives.packed_rows import Rows, lay_out
from mmrl.objectives.text_examples import Example, ExampleConfig, filled
from mmrl.objectives.text_pieces import piece, shown
from mmrl.objectives.text_policy import (
    VisionConfig,
    blank,
    new_policy,
    old_policy,
    public_config,
    tasks_of,
    text_layout,
)
from mmrl.objectives.text_rows import Tasks, load_examples
from mmrl.picture_sources import picture_root
from mmrl.randomness import generator
from mmrl.rows import read_rows
from mmrl.stream import stream_positions, stream_rows
from mmrl.trainable import check_patterns, train_parts
from models.checkpoint import outline
from models.core import MaskedTokenModel
from models.image_chat import Album
from models.source import find_directory
from models.text import Text
from models.vision import Vision


@dataclass(kw_only=True)
class CompletionConfig(ExampleConfig):
    """Options of the `text` objective."""

    data: str = ""
    """.jsonl, .json or .parquet file, or a hub data set, of examples."""
    data_config: str | None = None
    """Configuration of a hub data set."""
    data_split: str | None = None
    """Split of a hub data set, or a slice such as `train[:-500]`; null is `train`."""
    eval_data: str = ""
    """The same as `data` for `eval_steps`; empty evaluates nothing."""
    eval_split: str | None = None
    """Its split."""
    eval_examples: int = 256
    """At most this many of them."""
    corruption: dict[str, Any] = field(default_factory=lambda: {"name": "random"})
    """`name` and options: random, semi_ar, block, trace, left_to_right."""
    normalization: Literal["sequence", "token"] = "sequence"
    """What n_i is: the length of the completion, or the mean length over the data, so that every
    token counts the same in every batch."""
    packing: bool = False
    """Put several examples of a micro-batch into rows of up to `max_length` tokens."""
    model: str = ""
    """Checkpoint to continue from; a new network when empty."""
    tokenizer: str = ""
    """Directory of the tokenizer of a new network."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """Sizes of a new network; unused when `model` is given."""
    vision: VisionConfig | None = None
    """Sizes of the vision tower of a new network, which makes it one of LLaDA-V's type; null for
    one of LLaDA's, without."""
    train_vision_tower: bool = False
    """Whether the vision tower is trained as well; its projector always is."""
    modules_to_train: list[str] | None = None
    """What is trained, as patterns of names: `vision.projector`, `blocks.*.attn`. Null is
    everything but the vision tower."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass."""
    attn_implementation: Literal["sdpa", "eager"] = "sdpa"
    """Attention kernel; `eager` is faster for bfloat16 on a CPU."""
    save_dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.data != "", "objective.data", self.data, "a file or data set of completions")
        check(self.eval_examples >= 1, "objective.eval_examples", self.eval_examples, "at least 1")
        component(CORRUPTIONS, self.corruption, where="objective.corruption")
        check(
            bool(self.model) != bool(self.tokenizer),
            "objective.model, objective.tokenizer", (self.model, self.tokenizer),
            "a checkpoint to continue from, or a tokenizer for a new network",
        )  # fmt: skip
        check(
            self.vision is None or (not self.model and self.train_vision_tower),
            "objective.vision", "given",
            "null with a model to continue, and with train_vision_tower without",
            "A new tower that is not trained stays random.",
        )  # fmt: skip
        check(
            self.modules_to_train is None or bool(self.model),
            "objective.modules_to_train", self.modules_to_train, "null for a new network",
        )  # fmt: skip
        continued = CORRUPTIONS[self.corruption["name"]].continued
        check(
            continued or self.fill == "none" or self.trained_padding is None,
            "objective.trained_padding", self.trained_padding,
            f"null with corruption {self.corruption['name']!r}", "It has no unwritten rest.",
        )  # fmt: skip
        check(
            self.normalization == "sequence" or self.fill != "batch",
            "objective.normalization", self.normalization, "sequence with fill: batch",
            "The mean length is not known beforehand.",
        )  # fmt: skip


class Completions:
    """The loss of completions under a LLaDA-, MMaDA- or LLaDA-V-type network."""

    Config = CompletionConfig

    def __init__(self, config: CompletionConfig, seed: int, batch_size: int) -> None:
        self.config, self.seed, self.batch_size = config, seed, batch_size
        kind = CORRUPTIONS[config.corruption["name"]]
        self.corruption = kind(component(CORRUPTIONS, config.corruption, "objective.corruption"))
        self.text = _text(config)
        raw = {} if config.model else _new(config, self.text)
        network = outline(find_directory(config.model)) if config.model else blank(raw)
        _choose(network, config)
        self.tasks = tasks_of(self.text, network)
        self.examples = examples_of(config, self.tasks, config.data, config.data_split)
        self.eval_examples: list[Example] = []
        if config.eval_data:
            held_out = examples_of(config, self.tasks, config.eval_data, config.eval_split)
            self.eval_examples = held_out[: config.eval_examples]
        self.mean_length = self._mean_length()
        if config.model:
            self.policy = old_policy(config.model, self.tasks)
        else:
            self.policy = new_policy(raw, self.tasks, seed)
        network = self.policy.network.float().train()
        _choose(network, config)
        network.set_attention(config.attn_implementation)
        network.gradient_checkpointing = config.gradient_checkpointing
        if isinstance(network.vision, Vision):
            network.vision.one_by_one = False
        self.module: nn.Module = network

    @staticmethod
    def outline(config: CompletionConfig) -> tuple[nn.Module | None, str]:
        """The network without weights, and how many completions there are, where that is known."""
        network = None
        if config.model:
            network = outline_of("objective.model", config.model, outline)
            if network is None:  # nor is its tokenizer here
                return None, f"completions of {config.data}"
        text = _text(config)
        if network is None:
            network = blank(_new(config, text))
        assert isinstance(network, MaskedTokenModel)
        _choose(network, config)
        tasks = tasks_of(text, network)
        sources = ((config.data, config.data_split), (config.eval_data, config.eval_split))
        counts = [_counted(config, tasks, source, split) for source, split in sources if source]
        return network, ", ".join(counts)

    def batch(self, step: int, rank: int, world_size: int) -> Rows:
        """This rank's examples of micro-batch `step`, corrupted and laid out."""
        places = stream_positions(step, rank, world_size, self.batch_size)
        numbers = stream_rows(self.seed, places, len(self.examples))
        names = [("corruption", place) for place in places]
        return self._rows([self.examples[n] for n in numbers], names)

    def loss(self, batch: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of rows from `batch`, how many tokens it scores, and how full the rows are."""
        batch = batch.to(next(self.module.parameters()).device)
        value = (batch.weight[batch.weight > 0] * self.entropies(batch)).sum()
        scored = (batch.weight > 0).sum().float()
        return value, {"batch/scored": scored, "batch/filled": (batch.piece >= 0).float().mean()}

    def entropies(self, batch: Rows) -> Tensor:
        """[N] cross-entropy in nats of the scored tokens in row-major order."""
        scored = batch.weight > 0
        seen = {}
        if batch.features is not None:
            shown = batch.features
            seen = {"images": shown.source, "shown": shown.images, "feature_at": shown.at}
        logits = self.module(
            input_ids=batch.ids,
            attention_mask=batch.attention_mask,
            positions=scored,
            columns=self.text.vocab,
            position_ids=batch.position_ids,
            **seen,
        ).logits
        targets = batch.targets[scored] - self.text.vocab[0]
        return F.cross_entropy(logits.float(), targets, reduction="none")

    def save(self, directory: Path) -> None:
        """Write network and tokenizer in the public format of their family."""
        self.policy.save(directory, self.config.save_dtype)

    def evaluate(self, directory: Path, step: int) -> dict[str, float]:
        """The loss of held-out examples, each with the same masks at every evaluation."""
        losses = []
        for first in range(0, len(self.eval_examples), self.batch_size):
            part = self.eval_examples[first : first + self.batch_size]
            names = [("evaluation", first + n) for n in range(len(part))]
            losses.append(float(self.loss(self._rows(part, names))[0]) * len(part))
        return {"eval/loss": sum(losses) / len(self.eval_examples)} if losses else {}

    def _rows(self, examples: list[Example], names: list[tuple[str, int]]) -> Rows:
        examples, chat = filled(examples, self.config), self.tasks.image_to_text
        album = None if chat is None else Album(chat.tiling)
        pieces = []
        for n, (example, name) in enumerate(zip(examples, names, strict=True)):
            chance = draw_chance(example.trained, generator(self.seed, *name))
            view = self.corruption(example.order[: example.trained], chance)
            scale = (self.mean_length or example.trained) * len(examples)
            given = shown(example, album, self.text.ids["eos"])
            pieces.append(piece(example, given, view, n, scale, self.text.ids["mask"]))
        capacity = self.config.max_length if self.config.packing else 0
        rows = lay_out(pieces, capacity, self.text.ids["eos"])
        if album is not None and album.images:
            rows.features = album.features(rows.at)
        return rows

    def _mean_length(self) -> float | None:
        if self.config.normalization == "sequence":
            return None
        whole = filled(self.examples, self.config)
        return sum(example.trained for example in whole) / len(whole)


def _text(config: CompletionConfig) -> Text:
    return text_layout(config.model, config.tokenizer, config.chat_template, config.max_length)


def _new(config: CompletionConfig, text: Text) -> dict[str, Any]:
    return public_config(config.network, text, config.max_length, config.vision)


def _choose(network: MaskedTokenModel, config: CompletionConfig) -> None:
    """Freeze what is not trained.

    Raises:
        ConfigError: a tower is to be trained that is not there, or a pattern fits nothing.
    """
    wanted = ModelConfig(
        path=config.model,
        train_vision_tower=config.train_vision_tower,
        modules_to_train=config.modules_to_train,
    )
    check(
        network.vision is not None or not config.train_vision_tower,
        "objective.train_vision_tower", True, "false for a network without a vision tower",
    )  # fmt: skip
    check_patterns(network, wanted, "objective")
    network.requires_grad_(True)
    if isinstance(network.vision, Vision):
        network.vision.train_tower(False)
    train_parts(network, wanted, seed=0)


def examples_of(
    config: CompletionConfig, tasks: Tasks, source: str, split: str | None
) -> list[Example]:
    """The examples of a data set; see `load_examples`."""
    rows = read_rows(source, config.data_config, split)
    recorded = CORRUPTIONS[config.corruption["name"]].recorded
    root = picture_root(source, config.image_root, "objective.image_root")
    return load_examples(rows, source, config, tasks, root, recorded)


def _counted(config: CompletionConfig, tasks: Tasks, source: str, split: str | None) -> str:
    try:
        return f"{len(examples_of(config, tasks, source, split))} completions of {source}"
    except NotHereError:
        if not is_hub_id(source):
            raise
        return f"completions of {source}, which is not on this machine"
