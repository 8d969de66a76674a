"""The numbers of the public code at tiny size, the network they belong to, and a tiny policy."""

from types import SimpleNamespace

import pytest
from safetensors.torch import load_file
from torch import Tensor

from models import load_model
from tests.mmrl.runs import write_world
from tests.models.networks import FIXTURES, bare_policy, write_mmada


@pytest.fixture(scope="session")
def mmada(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A policy over the MMaDA fixture."""
    return bare_policy(load_model(write_mmada(tmp_path_factory.mktemp("mmada"))))


@pytest.fixture(scope="session")
def mmada_cases() -> dict[str, Tensor]:
    """Inputs and outputs of the public code for that network."""
    return load_file(FIXTURES / "mmada" / "cases.safetensors")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Paths of an untrained policy of two blocks and of prompts, see `write_world`."""
    return write_world(tmp_path_factory.mktemp("world"))
