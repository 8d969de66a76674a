"""Mixed masked-token training, as MMaDA's pre-training: text to image, image to text, text.

Each part of a batch is corrupted in its own way. Its loss is a mean of cross-entropies at the
masked positions, weighted by the configuration:

    text_to_image   max(1, round(n cos(pi u / 2))) image positions masked; mean CE over them
    image_edit      the same of the edited image
    image_to_text   each answer token masked with p = (1 - eps) t + eps; sum CE / p / answer length
    text            each token masked with p; sum CE / p / length

with u, t uniform in [0, 1) per row and eps = 1e-3 (MMaDA, arXiv 2505.15809; LLaDA, 2502.09992).
Texts are the captions of the images; `questions` and `completions` replace them by answers, laid
out as they are sampled and with the loss of `mmrl.objectives.text`.
Deviations from the public training script: image logits are normalised over the image codes only,
the distribution that samplers and RL use, and the visible frame tokens carry no loss; padding left
of an image prompt is really masked when the checkpoint says `mask_policy: key_padding`.
"""

import math

import torch
from torch import Generator, Tensor, nn

from mmrl.config import check
from mmrl.data.images import LazyImage
from mmrl.data.stream import stream_positions
from mmrl.models.families import mmada
from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer, load_vq
from mmrl.models.layouts.layout_config import LayoutConfig
from mmrl.models.layouts.text_to_image import TextToImage
from mmrl.models.policy import Policy
from mmrl.objectives.answer_layouts import AnswerLayouts, ImageCodes
from mmrl.objectives.image_pairs import Pair, describe_pairs, open_pairs
from mmrl.objectives.options import PARTS, MaskedConfig
from mmrl.objectives.policy_start import (
    Items,
    PolicyObjective,
    choose_trained,
    outline_policy,
    outline_tokenizer,
)
from mmrl.objectives.scored_rows import Rows, build_rows, compute_loss
from mmrl.objectives.text_source import Source, describe_source
from mmrl.pretrained.known import find_here
from mmrl.randomness import generator, stable_seed

EPS = 1e-3
INSTRUCTION = "describe the image"
"""User turn of the image-to-text part."""


