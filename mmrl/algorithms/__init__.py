"""Algorithms: every published method is a row of one table.

    strategy x bound x ratio level x aggregation (+ KL, clip range, advantage scaling)

A preset in `configs/algorithm/<name>.yaml` is such a row with its paper and its deviations; a run
names it by `algorithm.name` and may override any column. One optimiser step by hand:

    passes = draw_passes(rollout, algorithm, generators)
    scores = score(policy, rollout.canvas, passes)
    size = count_batch(rollout, passes, algorithm)
    loss, metrics = policy_loss(LossInputs(passes, scores, advantages), algorithm, size)
"""

from mmrl.algorithms.advantages import group_advantages
from mmrl.algorithms.algorithm_config import AlgorithmConfig
from mmrl.algorithms.loss import LossInputs, count_batch, policy_loss
from mmrl.algorithms.presets import load_algorithm
