"""A policy: the network with its tokenizer, layouts and decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from mmrl.types import Canvas, Prompt
from models.image_tokenizers.magvit import MagvitV2, load_vq
from models.layouts.image_chat import ImageChat
from models.layouts.image_codes_chat import ImageCodesChat
from models.layouts.layout import Layout
from models.layouts.layout_config import MAX_COMPLETION_LENGTH, ImageFit
from models.layouts.mmada_rows import MmadaRows, token_ids
from models.layouts.text_layout import TextLayout
from models.layouts.text_to_image import MaskPolicy, TextToImage
from models.loading import FAMILIES, load_model, outline, read_config, save_model
from models.network.core import MaskedTokenModel
from models.network.vision import Vision
from models.source import find_directory


@dataclass
class Policy:
    """What samplers, estimators and the loop need of a model family.

    Attributes:
        model: the network, possibly wrapped (LoRA, distributed training).
        tokenizer: of the checkpoint.
        layouts: of each task, by the name prompts carry.
        network: the network itself, also when `model` is wrapped.
        keeping_pace: context around sampling, in which processes may call `model` differently
            often; set where they share one copy of its weights.
    """

    model: torch.nn.Module
    tokenizer: PreTrainedTokenizerBase
    layouts: Mapping[str, Layout]
    network: MaskedTokenModel
    keeping_pace: Callable[[], AbstractContextManager[None]] = nullcontext

    @property
    def mask_id(self) -> int:
        """Id of the mask token."""
        known = self.network.public_config.get("mask_token_id")
        return (
            token_ids(self.tokenizer, {"mask": "<|mdm_mask|>"})["mask"] if known is None else known
        )

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.network.device

    def fits(self, prompt: Prompt, length: int | None = None) -> bool:
        """Whether a prompt is short enough for its task.

        Args:
            prompt: of any task.
            length: response positions; None takes those of the task.

        Raises:
            ValueError: this checkpoint has no layout for its task, or that cannot take the prompt.
        """
        return self.layouts[self._task([prompt])].fits(prompt, length)

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> Canvas:
        """Canvases of B prompts of one task, on the policy's device, nothing written yet.

        Images that prompts show are looked at here, each once, without gradient.

        Args:
            prompts: of one task.
            length: response positions; None takes those of the task.

        Raises:
            ValueError: prompts of several tasks, of one this checkpoint has no layout for, or that
                are too long.
        """
        canvas = self.layouts[self._task(prompts)].canvas(prompts, length).to(self.device)
        if canvas.features is not None:
            with torch.no_grad():
                canvas.features = canvas.features.compute(self.model)
        return canvas

    def decode(self, canvas: Canvas, prompts: Sequence[Prompt]) -> Sequence[str | Image.Image]:
        """Completions of finished canvases."""
        return self.layouts[self._task(prompts)].decode(canvas)

    def save(
        self,
        directory: str | Path,
        dtype: str | None = None,
        state: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Write network and tokenizer as one public checkpoint directory; see `save_model`."""
        save_model(self.network, directory, dtype, state)
        self.tokenizer.save_pretrained(directory)

    def _task(self, prompts: Sequence[Prompt]) -> str:
        names = {prompt.task for prompt in prompts}
        if len(names) != 1 or not names <= self.layouts.keys():
            raise ValueError(
                f"prompts of tasks {sorted(names)}; one task at a time out of"
                f" {sorted(self.layouts)} is possible with this checkpoint"
            )
        return names.pop()