class Masked(PolicyObjective[MaskedConfig]):
    """The mixed masked-token loss of a MMaDA-type network."""

    Config = MaskedConfig

    def _build(self, device: torch.device | str, deferred: bool) -> None:
        config, seed = self.config, self.seed
        self.data: dict[str, Items] = {"": open_pairs(config, seed)}
        if config.edits is not None:
            self.data["image_edit"] = open_pairs(config.edits, stable_seed(seed, "image_edit"))
        self.policy = outline_start(config, load_vq(config.vq, device=str(device)))
        network = self.load_start(device, deferred)
        task = self.policy.layouts["text_to_image"]
        assert isinstance(task, TextToImage) and isinstance(task.rows, mmada.MmadaRows)
        self.rows, self.task = task.rows, task
        layouts = AnswerLayouts(self.policy, config.encode_batch_size)
        self.sources = {
            part: Source(source, layouts, stable_seed(seed, part))
            for part, source in config.sources.items()
        }
        self.data |= {part: source.rows for part, source in self.sources.items()}
        self.codes = ImageCodes(task.vq, config.image_size, "crop", config.encode_batch_size)
        self.vocabs = dict.fromkeys(self.sources, layouts.text.vocab)
        self.vocabs["text_to_image"] = self.vocabs["image_edit"] = task.vocab
        choose_trained(network, config, seed)
        self.module = network

    @staticmethod
    def outline(config: MaskedConfig) -> tuple[nn.Module | None, str]:
        """The network without weights, and how many pairs and answers there are."""
        said = [describe_pairs(each) for each in (config, config.edits) if each is not None]
        if find_here("objective.model", config.model) is None:
            return None, ", ".join(said)
        policy = outline_start(config, outline_tokenizer(config.vq))
        choose_trained(policy.network, config)
        layouts = AnswerLayouts(policy, config.encode_batch_size)
        said += [describe_source(source, layouts) for source in config.sources.values()]
        return policy.network, ", ".join(said)

    def encode(self, images: list[LazyImage]) -> Tensor:
        """[len(images), n] int64, the image-code token ids of training images."""
        return self.codes.encode(images) + self.rows.code_offset

    def batch(self, step: int, rank: int, world_size: int) -> dict[str, Rows]:
        """This rank's rows of micro-batch `step`, corrupted, part by part."""
        where = step, rank, world_size
        pairs = self.data[""].take(stream_positions(*where, self.batch_size))
        draw = generator(self.seed, "corruption", *where)
        corrupt = {
            "text_to_image": self._image,
            "image_to_text": self._image_to_text,
            "text": self._text,
            "image_edit": self._image,
        }
        parts = {}
        for name, count in split_batch(self.config.shares, len(pairs)).items():
            mine, pairs = pairs[:count], pairs[count:]
            if mine and name in self.sources:
                parts[name] = self.sources[name].batch(*where, len(mine))
            elif mine:
                if name == "image_edit":
                    mine = self.data[name].take(stream_positions(*where, len(mine)))
                parts[name] = corrupt[name](mine, draw)
        return parts

    def loss(self, batch: dict[str, Rows]) -> tuple[Tensor, dict[str, Tensor]]:
        """Weighted sum of the parts' losses, and each of them."""
        device = self.policy.device
        total, metrics = torch.zeros((), device=device), {}
        for part, rows in batch.items():
            value = compute_loss(
                self.module, self.policy.network, rows.to(device), self.vocabs.get(part)
            )
            metrics[f"loss/{part}"] = value.detach()
            total = total + self.config.weights.get(part, 1.0) * value
        return total, metrics

    def _image(self, pairs: list[Pair], draw: Generator) -> Rows:
        """Rows that end with an image, some codes of which are masked; of edits with the source
        image. Those without text or without source image are branches of guidance."""
        befores = [pair.source for pair in pairs if pair.source is not None]
        images = [*befores, *(pair.image for pair in pairs)]
        *sources, codes = self.encode(images).split(len(pairs))
        draws = torch.rand(1 + len(sources), len(pairs), generator=draw)
        dropped, shown = (draws < self.config.cond_dropout_prob).tolist(), None
        if sources:
            pieces = zip(dropped[1], sources[0].unflatten(1, self.task.grid), strict=True)
            shown = [[] if gone else [own] for gone, own in pieces]
        texts = [pair.text for pair in pairs]
        ids, mask = self.rows.text_to_image(texts, codes, dropped[0], shown)
        attend, n = None, codes.shape[1]
        if self.task.mask_policy == "key_padding":
            first = int(mask.any(0).int().argmax())
            ids, attend = ids[:, first:], mask[:, first:].bool()
        hidden = torch.zeros_like(ids, dtype=torch.bool)
        hidden[:, -n - 1 : -1] = draw_cosine_mask(len(ids), n, draw, self.config.min_mask_rate)
        return self._mask(ids, hidden, hidden / hidden.sum(), attend)

    def _image_to_text(self, pairs: list[Pair], draw: Generator) -> Rows:
        messages = [{"role": "user", "content": INSTRUCTION}]
        asked = self.policy.tokenizer.apply_chat_template(messages, tokenize=False)
        turns = [f"{asked}{pair.text}" for pair in pairs]
        ids, prompt = self.rows.image_to_text(turns, self.encode([pair.image for pair in pairs]))
        return self._mask_answers(ids, prompt == 0, draw)

    def _text(self, pairs: list[Pair], draw: Generator) -> Rows:
        length = self.config.max_prompt_length
        ids, _ = self.rows.language([pair.text for pair in pairs], length)
        return self._mask_answers(ids, torch.ones_like(ids, dtype=torch.bool), draw)

    def _mask_answers(self, ids: Tensor, answer: Tensor, draw: Generator) -> Rows:
        rate = (1 - EPS) * torch.rand(len(ids), 1, generator=draw) + EPS
        hidden = answer & (torch.rand(ids.shape, generator=draw) < rate)
        return self._mask(ids, hidden, hidden / rate / answer.sum(1, keepdim=True) / len(ids))

    def _mask(
        self, ids: Tensor, hidden: Tensor, weight: Tensor, attend: Tensor | None = None
    ) -> Rows:
        return build_rows(torch.where(hidden, self.policy.mask_id, ids), ids, weight, attend)


def outline_start(config: MaskedConfig, vq: ImageTokenizer) -> Policy:
    """The policy without weights. Raises ConfigError: of a checkpoint that has not the rows of all
    parts, see `outline_policy`."""
    length, size = config.max_prompt_length, config.image_size
    policy = outline_policy(config, LayoutConfig(max_prompt_length=length, image_size=size), vq)
    task = policy.layouts.get("text_to_image")
    fits = isinstance(getattr(task, "rows", None), mmada.MmadaRows) and "text" in policy.layouts
    allowed = "a checkpoint of MMaDA's type, whose rows of images are learned"
    advice = "objective.name: text trains others, on texts and answers."
    check(fits, "objective.model", config.model, allowed, advice)
    return policy


def draw_cosine_mask(rows: int, length: int, draw: Generator, low: float = 0.0) -> Tensor:
    """[rows, length] bool with exactly max(1, round(length max(low, cos(pi u / 2)))) True entries a
    row."""
    rate = torch.cos(torch.rand(rows, 1, generator=draw) * math.pi / 2).clamp(min=low)
    count = (length * rate).round().clamp(min=1)
    return torch.rand(rows, length, generator=draw).argsort(1) < count


def split_batch(shares: dict[str, float], count: int) -> dict[str, int]:
    """Rows of each part, in the order of PARTS; the remainder goes to the largest share."""
    counts = {name: round(shares.get(name, 0.0) * count) for name in PARTS}
    largest = max(shares, key=lambda name: shares[name])
    counts[largest] += count - sum(counts.values())
    return counts
