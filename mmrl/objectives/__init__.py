"""Objectives of supervised training, by the name used in configurations."""

from mmrl.objectives.reconstruction import Reconstruction

OBJECTIVES = {"reconstruction": Reconstruction}
