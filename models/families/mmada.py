"""MMaDA checkpoints (Gen-Verse/MMaDA-8B-*): LLaDA's backbone with image codes in the vocabulary."""

from __future__ import annotations

from models.families.llada import KEYS, core_config, network, with_vocab_size
from models.layouts.image_codes_chat import ImageCodesChat
from models.layouts.layout import Layout
from models.layouts.text_layout import TextLayout
from models.layouts.text_to_image import TextToImage

__all__ = ["KEYS", "LAYOUTS", "core_config", "network", "with_vocab_size"]

LAYOUTS: dict[str, type[Layout]] = {
    "image_to_text": ImageCodesChat,
    "text": TextLayout,
    "text_to_image": TextToImage,
}
"""What checkpoints can do, by the names that prompts carry, and the layout of each."""
