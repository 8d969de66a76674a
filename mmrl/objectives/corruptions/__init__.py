"""Corruptions of completions for supervised training, by the name used in configurations."""

from mmrl.objectives.corruptions.block import BLOCK
from mmrl.objectives.corruptions.corruption import Corruption
from mmrl.objectives.corruptions.left_to_right import LEFT_TO_RIGHT
from mmrl.objectives.corruptions.random_masking import RANDOM
from mmrl.objectives.corruptions.semi_ar import SEMI_AR
from mmrl.objectives.corruptions.trace import TRACE

CORRUPTIONS: dict[str, Corruption] = {
    "random": RANDOM,
    "semi_ar": SEMI_AR,
    "block": BLOCK,
    "trace": TRACE,
    "left_to_right": LEFT_TO_RIGHT,
}
