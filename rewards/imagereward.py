"""ImageReward (Xu et al. 2023, arXiv:2304.05977), without its package.

    score = (layers(BLIP(image, prompt)) - 0.16717) / 1.03334

BLIP's text encoder reads the prompt and attends to the states of its ViT-L/16 of the image; its
first state goes through `rewards.networks.score_layers`. The score is raw, about -2 to 2, mean 0
and deviation 1 over the authors' data; UniRL shows (score + 2) / 4 (`scale: 0.25`, `offset: 0.5`).
The image is prepared as published: shortest side to 224 (bicubic), centre crop, OpenAI's mean and
deviation; the prompt is cut and padded to 35 tokens of BERT's lower-case vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

from PIL import Image

from mmrl.config import check, import_extra
from mmrl.types import Sample
from rewards.networks.checkpoints import find_checkpoint, read_weights
from rewards.networks.dual_encoder import fill_up
from rewards.networks.placement import resolve_device, resolve_dtype
from rewards.networks.pretrained import load_part
from rewards.parsing.images import OPENAI_MEAN, OPENAI_STD, image_of

if TYPE_CHECKING:
    from torch import Tensor

FILE = "ImageReward.pt"
CONTEXT = 35


class ImageRewardReward:
    """Human preference for an image given its prompt.

    Args:
        checkpoint: hub id or directory holding `ImageReward.pt`, or the file itself.
        tokenizer: hub id or directory of BERT's tokenizer.
        device: "auto", or a torch device.
        dtype: precision of the encoders; the layers of the score are float32.
        batch_size: images scored at once.
        fill: batches are filled up to multiples of this, see `DualEncoder`.

    Raises:
        FileNotFoundError, ValueError: checkpoint or tokenizer do not exist, cannot be read or do
            not belong together; NotHereError where they are to come from the hub.
    """

    scale: ClassVar[str] = "about -2 to 2, unbounded"
    needs: ClassVar[tuple[str, ...]] = ("prompt", "images")

    def __init__(
        self,
        checkpoint: str = "THUDM/ImageReward",
        tokenizer: str = "google-bert/bert-base-uncased",
        device: str = "auto",
        dtype: Literal["float32", "bfloat16", "float16"] = "float32",
        batch_size: int = 16,
        fill: int = 8,
    ) -> None:
        check(batch_size >= 1, "imagereward.batch_size", batch_size, "at least 1")
        check(fill >= 1, "imagereward.fill", fill, "at least 1")
        transforms = import_extra("torchvision.transforms", "clip")
        from transformers import AutoTokenizer

        from rewards.networks.imagereward_network import network_of

        path = find_checkpoint(checkpoint, FILE, "imagereward.checkpoint")
        self.tokenizer = load_part(AutoTokenizer, tokenizer, "imagereward.tokenizer")
        weights = read_weights(path, "imagereward.checkpoint")
        network = network_of(weights, f"imagereward.checkpoint {path}")
        check(
            len(self.tokenizer) <= network.text.config.vocab_size,
            "imagereward.tokenizer",
            tokenizer,
            f"of at most the {network.text.config.vocab_size} words of the checkpoint",
        )
        side = network.vision.config.image_size
        self.transform: Callable[[Image.Image], Tensor] = transforms.Compose(
            [
                transforms.Resize(side, transforms.InterpolationMode.BICUBIC),
                transforms.CenterCrop(side),
                transforms.ToTensor(),
                transforms.Normalize(OPENAI_MEAN, OPENAI_STD),
            ]
        )
        self.device, self.dtype = resolve_device(device), resolve_dtype(dtype)
        self.network = network.to(self.device).eval().requires_grad_(False)
        self.batch_size, self.fill = batch_size, fill

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Raw scores.

        Raises:
            ValueError: a completion is not an image.
        """
        import torch

        images = [image_of(sample, "imagereward") for sample in samples]
        scores: list[float | None] = []
        for start in range(0, len(samples), self.batch_size):
            part = slice(start, start + self.batch_size)
            pixels = torch.stack([self.transform(image) for image in images[part]])
            with torch.no_grad():
                scores += self._scores(pixels, [sample.prompt for sample in samples[part]])
        return scores

    def _scores(self, pixels: Tensor, prompts: list[str]) -> list[float]:
        import torch

        text = self.tokenizer(
            prompts, padding="max_length", truncation=True, max_length=CONTEXT, return_tensors="pt"
        )
        inputs = (pixels, text["input_ids"], text["attention_mask"])
        inputs = [fill_up(rows, self.fill).to(self.device) for rows in inputs]
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            features = self.network.features(*inputs)
        return self.network.score(features)[: len(prompts)].tolist()
