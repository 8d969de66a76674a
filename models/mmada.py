"""MMaDA checkpoints (Gen-Verse/MMaDA-8B-*): LLaDA's backbone with image codes in the vocabulary."""

from __future__ import annotations

from models.image_codes_chat import ImageCodesChat
from models.llada import KEYS, core_config, network, with_vocab_size
from models.task import Task
from models.text import Text
from models.text_to_image import TextToImage

__all__ = ["KEYS", "TASKS", "core_config", "network", "with_vocab_size"]

TASKS: dict[str, type[Task]] = {
    "image_to_text": ImageCodesChat,
    "text": Text,
    "text_to_image": TextToImage,
}
"""What checkpoints can do, by the names that prompts carry, and the layout of each."""
