"""sandwich: one bound for what is to become more likely, the other for the rest."""

import pytest
import torch

from mmrl.algorithms import AlgorithmConfig
from mmrl.algorithms.bounds import BOUNDS
from tests.mmrl.estimators.exact import every_mask

N = 3


def values(advantages: list[float], omega: float) -> list[float]:
    logprobs, passes = every_mask(N)
    copies = torch.zeros(len(advantages), dtype=torch.long)
    config, given = (
        AlgorithmConfig(bound="sandwich", eubo_beta=1.5, eubo_weight=omega),
        torch.tensor(advantages),
    )
    quantity = BOUNDS["sandwich"](logprobs[:, copies], passes[copies], config, given)
    return quantity.values.flatten().tolist()


@pytest.mark.parametrize("omega", [0.0, 0.3, 1.0])
def test_the_sign_of_the_advantage_chooses_the_bound(omega: float) -> None:
    lower = float(BOUNDS["elbo"](*every_mask(N)).values)
    upper = float(
        BOUNDS["eubo"](*every_mask(N), AlgorithmConfig(bound="eubo", eubo_beta=1.5)).values
    )
    mixed = omega * upper + (1 - omega) * lower
    found = values([2.0, 0.0, -1.0], omega)
    assert found == pytest.approx([lower, lower, mixed], rel=1e-5)
