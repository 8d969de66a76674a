"""MMaDA checkpoints (Gen-Verse/MMaDA-8B-*): LLaDA's backbone with image codes in the vocabulary."""

from models.llada import KEYS, core_config, network, with_vocab_size

__all__ = ["IMAGE_CODES", "KEYS", "VISION_TOWER", "core_config", "network", "with_vocab_size"]

IMAGE_CODES = True
VISION_TOWER = False
