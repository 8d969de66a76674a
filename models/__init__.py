"""Masked-token models: one core, families of public checkpoints, and image tokenizers."""

from typing import TYPE_CHECKING

from mmrl.config.lazy_names import lazy_names

if TYPE_CHECKING:
    from models.image_tokenizers.image_tokenizer import load_vq
    from models.loading import load_model, save_model
    from models.policy import Policy, load_policy

__all__ = ["Policy", "load_model", "load_policy", "load_vq", "save_model"]

__getattr__ = lazy_names(
    __name__,
    {
        "image_tokenizers.image_tokenizer": ["load_vq"],
        "loading": ["load_model", "save_model"],
        "policy": ["Policy", "load_policy"],
    },
)
