"""Corruptions of completions for supervised training, by the name used in configurations."""

from mmrl.objectives.corruptions.corruption import Corruption
from mmrl.objectives.corruptions.masking import BLOCK, RANDOM, SEMI_AR
from mmrl.objectives.corruptions.ordered import LEFT_TO_RIGHT, TRACE

CORRUPTIONS: dict[str, Corruption] = {
    "random": RANDOM,
    "semi_ar": SEMI_AR,
    "block": BLOCK,
    "trace": TRACE,
    "left_to_right": LEFT_TO_RIGHT,
}
