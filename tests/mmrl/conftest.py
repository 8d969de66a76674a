"""The numbers of the public code at tiny size, and the network they belong to."""

from types import SimpleNamespace

import pytest
from safetensors.torch import load_file
from torch import Tensor

from models import load_model
from tests.models.networks import FIXTURES, bare_policy, write_mmada


@pytest.fixture(scope="session")
def mmada(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A policy over the MMaDA fixture."""
    return bare_policy(load_model(write_mmada(tmp_path_factory.mktemp("mmada"))))


@pytest.fixture(scope="session")
def mmada_cases() -> dict[str, Tensor]:
    """Inputs and outputs of the public code for that network."""
    return load_file(FIXTURES / "mmada" / "cases.safetensors")
