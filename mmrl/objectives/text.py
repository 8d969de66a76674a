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

from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmrl.config import NotHereError, check
from mmrl.features import Features
from mmrl.model_config import ModelConfig, check_patterns
from mmrl.objectives.objective import outline_of
from mmrl.objectives.packed_rows import Rows
from mmrl.objectives.policy_start import (
    answer_layouts,
    load_start,
    new_text_config,
    outline_policy,
)
from mmrl.objectives.text_config import CompletionConfig
from mmrl.objectives.text_examples import Example
from mmrl.objectives.text_rows import AnswerLayouts
from mmrl.objectives.text_source import Source, examples_of
from mmrl.runtime.interrupt import check as leave_if_told
from mmrl.training.trainable import train_parts
from models.image_tokenizers.image_tokenizer import (
    ImageTokenizer,
    build_vq,
    load_vq,
    outline_vq,
)
from models.layouts.layout_config import LayoutConfig
from models.loading import outline
from models.network.core import MaskedTokenModel
from models.network.vision import Vision
from models.policy import Policy


class Completions:
    """The loss of completions under a LLaDA-, MMaDA- or LLaDA-V-type network."""

    Config = CompletionConfig

    def __init__(self, config: CompletionConfig, seed: int, batch_size: int) -> None:
        self.config, self.seed, self.batch_size = config, seed, batch_size
        self.policy = _outline(config, load_vq(config.vq) if config.vq else None)
        self.layouts = answer_layouts(self.policy)
        self.text = self.layouts.text
        self.source = Source(config, self.layouts, seed)
        self.eval_examples: list[Example] = []
        if config.eval_data:
            held_out = examples_of(config, self.layouts, config.eval_data, config.eval_split)
            self.eval_examples = held_out[: config.eval_examples]
        load_start(self.policy, config.model, seed)
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
        if config.model and outline_of("objective.model", config.model, outline) is None:
            return None, f"completions of {config.data}"  # nor is its tokenizer here
        vq = outline_of("objective.vq", config.vq, outline_vq) if config.vq else None
        if vq is None and config.vq:  # one on the hub counts as the public one
            with torch.device("meta"):
                vq = build_vq({})
        policy = _outline(config, vq)
        layouts = answer_layouts(policy)
        sources = ((config.data, config.data_split), (config.eval_data, config.eval_split))
        counts = [_counted(config, layouts, source, split) for source, split in sources if source]
        return policy.network, ", ".join(counts)

    def batch(self, step: int, rank: int, world_size: int) -> Rows:
        """This rank's examples of micro-batch `step`, corrupted and laid out."""
        return self.source.batch(step, rank, world_size, self.batch_size)

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
            **_seen(batch.features),
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
            rows = self.source.rows(part, names).to(self.policy.device)
            if rows.features is not None:
                # a call of its own: processes that share the weights keep pace with calls that
                # look at images or read tokens
                rows.features = rows.features.compute(self.module)
            losses.append(float(self.loss(rows)[0]) * len(part))
            leave_if_told()
        return {"eval/loss": sum(losses) / len(self.eval_examples)} if losses else {}


def _seen(features: Features | None) -> dict[str, Any]:
    """What a forward pass takes of the images that its rows show, computed already or in it."""
    if features is None:
        return {}
    if features.rows is not None:
        return {"features": features.rows, "feature_at": features.at}
    return {"images": features.source, "shown": features.images, "feature_at": features.at}


def _outline(config: CompletionConfig, vq: ImageTokenizer | None) -> Policy:
    """The policy without weights, what is not trained frozen."""
    options = LayoutConfig(
        max_prompt_length=config.max_length,
        chat_template=config.chat_template,
        image_fit=config.image_fit,
    )
    policy = outline_policy(config, options, partial(new_text_config, config), vq)
    check(
        vq is None or any(layout.needs_vq for layout in policy.layouts.values()),
        "objective.vq",
        config.vq,
        "empty for a network that reads no image codes",
    )
    _choose(policy.network, config)
    return policy


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
        "objective.train_vision_tower",
        True,
        "false for a network without a vision tower",
    )
    check_patterns(network, wanted, "objective")
    network.requires_grad_(True)
    if isinstance(network.vision, Vision):
        network.vision.train_tower(False)
    train_parts(network, wanted, seed=0)


def _counted(
    config: CompletionConfig, layouts: AnswerLayouts, source: str, split: str | None
) -> str:
    try:
        return f"{len(examples_of(config, layouts, source, split))} completions of {source}"
    except NotHereError:
        return f"completions of {source}, which is not on this machine"
