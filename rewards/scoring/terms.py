"""One reward of a weighted sum: its configuration entry, checked and built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from mmrl.config import ConfigError, check, check_choice
from mmrl.rewards import Reward, build_reward, check_reward
from mmrl.rewards.registry.interface import Described, Served
from mmrl.rewards.registry.lookup import has_gradient, is_own
from mmrl.rewards.scoring.frames import differentiate_frames, score_frames
from mmrl.rewards.scoring.returned import LARGEST, Failure, Result, is_bounded
from mmrl.types import Sample
from mmrl.types.video import FRAME_RULES

if TYPE_CHECKING:
    from torch import Tensor

TEXT, IMAGE, VIDEO = "texts", "images", "videos"
SCORED = {"completion": TEXT, "images": IMAGE, "video": VIDEO}
"""What a reward says that it `needs`, and what completions it scores then."""


@dataclass
class Term:
    """One reward in the weighted sum, under the key its metrics are logged with; `frames` says
    which frames of a video a reward of images scores, None for the reward's own completions."""

    key: str
    reward: Reward
    weight: float = 1.0
    scale: float = 1.0
    offset: float = 0.0
    frames: str | None = None

    def score(self, samples: list[Sample]) -> Any:
        """What the reward says of samples, or of the chosen frames of theirs."""
        if self.frames is None:
            return self.reward(samples)
        return score_frames(self.reward, samples, self.frames)

    def score_pixels(self, pixels: Sequence[Tensor], samples: list[Sample]) -> Tensor:
        """The same with a gradient, see `Differentiable`."""
        reward: Any = self.reward
        if self.frames is None:
            return reward.score_pixels(pixels, samples)
        return differentiate_frames(reward.score_pixels, pixels, samples, self.frames)

    def weigh(self, result: Result) -> Result:
        """A result, or the failure that what it adds to the total is too large."""
        scores = result if isinstance(result, list) else [result]
        for score in scores:
            if isinstance(score, float) and not is_bounded(self.contribution(score)):
                made = f"weight, scale and offset make that {self.contribution(score):g}"
                return Failure(f"returned {score:g}, and {made}; at most {LARGEST:g} is summed")
        return result

    def contribution(self, score: Any) -> Any:
        """What a raw score, or a tensor of scores, adds to the total."""
        return self.weight * (self.scale * score + self.offset)


def as_entry(reward: Any) -> Any:
    """The entry of a callable from Python, or of an entry in `config.yaml` that records its name.
    Every other entry is returned unchanged."""
    if callable(reward):
        return {"name": getattr(reward, "__name__", type(reward).__name__), "reward": reward}
    if isinstance(reward, Mapping) and isinstance(reward.get("reward"), str):
        key = reward.get("key") or reward.get("name")
        named = {**reward, "name": reward["reward"], **({"key": key} if key else {})}
        return {key: value for key, value in named.items() if key != "reward"}
    return reward


def check_entries(entries: Sequence[Mapping[str, Any]], where: str = "rewards") -> None:
    """Check the reward entries of a configuration without building anything. Raises ValueError: no
    entry, an unknown reward or option, a wrong type, or two equal keys."""
    check(bool(entries), where, entries, "at least one reward")
    keys: list[str] = []
    for n, entry in enumerate(map(as_entry, entries)):
        check(isinstance(entry, Mapping), f"{where}[{n}]", entry, "an entry, {name: …}")
        named = entry.get("key") or entry.get("name") or "reward" not in entry
        check(bool(named), f"{where}[{n}]", entry, "a callable with a `name` for its metrics")
        check_reward(entry, f"{where}[{n}]")
        for key in ("weight", "scale", "offset"):
            value = entry.get(key, 1.0)
            number = isinstance(value, Real) and not isinstance(value, bool) and is_bounded(value)
            check(number, f"{where}[{n}].{key}", value, f"a finite number of at most {LARGEST:g}")
        if entry.get("frames") is not None:
            check_choice(f"{where}[{n}].frames", entry["frames"], FRAME_RULES)
        keys.append(key_of(entry))
    repeated = sorted({key for key in keys if keys.count(key) > 1})
    if repeated:
        raise ValueError(
            f"{where} holds {repeated[0]!r} more than once; give each of these entries its own"
            " `key`, under which its metrics are logged."
        )


def check_completions(term: Term, made: str) -> None:
    """Raise a ConfigError for a reward that does not score what completions of a task are."""
    needs = term.reward.needs if isinstance(term.reward, Described) else ()
    scored = [kind for need, kind in SCORED.items() if need in needs]
    fits, allowed = term.frames is None or made == VIDEO, f"null, completions are {made}"
    check(fits, f"frames of the reward {term.key!r}", term.frames, allowed)
    if made == VIDEO and term.frames is None and isinstance(term.reward, Described | Served):
        allowed = f"{', '.join(FRAME_RULES)}: it scores images, and completions are videos"
        served = isinstance(term.reward, Served)
        advice = "The client of a reward of whole videos sets video: true." if served else ""
        whole = VIDEO in scored or TEXT in scored
        check(whole, f"frames of the reward {term.key!r}", None, allowed, advice)
    seen = IMAGE if term.frames else made
    if scored and seen not in scored:
        kinds = " or ".join(scored)
        raise ConfigError(
            f"the reward {term.key!r} scores {kinds}, and completions of this task are"
            f" {made}. Leave it out, or give it to a task of {kinds}."
        )


def check_gradients(entries: Sequence[Mapping[str, Any]], where: str, why: str) -> None:
    """Raise a ConfigError for an entry that counts and whose reward has no gradient, and where none
    counts."""
    found = [as_entry(entry) for entry in entries]
    weights = [entry.get("weight", 1.0) for entry in found]
    check(any(weights), f"{where}[0].weight", weights[0], f"not 0, {why}")
    allowed = f"a reward of pixels with a gradient, or weight: 0, {why}"
    for n, (entry, weight) in enumerate(zip(found, weights, strict=True)):
        fits = weight == 0 or has_gradient(entry, f"{where}[{n}]")
        check(fits, f"{where}[{n}].name", entry.get("name"), allowed)


def build_term(entry: Mapping[str, Any], where: str) -> Term:
    """Build the reward an entry describes, with its place in the sum."""
    entry = as_entry(entry)
    numbers = {key: float(entry[key]) for key in ("weight", "scale", "offset") if key in entry}
    return Term(key_of(entry), build_reward(entry, where), **numbers, frames=entry.get("frames"))


def key_of(entry: Mapping[str, Any]) -> str:
    """The key of an entry's metrics: its `key`, or else the name of its reward (without the path of
    the user's own)."""
    name = str(entry["name"])
    return str(entry.get("key") or (name.rpartition(":")[2] if is_own(entry) else name))
