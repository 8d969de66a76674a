"""Supervised fine-tuning of masked-token models on completions, the prompt always visible: texts,
and for networks that see also images.

    loss = 1/B sum_i 1/n_i sum_j w_ij CE_ij

over the B examples of a micro-batch, n_i the tokens of completion i (its ends and learned padding
included) and w the weights of a corruption (`mmrl.objectives.corruptions`), whose sum is, in
expectation, that corruption's bound. With `random` and `fill: batch` this is LLaDA's objective
(arXiv 2502.09992, section 2.3).
Deviations from the public scripts: the softmax is over the tokenizer's vocabulary (with the mask
token, so that the network learns never to write it) and not over unused rows; padding of rows of
different lengths is never attended to; every visit of an example draws new masks, which depend on
nothing else in the batch. For LLaDA-V (arXiv 2505.16933) this is the loss of its training with
`fill: none`, except that every turn of a conversation sees the whole prompt.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.config import check
from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer, load_vq
from mmrl.models.layouts.layout_config import LayoutConfig
from mmrl.models.network.token_network import TokenNetwork
from mmrl.models.network.vision import Vision
from mmrl.models.policy import Policy
from mmrl.objectives.answer_layouts import AnswerLayouts
from mmrl.objectives.corruptions import CORRUPTIONS
from mmrl.objectives.options import CompletionConfig
from mmrl.objectives.policy_start import (
    PolicyObjective,
    choose_trained,
    outline_policy,
    outline_tokenizer,
)
from mmrl.objectives.scored_rows import Rows, compute_loss
from mmrl.objectives.text_examples import Example, ExampleReader
from mmrl.objectives.text_source import Source, describe_source
from mmrl.pretrained.known import find_here
from mmrl.runtime.interrupt import check as check_stop
from mmrl.runtime.launch_checks import check_images


class Completions(PolicyObjective[CompletionConfig]):
    """The loss of completions under a LLaDA-, MMaDA- or LLaDA-V-type network."""

    Config = CompletionConfig

    def _build(self, device: torch.device | str, deferred: bool) -> None:
        config, seed = self.config, self.seed
        vq = load_vq(config.vq, device=str(device)) if config.vq else None
        self.policy = outline_start(config, vq)
        layouts = AnswerLayouts(self.policy, config.encode_batch_size)
        self.text, self.source = layouts.text, Source(config, layouts, seed)
        self.data = {"text": self.source.rows}
        if self.policy.network.sees:
            kinds = {bool(example.images) for example in getattr(self.data["text"], "items", ())}
            mixed = config.streaming or len(kinds) > 1
            trained = self.policy.network.learns_to_see
            check_images("objective.data", config.data, mixed, trained)
        self.eval_examples: list[Example] = []
        if config.eval_data:
            self.eval_examples = ExampleReader(_held_out(config), layouts).read_all()
        public = self.policy.network.public_config
        network = self.load_start(device, deferred)
        network.public_config = public
        choose_trained(network, config, seed)
        if isinstance(network.vision, Vision):
            network.vision.one_by_one = False
        self.module = network

    @staticmethod
    def outline(config: CompletionConfig) -> tuple[nn.Module | None, str]:
        """The network without weights, and how many completions there are, where that is known."""
        if find_here("objective.model", config.model) is None:
            return None, describe_source(config, None)  # nor is its tokenizer here
        policy = outline_start(config, outline_tokenizer(config.vq) if config.vq else None)
        layouts = AnswerLayouts(policy, config.encode_batch_size)
        sources = [config, *([_held_out(config)] if config.eval_data else [])]
        return policy.network, ", ".join(describe_source(each, layouts) for each in sources)

    def batch(self, step: int, rank: int, world_size: int) -> Rows:
        """This rank's examples of micro-batch `step`, corrupted and in rows."""
        return self.source.batch(step, rank, world_size, self.batch_size)

    def loss(self, batch: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of rows from `batch`, how many tokens it scores, and how full the rows are."""
        batch = batch.to(self.policy.device)
        value = compute_loss(self.module, self.policy.network, batch, self.text.vocab)
        scored = (batch.weight > 0).sum().float()
        return value, {"batch/scored": scored, "batch/filled": batch.real.float().mean()}

    def evaluate(self, directory: Path, step: int) -> dict[str, float]:
        """The loss of held-out examples, each with the same masks at every evaluation."""
        losses = []
        for first in range(0, len(self.eval_examples), self.batch_size):
            part = self.eval_examples[first : first + self.batch_size]
            names = [("evaluation", first + n) for n in range(len(part))]
            rows = self.source.build_rows(part, names).to(self.policy.device)
            if rows.features is not None:
                # in a separate call: processes that share the weights keep pace with calls that
                # either encode images or read tokens
                rows.features = rows.features.compute(self.module)
            losses.append(float(self.loss(rows)[0]) * len(part))
            check_stop()
        return {"eval/loss": sum(losses) / len(self.eval_examples)} if losses else {}


def outline_start(config: CompletionConfig, vq: ImageTokenizer | None) -> Policy:
    """The policy without weights, with what is not trained frozen."""
    options = LayoutConfig(max_prompt_length=config.max_length, image_fit=config.image_fit)
    policy = outline_policy(config, options, vq)
    reads = vq is None or any(layout.needs_vq for layout in policy.layouts.values())
    allowed = "empty for a network that reads no image codes"
    check(reads, "objective.vq", config.vq, allowed)
    check_corruption(policy.network, config.corruption)
    if "block_size" in policy.network.public_config:  # counted as the corruption counts them
        policy.network.public_config["block_alignment"] = "right"
    choose_trained(policy.network, config)
    return policy


def check_corruption(network: TokenNetwork, corruption: Mapping[str, Any]) -> None:
    """Refuse a corruption whose scored tokens the network has read, or with other blocks than its
    attention has. Raises ConfigError: copies of blocks for a network that shifts its logits, whose
    output before a copied token has read that token; `causal` for one that does not shift them;
    anything but copies of its blocks for a network whose attention is causal between blocks."""
    where, name, size = "objective.corruption", corruption["name"], network.block_size
    copies, shifts = ("block", "block_trace"), network.shifts
    others = ", ".join(sorted(CORRUPTIONS.keys() - {*copies}))
    allowed = f"one of {others} for a network that shifts its logits, as Dream"
    check(not (shifts and name in copies), f"{where}.name", name, allowed)
    advice = "The output at a token would have read it."
    allowed = "another for a network that does not shift its logits"
    check(shifts or name != "causal", f"{where}.name", name, allowed, advice)
    allowed = "causal for a network that reads from left to right"
    check(not network.causal or name == "causal", f"{where}.name", name, allowed)
    allowed = f"block or block_trace for a network of causal attention between blocks of {size}"
    check(size is None or name in copies, f"{where}.name", name, allowed)
    own = corruption.get("block_size")
    check(size in (None, own), f"{where}.block_size", own, f"{size}, as in the network's attention")


def _held_out(config: CompletionConfig) -> CompletionConfig:
    split = config.eval_split
    return replace(config, data=config.eval_data, data_split=split, streaming=False)
