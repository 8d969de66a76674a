"""Masked-token models: one core, adapters for the public checkpoints, and MAGVIT-v2."""

from models.checkpoint import load_model, save_model
from models.magvit import load_vq
from models.policy import Policy, load_policy

__all__ = ["Policy", "load_model", "load_policy", "load_vq", "save_model"]
