"""Windows: which denoising steps of a rollout are stochastic, so have a log-prob to train.

A new rule is a function from the settings and a `Place` to the indices of the steps, [w] for all
rows or [rows, w], and a line in `RULES`. This file is read without torch.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from mmrl.config import Settings, at_least, check, one_of

if TYPE_CHECKING:
    from numpy.random import Generator as Rng
    from torch import Generator, Tensor


class Place(NamedTuple):
    """Where a window of `size` steps may lie: from `low` to below `high`."""

    low: int
    high: int
    size: int
    iteration: int
    rng: Rng
    rows: int


def random(config: WindowConfig, place: Place) -> Any:
    """Consecutive steps from a start that is drawn uniformly (Flow-GRPO-Fast)."""
    start = place.rng.integers(place.low, place.high - place.size + 1)
    return range(start, start + place.size)


def sparse(config: WindowConfig, place: Place) -> Any:
    """Single steps, drawn without replacement (UniRL)."""
    return sorted(place.rng.choice(range(place.low, place.high), place.size, replace=False))


def progressive(config: WindowConfig, place: Place) -> Any:
    """A window that moves on during training (MixGRPO, arXiv 2507.21802). Steps at the end of the
    range that do not fill a window are left out."""
    starts = range(place.low, place.high - place.size + 1, place.size - config.window_overlap)
    ends = list(accumulate(config.dwell(start, place.high) for start in starts))
    turn = place.iteration % ends[-1] if config.window_roll_back else place.iteration
    start = starts[min(bisect_right(ends, turn), len(starts) - 1)]
    return range(start, start + place.size)


def stratified(config: WindowConfig, place: Place) -> Any:
    """A window for each row of the group, their starts spread evenly (Flash-GRPO)."""
    import numpy as np

    low, high, size, _, rng, rows = place
    spread = (np.arange(rows) + rng.random()) * (high - low - size + 1) / rows
    return low + spread.astype(int)[:, None] + np.arange(size)


RULES = {"progressive": progressive, "random": random, "sparse": sparse, "stratified": stratified}
"""Rules by the name used in configurations."""


@dataclass(kw_only=True)
class WindowConfig(Settings):
    """Which denoising steps are stochastic. Without any setting, all but the last: its noise would
    stay visible."""

    where: ClassVar[str] = "sampler"

    window_size: Annotated[int | None, at_least(1)] = None
    """Stochastic steps of a rollout; null takes the whole range."""
    window_range: list[int] | None = None
    """[low, high]: the steps from low to below high may be stochastic; null is all but the last."""
    window_fraction: list[float] | None = None
    """[low, high]: the range as parts of all steps, rounded down."""
    window_rule: Annotated[str, one_of(RULES)] = "random"
    """Where in the range they lie. random: side by side, from a drawn start. sparse: drawn one by
    one. progressive: side by side, further along after some iterations. stratified: side by side,
    at another place in each rollout of a group, spread evenly."""
    window_draw: Literal["group", "iteration"] = "group"
    """Whether each group draws by its own generator, or all draw alike by the number of the
    iteration, as in UniRL."""
    window_iterations: Annotated[int, at_least(1)] = 25
    """Iterations of training at the first place (progressive)."""
    window_decay: Literal["none", "linear"] = "none"
    """How they fall at later places (progressive): linearly, to a quarter at the end."""
    window_overlap: Annotated[int, at_least(0)] = 0
    """Steps that a place shares with the one before (progressive)."""
    window_roll_back: bool = False
    """Begin again after the last place; false stays there (progressive)."""

    def dwell(self, start: int, high: int) -> int:
        """Iterations that a progressive window stays at a start, in a range that ends at `high`."""
        most, least = self.window_iterations, max(1, self.window_iterations // 4)
        if self.window_decay == "none":
            return most
        return max(least, int(most * (1 - start / high) + least * start / high))

    def find_place(self, steps: int) -> tuple[int, int, int]:
        """The range of S `steps`, from low to below high, and how many of it are stochastic in each
        rollout. Raises ConfigError: a range or window outside the schedule, or too much overlap."""
        part, own = self.window_fraction, self.window_range
        allowed = "null with window_range"
        check(part is None or own is None, f"{self.where}.window_fraction", part, allowed)
        given = [0, steps - 1] if own is None else own
        if part is not None:
            given = [int(each * steps + 1e-6) for each in part]  # 0.29 * 100 is below 29
        key = f"{self.where}.window_{'range' if part is None else 'fraction'}"
        allowed = f"[low, high] within the {steps} steps, with one or more from low to below high"
        fits = len(given) == 2 and 0 <= given[0] < given[1] <= steps
        check(fits, key, given if part is None else part, allowed)
        low, high = given
        size, allowed = self.window_size or high - low, f"at most the {high - low} of its range"
        check(size <= high - low, f"{self.where}.window_size", size, allowed)
        key, allowed = f"{self.where}.window_overlap", f"below the window_size, {size}"
        check(self.window_overlap < size, key, self.window_overlap, allowed)
        return low, high, size


def choose_steps(
    config: WindowConfig, steps: int, iteration: int, generator: Generator, rows: int
) -> Tensor:
    """Choose the stochastic steps of one group, in an iteration of training, from 0.

    Returns [rows, S] bool, true where a step is stochastic, as many in each of the group's
    rollouts; the generator gives one number, whatever the rule. Raises ConfigError: see
    `WindowConfig.find_place`."""
    import numpy as np
    import torch

    seed = int(torch.randint(2**62, (), generator=generator))
    rng = np.random.default_rng(iteration if config.window_draw == "iteration" else seed)
    place = Place(*config.find_place(steps), iteration, rng, rows)
    chosen = torch.as_tensor(np.array(RULES[config.window_rule](config, place)))
    return torch.zeros(rows, steps, dtype=torch.bool).scatter_(1, chosen.expand(rows, -1), True)
