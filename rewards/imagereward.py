"""ImageReward (Xu et al. 2023, arXiv:2304.05977), without its package.

    score = (layers(BLIP(image, prompt)) - 0.16717) / 1.03334

BLIP's text encoder reads the prompt and attends to the states of its ViT-L/16 of the image; its
first state goes through five layers (`build_score_layers`). The score is raw, about -2 to 2, mean
0 and deviation 1 over the authors' data; UniRL shows (score + 2) / 4 (`scale: 0.25`, `offset:
0.5`). The image is prepared as published: shortest side to 224 (bicubic), centre crop, OpenAI's
mean and deviation; the prompt is cut and padded to 35 tokens of BERT's lower-case vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from PIL import Image

from mmrl.config import import_extra
from mmrl.rewards.networks.checkpoints import find_checkpoint, load_part, read_weights
from mmrl.rewards.networks.placement import NetworkOptions
from mmrl.rewards.parsing.images import OPENAI_MEAN, OPENAI_STD, image_of, keep_tensor_steps
from mmrl.types import Sample

if TYPE_CHECKING:
    from torch import Tensor

FILE = "ImageReward.pt"
CONTEXT = 35


@dataclass(kw_only=True, eq=False)
class ImageRewardReward(NetworkOptions):
    """Human preference for an image given its prompt."""

    where: ClassVar[str] = "imagereward"
    needs: ClassVar[tuple[str, ...]] = ("prompt", "images")

    checkpoint: str = "THUDM/ImageReward"
    """Hub id or directory with `ImageReward.pt`, or the file itself."""
    tokenizer: str = "google-bert/bert-base-uncased"
    """Hub id or directory of BERT's tokenizer."""
    batch_size: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        transforms = import_extra("torchvision.transforms", "clip")
        from transformers import AutoTokenizer

        from mmrl.rewards.networks.imagereward_network import build_network

        path = find_checkpoint(self.checkpoint, FILE, "imagereward.checkpoint")
        self._words = load_part(AutoTokenizer, self.tokenizer, "imagereward.tokenizer")
        weights = read_weights(path, "imagereward.checkpoint")
        network = build_network(weights, f"imagereward.checkpoint {path}")
        side = network.vision.config.image_size
        self._transform: Callable[[Image.Image], Tensor] = transforms.Compose(
            [
                transforms.Resize(side, transforms.InterpolationMode.BICUBIC),
                transforms.CenterCrop(side),
                transforms.ToTensor(),
                transforms.Normalize(OPENAI_MEAN, OPENAI_STD),
            ]
        )
        self._prepare = keep_tensor_steps(self._transform)
        self._network = self.freeze(network)

    def score_pixels(self, pixels: Sequence[Tensor], samples: list[Sample]) -> Tensor:
        """See `mmrl.rewards.registry.interface.Differentiable`."""
        import torch

        inputs = torch.stack([self._prepare(each.to(self.place)) for each in pixels])
        text = self._read([sample.prompt for sample in samples])
        with self.autocast():
            features = self._network.features(inputs, *(each.to(self.place) for each in text))
        return self._network.score(features)

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Raw scores."""
        shown = [(image_of(sample, self.where), sample.prompt) for sample in samples]
        return [score for part in self.split(shown) for score in self._score(part)]

    def _score(self, part: Sequence[tuple[Image.Image, str]]) -> list[float]:
        import torch

        pixels = torch.stack([self._transform(image) for image, _ in part])
        inputs = map(self.fill_up, (pixels, *self._read([prompt for _, prompt in part])))
        with torch.no_grad():
            with self.autocast():
                features = self._network.features(*inputs)
            return self._network.score(features)[: len(part)].tolist()

    def _read(self, prompts: list[str]) -> tuple[Tensor, Tensor]:
        """Tokens of prompts and where they are, [n, CONTEXT] each."""
        text = self._words(
            prompts, padding="max_length", truncation=True, max_length=CONTEXT, return_tensors="pt"
        )
        return text["input_ids"], text["attention_mask"]
