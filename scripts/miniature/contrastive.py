"""Training of a CLIP on pairs of image and caption, in open_clip's format.

    loss = (CE(s f g^T) + CE(s g f^T)) / 2

over the batch, with f, g the normalised features and s the learned scale (arXiv:2103.00020,
section 2.3). Two deviations. Captions that ask for the same thing are not negatives of each other:
their entries are excluded from the softmax. And each caption may have near misses, copies with one
word changed, which are negatives for its image only (arXiv:2210.01936); without them a CLIP learns
which objects an image shows but hardly which attribute belongs to which. With several processes
each uses the negatives of its own batch.
"""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoTokenizer

from mmrl.config import import_extra
from mmrl.data.stream import stream_positions, stream_rows
from mmrl.randomness import generator
from scripts.miniature.captions import draw_near_miss, load_captions
from scripts.miniature.columns import ImageRows
from scripts.miniature.contrastive_config import ContrastiveConfig

MAX_SCALE = 100.0
SIZES = "open_clip_config.json"


class PairBatch(NamedTuple):
    """Images and captions of one micro-batch of B pairs.

    Attributes:
        pixels: [B, 3, H, W] float32 in [-1, 1].
        tokens: [B + M, T] int64, the captions and then M near misses.
        request: [B] int64, equal where captions ask for the same thing.
        owner: [M] int64, the pair each near miss belongs to.
    """

    pixels: Tensor
    tokens: Tensor
    request: Tensor
    owner: Tensor


class Contrastive:
    """Symmetric contrastive loss of a new open_clip model on a parquet of pairs."""

    Config = ContrastiveConfig

    def __init__(self, config: ContrastiveConfig, seed: int, batch_size: int) -> None:
        self.config, self.seed, self.batch_size = config, seed, batch_size
        sizes = read_sizes(config.network)
        self.images = ImageRows(config.data, sizes["vision_cfg"]["image_size"])
        self.length = sizes["text_cfg"]["context_length"]
        self.captions, keys = load_captions(config.data)
        number = {key: n for n, key in enumerate(dict.fromkeys(keys))}
        self.request = [number[key] for key in keys]
        self.tokenizer = AutoTokenizer.from_pretrained(config.network)
        self.module = new_clip(config.network, seed)

    @staticmethod
    def outline(config: ContrastiveConfig) -> tuple[nn.Module | None, str]:
        """The towers without weights, and how many pairs there are."""
        count = len(load_captions(config.data)[0])
        with torch.device("meta"):
            return new_clip(config.network, 0), f"{count} pairs of {config.data}"

    def batch(self, step: int, rank: int, world_size: int) -> PairBatch:
        """Return `batch_size` pairs with their near misses."""
        places = stream_positions(step, rank, world_size, self.batch_size)
        rows = stream_rows(self.seed, places, len(self.captions))
        return self._pairs(rows, list(places))

    def loss(self, batch: PairBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss, how often the right caption ranks first, and the scale."""
        per_image, per_text, scale = self._logits(batch)
        target = torch.arange(len(batch.pixels), device=per_image.device)
        loss = (F.cross_entropy(per_image, target) + F.cross_entropy(per_text, target)) / 2
        first = (per_image.argmax(dim=1) == target).float().mean()
        return loss, {"caption_first": first.detach(), "scale": scale.detach()}

    def save(self, directory: Path) -> None:
        """Write architecture, weights and tokenizer as open_clip's `local-dir:` reads them."""
        for name in (SIZES, "tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(Path(self.config.network) / name, directory / name)
        dtype, state = getattr(torch, self.config.save_dtype), self.module.state_dict()
        weights = {name: w.to(dtype).contiguous().cpu() for name, w in state.items()}
        save_file(weights, directory / "open_clip_model.safetensors")

    def evaluate(self, directory: Path, step: int) -> dict[str, float]:
        """Rank the captions of the first pairs for each of their images."""
        rows = list(range(min(self.config.eval_pairs, len(self.captions))))
        batch = self._pairs(rows, rows)
        loss, metrics = self.loss(batch)
        return {"eval/loss": float(loss), "eval/caption_first": float(metrics["caption_first"])}

    def _pairs(self, rows: list[int], places: list[int]) -> PairBatch:
        captions = [self.captions[row] for row in rows]
        misses, owner = [], []
        for n, (caption, place) in enumerate(zip(captions, places, strict=True)):
            draws = generator(self.seed, "near miss", place)
            for _ in range(self.config.near_misses):
                miss = draw_near_miss(caption, self.config.replace, self.config.swap, draws)
                if miss is not None:
                    misses.append(miss)
                    owner.append(n)
        tokens = self.tokenizer(
            captions + misses,
            max_length=self.length,
            padding="max_length",
            truncation=True,
            return_tensors="pt",
        ).input_ids
        request = torch.tensor([self.request[row] for row in rows])
        owners = torch.tensor(owner, dtype=torch.long)
        return PairBatch(self.images.pixels(rows), tokens, request, owners)

    def _logits(self, batch: PairBatch) -> tuple[Tensor, Tensor, Tensor]:
        device = next(self.module.parameters()).device
        pixels, tokens, request, owner = (tensor.to(device) for tensor in batch)
        # The fused CPU kernel's backward takes several times as long on rows this short.
        with sdpa_kernel(SDPBackend.MATH) if device.type == "cpu" else nullcontext():
            images, texts, scale = self.module(pixels, tokens)  # [B, D], [B + M, D]
        images, texts, scale = images.float(), texts.float(), scale.float().clamp(max=MAX_SCALE)
        logits = scale * images @ texts.T
        excluded = torch.cat(
            [mask_same_request(request), mask_near_misses(owner, len(pixels))], dim=1
        )
        per_image = logits.masked_fill(excluded, -torch.inf)
        return per_image, per_image[:, : len(pixels)].T, scale


def read_sizes(network: str) -> dict[str, Any]:
    """The keyword arguments of open_clip's `CLIP` for a network of these sizes."""
    return json.loads((Path(network) / SIZES).read_text(encoding="utf-8"))["model_cfg"]


def new_clip(network: str, seed: int) -> nn.Module:
    """Build an open_clip model with new weights that depend on the seed only."""
    open_clip = import_extra("open_clip", "clip")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return open_clip.CLIP(**read_sizes(network))


def mask_same_request(request: Tensor) -> Tensor:
    """[B, B] bool, True where two different pairs ask for the same thing, from [B] int64."""
    same = request[:, None] == request[None, :]
    return same & ~torch.eye(len(request), dtype=torch.bool, device=request.device)


def mask_near_misses(owner: Tensor, count: int) -> Tensor:
    """[count, M] bool, True where near miss m does not belong to the pair, from [M] int64."""
    return owner[None, :] != torch.arange(count, device=owner.device)[:, None]
