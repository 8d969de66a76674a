"""Corruptions of completions for supervised training, by the name used in configurations."""

from mmrl.objectives.corruptions.block import BlockMasking
from mmrl.objectives.corruptions.left_to_right import LeftToRight
from mmrl.objectives.corruptions.random_masking import RandomMasking
from mmrl.objectives.corruptions.semi_ar import SemiAR
from mmrl.objectives.corruptions.trace import Trace

CORRUPTIONS = {
    "random": RandomMasking,
    "semi_ar": SemiAR,
    "block": BlockMasking,
    "trace": Trace,
    "left_to_right": LeftToRight,
}
