"""Samplers: what writes the canvases of a policy, whatever their kind of generation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from mmrl.config import check_choice, one_of
from mmrl.config.chosen import Chosen
from mmrl.generation.generation import Place
from mmrl.generation.kinds import GENERATIONS, SAMPLERS
from mmrl.types import Canvas, Rollout
from mmrl.types.guidance import Guidance

if TYPE_CHECKING:
    from torch import Generator

    from mmrl.models import Policy


@dataclass(kw_only=True)
class SamplerConfig(Chosen):
    """Settings of a sampler: those of `Sampler.Config` of the one that is named."""

    CHOICES = {"name": SAMPLERS}
    where: ClassVar[str] = "sampler"

    name: Annotated[str, one_of(SAMPLERS)] = "emerge"
    """What writes completions."""

    @property
    def guidance(self) -> Guidance:
        """The scales of guidance."""
        scales = ("cfg_scale", "image_guidance_scale")
        return Guidance(*(getattr(self, scale, 0.0) for scale in scales))


def check_sampler(config: SamplerConfig, where: str = "sampler", length: int | None = None) -> None:
    """Refuse a sampler, whose single values are checked already, that cannot run, for so many
    actions of a rollout where that is known; `where` is its dotted key. Raises ConfigError:
    settings that do not go together, or not with the length."""
    SAMPLERS[config.name].check(config, config.name, where, length)


def count_steps(config: SamplerConfig, length: int) -> int:
    """The most steps in which rows of `length` actions are written."""
    return SAMPLERS[config.name].count_steps(config, length)


def count_actions(config: SamplerConfig, length: int) -> int:
    """The most of these steps that have log-probs."""
    return (SAMPLERS[config.name].count_actions or count_steps)(config, length)


def sample(
    policy: Policy,
    canvas: Canvas,
    config: SamplerConfig,
    generator: Generator | Sequence[Generator],
    size: int | None = None,
    place: Place | None = None,
) -> Rollout:
    """Write what a canvas of B rows leaves open; it is not changed.

    `generator` is one per row, or one from which a generator per row is seeded; `size` the rows
    that are computed at once where rows that end give their places to others, see
    `Sampler.can_refill`, None computes all at once; `place` that of the rows in a run, None takes
    each as a group.

    Returns the finished canvas with its trace and the log-prob of each action when it was taken.
    Raises ConfigError: a sampler of another kind than the canvas, or one that cannot run. Raises
    ValueError: guidance on a canvas without an unconditional branch, or a number of generators that
    is not that of the rows."""
    check_choice("sampler.name", config.name, GENERATIONS[canvas.kind].samplers)
    check_sampler(config)
    rollout = SAMPLERS[config.name].write(policy, canvas, config, generator, size, place)
    if rollout.versions is None:
        rollout.versions = rollout.trace.new_full((len(rollout),), policy.version)
    return rollout


def sampling(policy: Policy, config: SamplerConfig, uneven: bool) -> AbstractContextManager[None]:
    """The context around the calls of `sample` of a step or an evaluation, which all processes
    enter; `uneven`: whether their numbers of forward passes may differ. Raises EngineError: an
    engine cannot be given the weights of the policy."""
    prepare = SAMPLERS[config.name].prepare
    if prepare is None:
        return policy.sampling(uneven)
    prepare(policy, config)
    return nullcontext()
