"""Mixed masked-token training, as MMaDA's pre-training: text to image, image to text, text.

Each part of a batch is corrupted in its own way and its loss is a mean of cross-entropies at the
masked positions, weighted by the configuration:

    text_to_image   max(1, round(n cos(pi u / 2))) image positions masked; mean CE over them
    image_to_text   each answer token masked with p = (1 - eps) t + eps; sum CE / p / answer length
    text            each token masked with p; sum CE / p / length

with u, t uniform in [0, 1) per row and eps = 1e-3 (MMaDA, arXiv 2505.15809; LLaDA, 2502.09992).
Deviations from the public training script: image logits are normalised over the image codes only,
the distribution that samplers and RL use, and the visible frame tokens carry no loss; padding left
of an image prompt is really masked when the checkpoint says `mask_policy: key_padding`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from mmrl.config import check
from mmrl.objectives.columns import load_images, load_texts
from mmrl.objectives.objective import outline_of, without_weights
from mmrl.randomness import generator
from mmrl.stream import stream_positions, stream_rows
from models.checkpoint import new_model, outline
from models.core import MaskedTokenModel
from models.layouts import Layouts
from models.llada import BACKBONE, core_config
from models.magvit import MagvitConfig, MagvitV2, load_vq, vq_outline
from models.policy import Policy, image_grid, load_policy, load_tokenizer
from models.text_to_image import TextToImage

EPS = 1e-3
PARTS = ("text_to_image", "image_to_text", "text")


@dataclass(kw_only=True)
class NetworkConfig:
    """Sizes of a new network, by the names of LLaDA's config.json."""

    d_model: int = 192
    n_layers: int = 6
    n_heads: int = 6
    mlp_hidden_size: int = 512
    rope_theta: float = 500000.0


@dataclass(kw_only=True)
class MaskedConfig:
    """Options of the `masked` objective."""

    data: str = ""
    """Parquet of training pairs, or a folder of them: an image and its prompt per row."""
    image_column: str = "image"
    text_column: str = "prompt"
    model: str = ""
    """Checkpoint to continue from; a new network when empty."""
    tokenizer: str = ""
    """Directory of the tokenizer of a new network."""
    vq: str = ""
    """Path or hub id of the image tokenizer."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """Sizes of a new network; unused when `model` is given."""
    image_size: int = 256
    max_prompt_length: int = 256
    mask_policy: Literal["ignore", "key_padding"] = "key_padding"
    """What padding means in a new network; recorded in its config.json."""
    cond_dropout_prob: float = 0.1
    """Share of text-to-image rows whose text is dropped, for classifier-free guidance."""
    shares: dict[str, float] = field(default_factory=lambda: {"text_to_image": 1.0})
    """Share of every batch that goes to each of text_to_image, image_to_text, text."""
    weights: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 1.0))
    """Weight of each part in the loss."""
    instruction: str = "describe the image"
    """User turn of the image-to-text part."""
    attn_implementation: Literal["sdpa", "eager"] = "sdpa"
    """Attention kernel; `eager` is faster for bfloat16 on a CPU."""
    save_dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"

    def __post_init__(self) -> None:
        check(self.data != "", "objective.data", self.data, "the path of a parquet of pairs")
        check(self.vq != "", "objective.vq", self.vq, "the path or hub id of an image tokenizer")
        for key in ("image_size", "max_prompt_length"):
            check(getattr(self, key) >= 1, f"objective.{key}", getattr(self, key), "at least 1")
        known = set(self.shares) <= set(PARTS) and set(self.weights) <= set(PARTS)
        check(known, "objective.shares, objective.weights", self.shares, f"of {', '.join(PARTS)}")
        total = sum(self.shares.values())
        check(abs(total - 1) < 1e-6, "objective.shares", self.shares, "shares that add up to 1")
        check(
            bool(self.model) != bool(self.tokenizer),
            "objective.model, objective.tokenizer",
            (self.model, self.tokenizer),
            "a checkpoint to continue from, or a tokenizer for a new network",
        )


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


class Masked:
    """The mixed masked-token loss of a MMaDA-type network."""

    Config = MaskedConfig

    def __init__(self, config: MaskedConfig, seed: int, batch_size: int) -> None:
        self.config, self.seed, self.batch_size = config, seed, batch_size
        self.images = load_images(config.data, config.image_column, config.image_size)
        self.texts = load_texts(config.data, config.text_column)
        self.policy = old_policy(config) if config.model else new_policy(config, seed)
        self.policy.network.float().train().requires_grad_(True)
        self.policy.network.set_attention(config.attn_implementation)
        self.module: nn.Module = self.policy.network

    @staticmethod
    def outline(config: MaskedConfig) -> tuple[nn.Module | None, str]:
        """The network without weights, and how many pairs there are."""
        load_images(config.data, config.image_column, config.image_size)
        pairs = f"{len(load_texts(config.data, config.text_column))} pairs of {config.data}"
        vq = outline_of("objective.vq", config.vq, vq_outline)
        if config.model:
            return outline_of("objective.model", config.model, outline), pairs
        layouts = Layouts(load_tokenizer(Path(config.tokenizer)), config.max_prompt_length)
        # a tokenizer of the hub counts as the public one
        vq = vq or without_weights(lambda: MagvitV2(MagvitConfig()))
        assert isinstance(vq, MagvitV2)
        core = core_config(public_config(config, layouts, vq))
        return without_weights(lambda: MaskedTokenModel(core)), pairs

    @cached_property
    def codes(self) -> Tensor:
        """[rows, n] int64, image-code token ids of every training image, encoded once."""
        vq, offset = self._image_task.vq, self._image_task.layouts.code_offset
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
        task = self.policy.tasks["text_to_image"]
        assert isinstance(task, TextToImage)
        return task

    def batch(self, step: int, rank: int, world_size: int) -> list[Corrupted]:
        """This rank's rows of micro-batch `step`, corrupted, part by part."""
        places = stream_positions(step, rank, world_size, self.batch_size)
        rows = stream_rows(self.seed, places, len(self.texts))
        draw = generator(self.seed, "corruption", step, rank, world_size)
        corrupt = {
            "text_to_image": self._text_to_image,
            "image_to_text": self._image_to_text,
            "text": self._text,
        }
        parts = []
        for name, count in _split(self.config.shares, len(rows)).items():
            mine, rows = rows[:count], rows[count:]
            if mine:
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
        ids, mask = self._image_task.layouts.text_to_image(texts, codes, drop.tolist())
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
        ids, prompt = self._image_task.layouts.image_to_text(turns, self.codes[rows])
        return self._answers("image_to_text", ids, prompt == 0, draw)

    def _text(self, rows: list[int], draw: Generator) -> Corrupted:
        length = self.config.max_prompt_length
        ids, _ = self._image_task.layouts.language([self.texts[row] for row in rows], length)
        return self._answers("text", ids, torch.ones_like(ids, dtype=torch.bool), draw)

    def _answers(self, part: str, ids: Tensor, answer: Tensor, draw: Generator) -> Corrupted:
        rate = (1 - EPS) * torch.rand(len(ids), 1, generator=draw) + EPS
        hidden = answer & (torch.rand(ids.shape, generator=draw) < rate)
        weight = hidden / rate / answer.sum(1, keepdim=True) / len(ids)
        return self._corrupted(part, ids, None, hidden, weight, 0)

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


