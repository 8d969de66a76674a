"""How the log-probs of an engine that sampled differ from the trainer's, and the correction."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from accelerate.utils import gather_object

from mmrl.algorithms.importance_sampling import Mismatch, importance_weights
from mmrl.engines.engine import EngineError
from mmrl.generation.causal.engine_config import EngineConfig
from mmrl.types import Scores

if TYPE_CHECKING:
    from mmrl.models import Policy
    from mmrl.training.micro_batches import Prepared


def correct(item: Prepared, rows: slice, old: Scores, engine: EngineConfig | None) -> None:
    """Compare the log-probs of the next micro-batch by the engine, if one sampled, with those of
    the policy as it sampled, and weigh its terms by them."""
    if engine is None:
        return
    scored, mode = item.passes[rows].scored, engine.importance_sampling_mode
    sampled = item.batch.rollout.logprobs[rows]
    band = engine.importance_sampling_clip_min, engine.importance_sampling_clip_max
    kind = "token_mask" if mode == "none" else mode
    weights = importance_weights(old.logprobs, sampled, scored, kind, *band)
    item.mismatch.add(old.logprobs, sampled, scored, weights)
    if mode != "none":
        item.corrections.append(weights)


def compare_engines(items: Sequence[Prepared], policy: Policy) -> dict[str, float]:
    """Metrics of the differences, named as in TRL, and of the age of the rollouts, over all
    processes. Raises EngineError: the engine differs too much."""
    metrics = {}
    for task, engine in {i.task.name: (i.task, i.task.config.engine) for i in items}.values():
        if engine is None:
            continue
        own = [item for item in items if item.task is task and item.iteration == 0]
        found = Mismatch.merge(gather_object([item.mismatch for item in own]))
        known = [item.batch.rollout.versions for item in own]
        versions = gather_object([v for each in known if each is not None for v in each.tolist()])
        metrics |= found.metrics()
        metrics["sampling/queue"] = float(sum(gather_object([policy.engine.waiting])))
        metrics["sampling/staleness"] = policy.version - fmean(versions)
        metrics["time/engine_update_s"] = policy.engine.seconds
        limit = engine.max_logp_difference
        if found.mean > limit:
            raise EngineError(
                f"log-probs of engine and trainer differ by {found.mean:.3g} per token"
                f" ({found.largest:.3g} at most), more than"
                f" tasks.{task.name}.sampler.max_logp_difference, {limit:g}. Compare their"
                " precision, sampler.temperature with algorithm.temperature, and whether the"
                " engine reports processed log-probs."
            )
    return metrics