def load_policy(
    path_or_hub_id: str | Path,
    vq: str | Path | None = "showlab/magvitv2",
    dtype: str = "float32",
    device: str | torch.device = "cpu",
    max_prompt_length: int = 256,
    image_size: int | None = None,
    mask_policy: MaskPolicy | None = None,
    attn_implementation: str = "sdpa",
    max_completion_length: int = MAX_COMPLETION_LENGTH,
    chat_template: bool | None = None,
    train_vision_tower: bool = False,
    image_fit: ImageFit = "crop",
) -> Policy:
    """A checkpoint of a known family, ready for sampling and training.

    Every family writes text (task `text`), one with image codes also images (`text_to_image`), and
    one with image codes or a vision tower text about images (`image_to_text`).

    Args:
        path_or_hub_id: of the network and its tokenizer.
        vq: path or hub id of the MAGVIT-v2 image tokenizer; None for text only. A family without
            image codes never loads it.
        dtype: of the network; the image tokenizer stays float32.
        device: of both.
        max_prompt_length: longest prompt in tokens (M of the layouts); longer ones are cut for
            images and refused for text.
        image_size: side of the images in pixels; None follows `num_vq_tokens` of the checkpoint.
        mask_policy: `ignore` or `key_padding`; None follows the checkpoint's `mask_policy`, and
            `ignore` where it names none, as the public weights were trained.
        attn_implementation: `sdpa`, `eager`, or `auto`, see `models.network.attention`.
        max_completion_length: response positions of a text.
        chat_template: whether a text prompt goes through the chat template; None where there is
            one. Messages always do.
        train_vision_tower: whether the vision tower gets gradients; its projector always does.
        image_fit: how an image in a prompt becomes the square whose codes the network reads,
            `crop` or `squash`; a vision tower tiles images of any shape.

    Raises:
        FileNotFoundError, ValueError: see `load_model` and `load_vq`; also a checkpoint without a
            tokenizer, a vocabulary too small for the codes, or no vision tower to train.
    """
    directory = find_directory(path_or_hub_id)
    config, sizes = read_config(directory), outline(directory)
    check_tower(sizes, train_vision_tower)
    tokenizer = load_tokenizer(directory)
    layouts = MmadaRows(tokenizer, max_prompt_length)
    text = TextLayout(tokenizer, max_prompt_length, max_completion_length, chat_template)
    check_text(sizes, text)
    family, made = FAMILIES[config["model_type"]], dict[type[Layout], Layout]({TextLayout: text})
    if vq is not None and any(layout.needs_vq for layout in family.LAYOUTS.values()):
        images = load_vq(vq, device=str(device))
        grid = image_grid(config, images, image_size)
        policy = mask_policy or config.get("mask_policy", "ignore")
        made[TextToImage] = TextToImage(layouts, images, grid, policy)
        made[ImageCodesChat] = ImageCodesChat(text, layouts, images, grid, image_fit)
        check_vocabulary(sizes, layouts, images)
    if isinstance(sizes.vision, Vision):
        longest = config.get("tokenizer_model_max_length")
        made[ImageChat] = ImageChat(text, sizes.vision.tiling, longest)
    tasks = {name: made[layout] for name, layout in family.LAYOUTS.items() if layout in made}
    # last, because it takes longest: what is wrong with the rest is known by now
    network = load_model(directory, dtype, device, attn_implementation)
    if isinstance(network.vision, Vision):
        network.vision.train_tower(train_vision_tower)
    return Policy(network, tokenizer, tasks, network)


def load_tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint directory.

    Raises:
        FileNotFoundError: it has none; `load_model` loads the network alone.
        ValueError: it cannot be read.
    """
    if not (directory / "tokenizer.json").is_file():
        raise FileNotFoundError(
            f"{directory} holds no tokenizer.json; load_policy needs one, load_model does not"
        )
    try:
        return PreTrainedTokenizerFast.from_pretrained(directory)
    except Exception as error:  # tokenizers raises bare exceptions for files it cannot parse
        raise ValueError(
            f"the tokenizer of {directory} cannot be read ({error}); copy or download it again"
        ) from error


def image_grid(config: Mapping[str, Any], vq: MagvitV2, image_size: int | None) -> tuple[int, int]:
    """Height and width of an image in codes.

    Raises:
        ValueError: the size is no multiple of the patch, or the checkpoint's count is no square.
    """
    if image_size is not None:
        if image_size % vq.downsample:
            raise ValueError(f"image_size is {image_size}, no multiple of {vq.downsample}")
        return image_size // vq.downsample, image_size // vq.downsample
    count = config.get("num_vq_tokens", 1024)
    side = round(count**0.5)
    if side * side != count:
        raise ValueError(f"num_vq_tokens is {count}, no square; set image_size")
    return side, side


def check_tower(network: MaskedTokenModel, trained: bool) -> None:
    """Raise a ValueError where a vision tower is to be trained and there is none."""
    if trained and network.vision is None:
        raise ValueError(
            "train_vision_tower is true and the checkpoint has no vision tower; set it to false"
        )


def check_text(network: MaskedTokenModel, text: TextLayout) -> None:
    """Raise a ValueError unless the embedding has a row for every token of the tokenizer."""
    if text.vocab[1] > network.core.vocab_size:
        raise ValueError(
            f"the tokenizer has {text.vocab[1]} tokens and the checkpoint"
            f" {network.core.vocab_size} vocabulary rows: they do not belong together"
        )


def check_vocabulary(network: MaskedTokenModel, layouts: MmadaRows, vq: MagvitV2) -> None:
    """Raise a ValueError unless the embedding has a row for every code of the tokenizer."""
    needed = layouts.code_offset + vq.codebook_size
    if needed > network.core.vocab_size:
        raise ValueError(
            f"{vq.codebook_size} image codes from id {layouts.code_offset} need {needed} vocabulary"
            f" rows and the checkpoint has {network.core.vocab_size}: tokenizer, image tokenizer"
            " and network do not belong together"
        )
