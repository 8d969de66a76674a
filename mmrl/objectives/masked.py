"""Mixed masked-token training, as MMaDA's pre-training: text to image, image to text, text.

Each part of a batch is corrupted in its own way and its loss is a mean of cross-entropies at the
masked positions, weighted by the configuration:

    text_to_image   max(1, round(n cos(pi u / 2))) image positions masked; mean CE over them
    image_to_text   each answer token masked with p = (1 - eps) t + eps; sum CE / p / answer length
    text            each token masked with p; sum CE / p / length

with u, t uniform in [0, 1) per row and eps = 1e-3 (MMaDA, arXiv 2505.15809; LLaDA, 2502.09992).
Texts are the captions of the images; `questions` and `completions` put answers in their place, laid
out as they are sampled and with the loss of `mmrl.objectives.text`.
Deviations from the public training script: image logits are normalised over the image codes only,
the distribution that samplers and RL use, and the visible frame tokens carry no loss; padding left
of an image prompt is really masked when the checkpoint says `mask_policy: key_padding`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from transformers import PreTrainedTokenizerBase

from mmrl.data.stream import stream_positions, stream_rows
from mmrl.objectives.columns import load_images, load_texts
from mmrl.objectives.masked_config import PARTS, MaskedConfig
from mmrl.objectives.objective import outline_of
from mmrl.objectives.packed_rows import Rows
from mmrl.objectives.policy_start import answer_layouts, load_start, outline_policy
from mmrl.objectives.text_rows import AnswerLayouts
from mmrl.objectives.text_source import Source
from mmrl.randomness import generator, stable_seed
from models.families import mmada
from models.image_tokenizers.image_tokenizer import (
    ImageTokenizer,
    build_vq,
    load_vq,
    outline_vq,
)
from models.layouts.layout_config import LayoutConfig
from models.layouts.text_to_image import TextToImage
from models.loading import outline
from models.policy import Policy

EPS = 1e-3


@dataclass
class Corrupted:
    """One part of a batch: masked ids, what to predict, and how much each prediction weighs."""

    part: str
    ids: Tensor
    attend: Tensor | None
    hidden: Tensor
    targets: Tensor
    weight: Tensor
    columns: tuple[int, int] | None
    places: Tensor | None = None
    """Position of each token in its own text, for rows that hold several."""


class Masked:
    """The mixed masked-token loss of a MMaDA-type network."""

    Config = MaskedConfig

    def __init__(self, config: MaskedConfig, seed: int, batch_size: int) -> None:
        self.config, self.seed, self.batch_size = config, seed, batch_size
        self.images = load_images(config.data, config.image_column, config.image_size)
        self.texts = load_texts(config.data, config.text_column)
        self.policy = outline_start(config, load_vq(config.vq))
        load_start(self.policy, config.model, seed)
        self.sources = _sources(config, answer_layouts(self.policy), seed)
        self.policy.network.float().train().requires_grad_(True)
        self.policy.network.set_attention(config.attn_implementation)
        self.module: nn.Module = self.policy.network

    @staticmethod
    def outline(config: MaskedConfig) -> tuple[nn.Module | None, str]:
        """The network without weights, and how many pairs and answers there are."""
        load_images(config.data, config.image_column, config.image_size)
        said = f"{len(load_texts(config.data, config.text_column))} pairs of {config.data}"
        if config.model and outline_of("objective.model", config.model, outline) is None:
            return None, said
        vq = outline_of("objective.vq", config.vq, outline_vq)
        if vq is None:  # one on the hub counts as the public one
            with torch.device("meta"):
                vq = build_vq({})
        policy = outline_start(config, vq)
        sources = _sources(config, answer_layouts(policy), 0).values()
        return policy.network, ", ".join(
            [said, *(f"{len(s.examples)} completions of {s.config.data}" for s in sources)]
        )

    @cached_property
    def codes(self) -> Tensor:
        """[rows, n] int64, image-code token ids of every training image, encoded once."""
        vq, offset = self._image_task.vq, self._image_task.rows.code_offset
        device = self.policy.device
        vq.to(device)
        chunks = [
            vq.get_code(
                self.images.pixels(list(range(i, min(i + 256, len(self.images))))).to(device)
            )
            for i in range(0, len(self.images), 256)
        ]
        return torch.cat(chunks).cpu() + offset

    @property
    def _image_task(self) -> TextToImage:
        task = self.policy.layouts["text_to_image"]
        assert isinstance(task, TextToImage)
        return task

    def batch(self, step: int, rank: int, world_size: int) -> list[Corrupted]:
        """This rank's rows of micro-batch `step`, corrupted, part by part."""
        where = step, rank, world_size
        places = stream_positions(*where, self.batch_size)
        rows = stream_rows(self.seed, places, len(self.texts))
        draw = generator(self.seed, "corruption", *where)
        corrupt = {
            "text_to_image": self._text_to_image,
            "image_to_text": self._image_to_text,
            "text": self._text,
        }
        parts = []
        for name, count in _split(self.config.shares, len(rows)).items():
            mine, rows = rows[:count], rows[count:]
            if mine and name in self.sources:
                parts.append(self._answered(name, self.sources[name].batch(*where, len(mine))))
            elif mine:
                parts.append(corrupt[name](mine, draw))
        return parts

    def loss(self, batch: Sequence[Corrupted]) -> tuple[Tensor, dict[str, Tensor]]:
        """Weighted sum of the parts' losses, and each of them."""
        device = next(self.module.parameters()).device
        total, metrics = torch.zeros((), device=device), {}
        for part in batch:
            hidden, weight = part.hidden.to(device), part.weight.to(device)
            attend = None if part.attend is None else part.attend.to(device)
            logits = self.module(
                input_ids=part.ids.to(device),
                attention_mask=attend,
                positions=hidden,
                columns=part.columns,
                position_ids=None if part.places is None else part.places.to(device),
            ).logits
            start = part.columns[0] if part.columns else 0
            targets = part.targets.to(device)[hidden] - start
            entropy = F.cross_entropy(logits.float(), targets, reduction="none")
            value = (entropy * weight[hidden]).sum()
            metrics[f"loss/{part.part}"] = value.detach()
            total = total + self.config.weights.get(part.part, 1.0) * value
        return total, metrics

    def save(self, directory: Path) -> None:
        """Write network and tokenizer in MMaDA's public format."""
        self.policy.save(directory, self.config.save_dtype)

    def evaluate(self, directory: Path, step: int) -> dict[str, float]:
        """Nothing beyond the training losses; `mmrl.eval_v` scores samples."""
        return {}

    def _text_to_image(self, rows: list[int], draw: Generator) -> Corrupted:
        codes = self.codes[rows]
        drop = torch.rand(len(rows), generator=draw) < self.config.cond_dropout_prob
        texts = [self.texts[row] for row in rows]
        ids, mask = self._image_task.rows.text_to_image(texts, codes, drop.tolist())
        hidden = torch.zeros_like(ids, dtype=torch.bool)
        hidden[:, -codes.shape[1] - 1 : -1] = cosine_mask(codes.shape[0], codes.shape[1], draw)
        first, attend = 0, None
        if self._image_task.mask_policy == "key_padding":
            first, attend = int(mask.any(0).int().argmax()), mask.bool()
        weight = hidden / hidden.sum()
        part = self._corrupted("text_to_image", ids, attend, hidden, weight, first)
        part.columns = self._image_task.vocab
        return part

    def _image_to_text(self, rows: list[int], draw: Generator) -> Corrupted:
        turns = [self._conversation(self.texts[row]) for row in rows]
        ids, prompt = self._image_task.rows.image_to_text(turns, self.codes[rows])
        return self._answers("image_to_text", ids, prompt == 0, draw)

    def _text(self, rows: list[int], draw: Generator) -> Corrupted:
        length = self.config.max_prompt_length
        ids, _ = self._image_task.rows.language([self.texts[row] for row in rows], length)
        return self._answers("text", ids, torch.ones_like(ids, dtype=torch.bool), draw)

    def _answers(self, part: str, ids: Tensor, answer: Tensor, draw: Generator) -> Corrupted:
        rate = (1 - EPS) * torch.rand(len(ids), 1, generator=draw) + EPS
        hidden = answer & (torch.rand(ids.shape, generator=draw) < rate)
        weight = hidden / rate / answer.sum(1, keepdim=True) / len(ids)
        return self._corrupted(part, ids, None, hidden, weight, 0)

    def _answered(self, part: str, rows: Rows) -> Corrupted:
        scored, vocab = rows.weight > 0, self.sources[part].layouts.text.vocab
        return Corrupted(
            part,
            rows.ids,
            rows.attention_mask,
            scored,
            rows.targets,
            rows.weight,
            vocab,
            rows.position_ids,
        )

    def _corrupted(
        self,
        part: str,
        ids: Tensor,
        attend: Tensor | None,
        hidden: Tensor,
        weight: Tensor,
        first: int,
    ) -> Corrupted:
        masked = torch.where(hidden, self.policy.mask_id, ids)
        cut = [tensor[:, first:] for tensor in (masked, hidden, ids, weight)]
        attend = None if attend is None else attend[:, first:]
        return Corrupted(part, cut[0], attend, cut[1], cut[2], cut[3], None)

    def _conversation(self, answer: str) -> str:
        messages = [{"role": "user", "content": self.config.instruction}]
        text = self.policy.tokenizer.apply_chat_template(messages, tokenize=False)
        return f"{text}{answer}"


