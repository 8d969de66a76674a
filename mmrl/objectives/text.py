"""Supervised fine-tuning of masked-token models on completions, the prompt always visible.

    loss = 1/B sum_i 1/n_i sum_j w_ij CE_ij

over the B examples of a micro-batch, n_i the tokens of completion i (its ends and learned padding
included) and w the weights of a corruption (`mmrl.objectives.corruptions`), whose sum is, in
expectation, that corruption's bound. With `random` and `fill: batch` this is LLaDA's objective
(arXiv 2502.09992, section 2.3).
Deviations from the public scripts: tokens are normalised over the tokenizer's vocabulary (the mask
token among them, so that it is learned that nobody writes it) and not over unused rows; what pads
rows of different lengths is never attended to; every visit of an example draws new masks, which
depend on nothing else in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmrl.config import NotHereError, check, component
from mmrl.model_config import is_hub_id
from mmrl.objectives.corruptions import CORRUPTIONS
from mmrl.objectives.corruptions.corruption import View, draw_chance
from mmrl.objectives.masked import NetworkConfig
from mmrl.objectives.objective import outline_of, without_weights
from mmrl.objectives.packed_rows import Rows, lay_out
from mmrl.objectives.text_examples import Example, ExampleConfig, filled
from mmrl.objectives.text_policy import new_policy, old_policy, public_config, text_layout
from mmrl.objectives.text_rows import load_examples
from mmrl.randomness import generator
from mmrl.rows import read_rows
from mmrl.stream import stream_positions, stream_rows
from models.checkpoint import outline
from models.core import MaskedTokenModel
from models.llada import core_config
from models.text import Text


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
    """Checkpoint to continue from; a new LLaDA-type network when empty."""
    tokenizer: str = ""
    """Directory of the tokenizer of a new network."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """Sizes of a new network; unused when `model` is given."""
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
    """The loss of completions under a LLaDA- or MMaDA-type network."""

    Config = CompletionConfig

    def __init__(self, config: CompletionConfig, seed: int, batch_size: int) -> None:
        self.config, self.seed, self.batch_size = config, seed, batch_size
        kind = CORRUPTIONS[config.corruption["name"]]
        self.corruption = kind(component(CORRUPTIONS, config.corruption, "objective.corruption"))
        self.text = text_layout(
            config.model, config.tokenizer, config.chat_template, config.max_length
        )
        self.examples = examples_of(config, self.text, config.data, config.data_split)
        self.eval_examples: list[Example] = []
        if config.eval_data:
            held_out = examples_of(config, self.text, config.eval_data, config.eval_split)
            self.eval_examples = held_out[: config.eval_examples]
        self.mean_length = self._mean_length()
        if config.model:
            self.policy = old_policy(config.model, self.text)
        else:
            self.policy = new_policy(config.network, self.text, config.max_length, seed)
        network = self.policy.network.float().train().requires_grad_(True)
        network.set_attention(config.attn_implementation)
        network.gradient_checkpointing = config.gradient_checkpointing
        self.module: nn.Module = network

    @staticmethod
    def outline(config: CompletionConfig) -> tuple[nn.Module | None, str]:
        """The network without weights, and how many completions there are, where that is known."""
        network = None
        if config.model:
            network = outline_of("objective.model", config.model, outline)
            if network is None:  # nor is its tokenizer here
                return None, f"completions of {config.data}"
        text = text_layout(config.model, config.tokenizer, config.chat_template, config.max_length)
        if network is None:
            core = core_config(public_config(config.network, text, config.max_length))
            network = without_weights(lambda: MaskedTokenModel(core))
        sources = ((config.data, config.data_split), (config.eval_data, config.eval_split))
        counts = [_counted(config, text, source, split) for source, split in sources if source]
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
        logits = self.module(
            input_ids=batch.ids,
            attention_mask=batch.attention_mask,
            positions=scored,
            columns=self.text.vocab,
            position_ids=batch.position_ids,
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
        examples = filled(examples, self.config, self.text.ids["eos"])
        pieces = []
        for n, (example, name) in enumerate(zip(examples, names, strict=True)):
            chance = draw_chance(example.trained, generator(self.seed, *name))
            view = self.corruption(example.order[: example.trained], chance)
            length = self.mean_length or example.trained
            pieces.append(piece(example, view, n, length * len(examples), self.text.ids["mask"]))
        capacity = self.config.max_length if self.config.packing else 0
        return lay_out(pieces, capacity, self.text.ids["eos"])

    def _mean_length(self) -> float | None:
        if self.config.normalization == "sequence":
            return None
        whole = filled(self.examples, self.config, self.text.ids["eos"])
        return sum(example.trained for example in whole) / len(whole)


def examples_of(
    config: CompletionConfig, text: Text, source: str, split: str | None
) -> list[Example]:
    """The examples of a data set; see `load_examples`."""
    rows = read_rows(source, config.data_config, split)
    recorded = CORRUPTIONS[config.corruption["name"]].recorded
    return load_examples(rows, source, config, text, recorded)


def _counted(config: CompletionConfig, text: Text, source: str, split: str | None) -> str:
    try:
        return f"{len(examples_of(config, text, source, split))} completions of {source}"
    except NotHereError:
        if not is_hub_id(source):
            raise
        return f"completions of {source}, which is not on this machine"


def piece(example: Example, view: View, number: int, scale: float, mask_id: int) -> Rows:
    """Prompt, view and untrained rest of one example as a piece of a row.

    Args:
        example: P prompt and n completion tokens.
        view: of its `trained` tokens, m columns.
        number: of the piece in its micro-batch.
        scale: divides the weights.
        mask_id: token in place of hidden ones.

    Returns:
        tensors [P + m + n - trained].
    """
    given, rest = len(example.prompt), len(example.completion) - example.trained
    index = torch.cat((view.index, torch.arange(example.trained, len(example.completion))))
    targets = torch.cat((example.prompt, example.completion[index]))
    hidden = _between(given, False, view.hidden, rest, True)
    # the prompt is block 0 where all attend to all, and stands before the blocks where there are
    # copies
    before = -1 if bool(view.copy.any()) else 0
    return Rows(
        ids=torch.where(hidden, mask_id, targets),
        targets=targets,
        weight=_between(given, 0.0, view.weight, rest, 0.0) / scale,
        place=torch.cat((torch.arange(given), given + index)),
        block=_between(given, before, view.block, rest, 0),
        copy=_between(given, False, view.copy, rest, False),
        piece=torch.full((len(targets),), number),
    )


def _between(left: int, before: float, middle: Tensor, right: int, after: float) -> Tensor:
    """`middle` with `left` values in front and `right` values behind."""
    return torch.cat((middle.new_full((left,), before), middle, middle.new_full((right,), after)))
