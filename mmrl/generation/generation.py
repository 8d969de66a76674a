"""What a kind of generation is: how canvases are written, and how finished ones are scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any, NamedTuple

from mmrl.generation.strategy import Strategy
from mmrl.types import Prompt, Rollout, Scores


class Place(NamedTuple):
    """The place of rows of a batch in a run, for samplers whose draws rollouts of a prompt share: a
    seed of its group for each row, its number among the `members`, and the rows of a group."""

    step: int
    groups: Sequence[int]
    members: Sequence[int]
    size: int


def late(path: str) -> Callable[..., Any]:
    """The function `module:name`, imported when it is called: settings are read without torch."""
    return lambda *arguments, **options: resolve_name(path)(*arguments, **options)


class Sampler(NamedTuple):
    """A row of `Generation.samplers`: the value of `sampler.name`.

    Attributes:
        write: writes a canvas, with the arguments of `mmrl.samplers.sample`.
        Config: dataclass of its settings.
        count_steps: the most steps in which `config` writes rows of `length` actions.
        check: `check(config, name, where, length)` raises a ConfigError where they cannot run.
        check_prompts: `check_prompts(config, prompts, length)` raises a ConfigError for a prompt
            that lacks what they read of it; None where the length is not known.
        has_fixed_forwards: whether all rows of one length take the same number of forward passes,
            whatever is drawn, on processes that share weights (`Policy.shares_forwards`).
        can_refill: whether a row that ends can give its place in the batch to another.
        count_logits: `count_logits(config, length)`, the actions of a row whose logits exist at a
            time.
        streams: whether draws are made of parts of those logits where they are large.
        keeps_cache: whether keys and values of all rows are kept.
        find_differences: how the policy that `config` samples from differs from the one that is
            scored; the other argument says whether the network's cache is exact.
        count_actions: the most steps that have log-probs; None where all have.
        draws: whether any step has.
        is_euler: whether every step of a latent is one Euler step of the ODE, which can be taken
            again with a gradient.
        has_forks: whether it takes some actions without a draw, see `Rollout.drawn`.
        prepare: `prepare(policy, config)` precedes the rollouts of a step or an evaluation on all
            processes, where an engine writes them; None where the policy itself does.
    """

    write: Callable[..., Rollout]
    Config: type
    count_steps: Callable[[Any, int], int]
    check: Callable[[Any, str, str, int | None], None] = lambda config, name, where, length: None
    check_prompts: Callable[[Any, Sequence[Prompt], int | None], None] = lambda *_: None
    has_fixed_forwards: Callable[[Any], bool] = lambda config: False
    can_refill: Callable[[Any, Any], bool] = lambda policy, config: False
    count_logits: Callable[[Any, int], int] = lambda config, length: 0
    streams: Callable[[Any], bool] = lambda config: False
    keeps_cache: Callable[[Any], bool] = lambda config: False
    find_differences: Callable[[Any, bool], list[str]] = lambda config, exact_cache: []
    count_actions: Callable[[Any, int], int] | None = None
    draws: bool = True
    is_euler: bool = False
    has_forks: bool = False
    prepare: Callable[[Any, Any], None] | None = None


class Generation(NamedTuple):
    """A kind of generation.

    Attributes:
        samplers: by the name used in configurations.
        strategies: what a policy is shown of finished canvases, by name.
        score: scores canvases, as `mmrl.estimators.score` with the scales as a `Guidance`.
        finish: `finish(policy, rollout, unwritten)` gives the canvases of rollouts of which the
            actions `unwritten` [B, N] are taken again, in one pass; None where there is no such
            pass.
        unroll: `unroll(canvas, row)` gives the canvases of a row before its first step and after
            each, all of which can be decoded; None where only a finished one can.
    """

    samplers: Mapping[str, Sampler]
    strategies: Mapping[str, Strategy]
    score: Callable[..., Scores]
    finish: Callable[..., Any] | None = None
    unroll: Callable[[Any, int], Any] | None = None