def outline_start(config: MaskedConfig, vq: ImageTokenizer) -> Policy:
    """The policy without weights."""
    options = LayoutConfig(
        max_prompt_length=config.max_prompt_length,
        image_size=config.image_size,
        image_fit=config.image_fit,
    )

    def new_config(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        core = config.network.core(len(tokenizer) + vq.codebook_size)
        return mmada.public_config(core, tokenizer, vq, config.image_size, config.mask_policy)

    return outline_policy(config, options, new_config, vq)


def cosine_mask(rows: int, length: int, draw: Generator) -> Tensor:
    """[rows, length] bool with exactly max(1, round(length cos(pi u / 2))) True entries a row."""
    rate = torch.cos(torch.rand(rows, 1, generator=draw) * math.pi / 2)
    count = (length * rate).round().clamp(min=1)
    return torch.rand(rows, length, generator=draw).argsort(1) < count


def _sources(config: MaskedConfig, layouts: AnswerLayouts, seed: int) -> dict[str, Source]:
    """The answers that parts learn in place of captions."""
    given = {"image_to_text": config.questions, "text": config.completions}
    return {
        part: Source(source, layouts, stable_seed(seed, part))
        for part, source in given.items()
        if source is not None
    }


def _split(shares: dict[str, float], count: int) -> dict[str, int]:
    """Rows of each part, in the order of PARTS; the remainder goes to the largest share."""
    counts = {name: round(shares.get(name, 0.0) * count) for name in PARTS}
    largest = max(shares, key=lambda name: shares[name])
    counts[largest] += count - sum(counts.values())
    return counts
