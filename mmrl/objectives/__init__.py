"""Objectives of supervised training, by the name used in configurations."""

from mmrl.objectives.contrastive import Contrastive
from mmrl.objectives.masked import Masked
from mmrl.objectives.reconstruction import Reconstruction

OBJECTIVES = {"contrastive": Contrastive, "masked": Masked, "reconstruction": Reconstruction}
