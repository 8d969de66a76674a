"""Contrasts: losses that compare clean predictions, without a ratio and without the sampler's
log-probs.

A finished sample is noised again, or loses tokens again, and the policy, the old policy and the
reference say what it was. On latents (strategy: renoise), with u = noise - x0 the true velocity,
e = v - u the error of the policy's at noise level t, e' that of the old policy, A the advantage,
<.> the mean over a latent's numbers and c = `adv_clip_max`:

    diffusion_nft   c / b (r <(t e+)^2 / w+> + (1 - r) <(t e-)^2 / w->), r = A / 2c + 1/2 in [0, 1],
                    e+ = b e + (1 - b) e', e- = (1 + b) e' - b e, w = <|t e|>, at least 1e-5 and
                    without a gradient (DiffusionNFT, arXiv 2509.16117)
    flow_dpo        -log sigmoid(-b/2 ((<e^2> - <e_ref^2>) of a better - that of a worse sample of
                    the group)): the best with the worst, the second with the second worst, … (flow
                    form of Diffusion-DPO, arXiv 2311.12908; its pairs are given)
    dgpo            -log sigmoid(-b mean of A (<e^2> - <e_ref^2>) over the group) (DGPO, arXiv
                    2510.08425), its samples noised alike
    crd             (s - mean of s over the group - A)^2, s = <e'^2> / w' - <e^2> / w (arXiv
                    2603.14128)

On tokens (strategies that leave some out), with p, p' the probabilities that the policies give the
token that was written:

    lfpo            -(r log p+ + (1 - r) log p-) / b, p+ = b p + (1 - b) p', p- = (1 + b) p' - b p:
                    diffusion_nft with a cross-entropy in place of the squared error. The prediction
                    of a masked token is the mean of the samples that fit, so it is probabilities
                    that mix linearly. LFPO (arXiv 2603.01563) mixes logits of the whole vocabulary
    gdsd            (log p - log p' - A / b)^2 / 2: the policy meets the teacher p' exp(A / b) with
                    no normaliser, as advantages are centred (GDSD, arXiv 2605.29398, which meets
                    the logits of the whole vocabulary)

A term of `flow_dpo`, `dgpo` or `crd` is of a group: slopes of its rollouts' errors above those of
the other policy, see `mmrl.algorithms.over_groups`. A new contrast is a function and a line in
`CONTRASTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

from mmrl.algorithms.over_groups import OverGroup, Slope
from mmrl.config import Settings, above
from mmrl.config.chosen import NoOptions
from mmrl.types import Prediction, Scores

if TYPE_CHECKING:
    from torch import Tensor

LEAST_SCALE = 1e-5
"""What errors are divided by at least."""
LEAST_PROBABILITY = 1e-6
"""Where the negative mixture of `lfpo` is held, which may be below 0."""


@dataclass(kw_only=True)
class ContrastConfig(Settings):
    """Options of contrasts."""

    contrast_beta: Annotated[float, above(0)] = 1.0
    """b of `mmrl.algorithms.contrasts`: how far the mixtures of diffusion_nft and lfpo reach beyond
    the old policy, the sharpness of flow_dpo and dgpo, and what divides the advantage in gdsd."""


class Contrasted(NamedTuple):
    """What a contrast compares: scores of `new` and of the `old` policy; `advantages` broadcast to
    [K, B, N]; and the largest of them, `limit`."""

    new: Scores
    old: Scores
    advantages: Tensor
    beta: float
    limit: float

    def latents(self) -> tuple[Prediction, Prediction]:
        """The predictions of the policy and of the old one."""
        assert self.new.prediction and self.old.prediction, "the strategy is checked before"
        return self.new.prediction, self.old.prediction

    def reward(self) -> Tensor:
        """r, broadcast to [K, B, N]."""
        return (self.advantages / (2 * self.limit) + 0.5).clamp(0, 1)


def diffusion_nft(c: Contrasted) -> Tensor:
    """The errors of both mixtures, by how good the sample is."""
    (new, old), r = c.latents(), c.reward()
    level = new.sigma[..., None]
    positive = level * (c.beta * new.error + (1 - c.beta) * old.error)
    negative = level * ((1 + c.beta) * old.error - c.beta * new.error)
    losses = (new.mean(e.square()) / scale_of(new, e) for e in (positive, negative))
    good, bad = (each[..., None] for each in losses)
    return c.limit / c.beta * (r * good + (1 - r) * bad)


def scale_of(prediction: Prediction, error: Tensor) -> Tensor:
    """[K, B]: the mean size of the errors [K, B, D] of clean predictions."""
    return prediction.mean(error.detach().double().abs()).clamp(min=LEAST_SCALE).to(error.dtype)


def lfpo(c: Contrasted) -> Tensor:
    """The cross-entropies of both mixtures, by how good the sample is."""
    new, old, r = c.new.logprobs.exp(), c.old.logprobs.exp(), c.reward()
    positive = c.beta * new + (1 - c.beta) * old
    negative = ((1 + c.beta) * old - c.beta * new).clamp(min=LEAST_PROBABILITY)
    return -(r * positive.clamp(min=LEAST_PROBABILITY).log() + (1 - r) * negative.log()) / c.beta


def gdsd(c: Contrasted) -> Tensor:
    """The squared distance to the log-prob of the teacher."""
    target = c.old.logprobs + c.advantages / c.beta
    return (c.new.logprobs - target).square() / 2


def squared_error(scores: Scores) -> Tensor:
    """[K, B, 1]: the mean squared error of velocities."""
    known = scores.prediction
    assert known, "the strategy is checked before"
    return known.mean(known.error.square())[..., None]


def scaled_error(scores: Scores) -> Tensor:
    """[K, B, 1]: the mean squared error of clean predictions over their mean size."""
    known = scores.prediction
    assert known, "the strategy is checked before"
    error = known.error * known.sigma[..., None]
    return (known.mean(error.square()) / scale_of(known, error))[..., None]


def slope_of_pairs(found: Tensor, advantages: Tensor, config: ContrastConfig) -> Tensor:
    """`flow_dpo`: better rollouts are to err less than the worse ones they are paired with."""
    beta, order = config.contrast_beta, advantages.argsort(dim=-1, descending=True, stable=True)
    ranked = found.gather(-1, order)
    margin = beta / 2 * (ranked.flip(-1) - ranked)
    lead = advantages.gather(-1, order)
    apart = (lead - lead.flip(-1)).sign()  # 0 of equal ones, which are no pair
    slope = beta * (-margin * apart).sigmoid() * apart
    return slope.new_zeros(slope.shape).scatter(-1, order, slope)


def slope_of_group(found: Tensor, advantages: Tensor, config: ContrastConfig) -> Tensor:
    """`dgpo`: the group as a whole is to err less where its advantages are."""
    beta = config.contrast_beta
    margin = -beta * (advantages * found).mean(-1, keepdim=True)
    return beta * (-margin).sigmoid() * advantages


def slope_of_rank(found: Tensor, advantages: Tensor, config: ContrastConfig) -> Tensor:
    """`crd`: how much less a rollout errs than its group is to be its advantage."""
    score = -found
    return -2 * (score - score.mean(-1, keepdim=True) - advantages)


class Contrast(NamedTuple):
    """A row of `CONTRASTS`.

    `terms(contrasted)`: [K, B, N] to minimise; of a contrast over groups the errors of `group`,
    which are multiplied by its slopes; None compares by the ratio. `of_latents`: whether it
    compares predictions of latents. `reads_old`, `reads_reference`: whether it compares with the
    old policy and with the reference. `same_noise`: whether a group is shown noised alike.
    `by_limit`: whether it divides by `adv_clip_max`.
    """

    terms: Callable[[Contrasted], Tensor] | None
    Config: type = ContrastConfig
    of_latents: bool = True
    group: OverGroup | None = None
    reads_old: bool = False
    reads_reference: bool = False
    same_noise: bool = False
    by_limit: bool = False


def over_group(error: Callable[[Scores], Tensor], slope: Slope, **reads: bool) -> Contrast:
    """The row of a contrast over groups."""
    row = Contrast(lambda c: error(c.new), group=OverGroup(error, slope))
    return row._replace(**reads)


ALIKE = {"reads_reference": True, "same_noise": True}
CONTRASTS = {
    "none": Contrast(None, NoOptions, of_latents=False),
    "crd": over_group(scaled_error, slope_of_rank, reads_old=True),
    "dgpo": over_group(squared_error, slope_of_group, **ALIKE),
    "diffusion_nft": Contrast(diffusion_nft, reads_old=True, by_limit=True),
    "flow_dpo": over_group(squared_error, slope_of_pairs, **ALIKE),
    "gdsd": Contrast(gdsd, of_latents=False, reads_old=True),
    "lfpo": Contrast(lfpo, of_latents=False, reads_old=True, by_limit=True),
}
"""Contrasts by the name used in configurations; none compares by the ratio."""
