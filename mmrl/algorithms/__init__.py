"""Algorithms: every published method is a row of one table.

    mask strategy x bound x ratio level x aggregation (+ KL, clip range, advantage scaling)

A preset in `configs/algorithm/<name>.yaml` is such a row with its paper and its deviations; a run
names it by `algorithm.name` and may override any column.
"""

from typing import TYPE_CHECKING

from mmrl.algorithms.aggregation import BatchSize
from mmrl.algorithms.algorithm_config import AlgorithmConfig, load_algorithm
from mmrl.algorithms.combinations import follows_blocks, unread
from mmrl.algorithms.forwards import Forwards, forwards, passes_per_rollout
from mmrl.algorithms.value_config import ValueConfig
from mmrl.config.lazy_names import lazy_names

if TYPE_CHECKING:
    from mmrl.algorithms.advantages import (
        equal_groups,
        group_advantages,
        group_statistics,
        joint_advantages,
    )
    from mmrl.algorithms.gae import Estimates, at_end
    from mmrl.algorithms.loss import LossInputs, Weights, batch_weights, policy_loss
    from mmrl.algorithms.value import ValueInputs, appraise, value_loss

__all__ = [
    "AlgorithmConfig",
    "BatchSize",
    "Estimates",
    "Forwards",
    "LossInputs",
    "ValueConfig",
    "ValueInputs",
    "Weights",
    "appraise",
    "at_end",
    "batch_weights",
    "equal_groups",
    "follows_blocks",
    "forwards",
    "group_advantages",
    "group_statistics",
    "joint_advantages",
    "load_algorithm",
    "passes_per_rollout",
    "policy_loss",
    "unread",
    "value_loss",
]

__getattr__ = lazy_names(
    __name__,
    {
        "advantages": (
            "equal_groups",
            "group_advantages",
            "group_statistics",
            "joint_advantages",
        ),
        "gae": ("Estimates", "at_end"),
        "loss": ("LossInputs", "Weights", "batch_weights", "policy_loss"),
        "value": ("ValueInputs", "appraise", "value_loss"),
    },
)
