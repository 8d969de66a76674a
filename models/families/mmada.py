"""MMaDA checkpoints (Gen-Verse/MMaDA-8B-*): LLaDA's backbone with image codes in the vocabulary."""

from __future__ import annotations

from models.families.llada import KEYS, core_config, network, with_vocab_size
from models.layouts.image_codes_chat import ImageCodesChat
from models.layouts.text import Text
from models.layouts.text_to_image import TextToImage
from models.task import Task

__all__ = ["KEYS", "TASKS", "core_config", "network", "with_vocab_size"]

TASKS: dict[str, type[Task]] = {
    "image_to_text": ImageCodesChat,
    "text": Text,
    "text_to_image": TextToImage,
}
"""What checkpoints can do, by the names that prompts carry, and the layout of each."""