def cosine_mask(rows: int, length: int, draw: Generator) -> Tensor:
    """[rows, length] bool with exactly max(1, round(length cos(pi u / 2))) True entries a row."""
    rate = torch.cos(torch.rand(rows, 1, generator=draw) * math.pi / 2)
    count = (length * rate).round().clamp(min=1)
    return torch.rand(rows, length, generator=draw).argsort(1) < count


def new_policy(config: MaskedConfig, seed: int) -> Policy:
    """A fresh network behind the given tokenizers, with a config.json in MMaDA's format."""
    tokenizer, vq = load_tokenizer(Path(config.tokenizer)), load_vq(config.vq)
    layouts = Layouts(tokenizer, config.max_prompt_length)
    raw = public_config(config, layouts, vq)
    draw = generator(seed, "initial weights")
    network = new_model(core_config(raw), raw, draw)
    grid = image_grid(raw, vq, config.image_size)
    task = TextToImage(layouts, vq, grid, config.mask_policy)
    return Policy(network, tokenizer, {"text_to_image": task}, network)


def public_config(config: MaskedConfig, layouts: Layouts, vq: MagvitV2) -> dict[str, Any]:
    """MMaDA's config.json of a new network; `mask_policy` is ours, read by `load_policy`."""
    sizes, ids = config.network, layouts.ids
    rows = layouts.code_offset + vq.codebook_size
    return {
        "model_type": "mmada",
        "architectures": ["MMadaModelLM"],
        "d_model": sizes.d_model,
        "n_layers": sizes.n_layers,
        "n_heads": sizes.n_heads,
        "n_kv_heads": sizes.n_heads,
        "mlp_ratio": 4,
        "mlp_hidden_size": sizes.mlp_hidden_size,
        "rope_theta": sizes.rope_theta,
        "max_sequence_length": 4096,
        "vocab_size": rows,
        "embedding_size": rows,
        "new_vocab_size": rows,
        "llm_vocab_size": layouts.code_offset,
        "codebook_size": vq.codebook_size,
        "num_vq_tokens": (config.image_size // vq.downsample) ** 2,
        "num_new_special_tokens": 0,
        "mask_token_id": ids["mask"],
        "eos_token_id": ids["eos"],
        "pad_token_id": ids["eos"],
        "mask_policy": config.mask_policy,
        **BACKBONE,
    }


def _split(shares: dict[str, float], count: int) -> dict[str, int]:
    """Rows of each part, in the order of PARTS; the remainder goes to the largest share."""
    counts = {name: round(shares.get(name, 0.0) * count) for name in PARTS}
    largest = max(shares, key=lambda name: shares[name])
    counts[largest] += count - sum(counts.values())
    return counts


def old_policy(config: MaskedConfig) -> Policy:
    """The checkpoint to continue from."""
    return load_policy(
        config.model,
        vq=config.vq,
        image_size=config.image_size,
        max_prompt_length=config.max_prompt_length,
    )
