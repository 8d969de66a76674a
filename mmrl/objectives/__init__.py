"""Objectives of supervised training, by the name used in configurations."""

from mmrl.objectives.contrastive import Contrastive
from mmrl.objectives.masked import Masked
from mmrl.objectives.reconstruction import Reconstruction
from mmrl.objectives.text import Completions

OBJECTIVES = {
    "contrastive": Contrastive,
    "masked": Masked,
    "reconstruction": Reconstruction,
    "text": Completions,
}
