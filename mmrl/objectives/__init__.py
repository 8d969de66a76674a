"""Objectives of supervised training, by the name used in configurations.

A new one is a file with its class, one with its options, and a line here.
"""

from importlib import import_module
from typing import Any, NamedTuple

from mmrl.objectives.masked_config import MaskedConfig
from mmrl.objectives.miniature.contrastive_config import ContrastiveConfig
from mmrl.objectives.miniature.reconstruction_config import ReconstructionConfig
from mmrl.objectives.text_config import CompletionConfig


class ObjectiveEntry(NamedTuple):
    """An objective: its options, and its class as `module:name`, imported when it is asked for."""

    Config: type[Any]
    path: str

    def load(self) -> type[Any]:
        """The class, see `mmrl.objectives.objective.Objective`."""
        module, _, name = self.path.partition(":")
        return getattr(import_module(module), name)


OBJECTIVES = {
    "contrastive": ObjectiveEntry(
        ContrastiveConfig, "mmrl.objectives.miniature.contrastive:Contrastive"
    ),
    "masked": ObjectiveEntry(MaskedConfig, "mmrl.objectives.masked:Masked"),
    "reconstruction": ObjectiveEntry(
        ReconstructionConfig, "mmrl.objectives.miniature.reconstruction:Reconstruction"
    ),
    "text": ObjectiveEntry(CompletionConfig, "mmrl.objectives.text:Completions"),
}
