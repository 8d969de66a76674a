"""Numbers of the public code at tiny size and their network, a tiny policy, a few images."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from mmrl.models import load_model
from tests.mmrl.pair import Pair
from tests.mmrl.runs import World, write_world
from tests.models.networks import FIXTURES, bare_policy, write_mmada
from tests.pictures import write_images


@pytest.fixture(scope="session")
def mmada(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A policy over the MMaDA fixture."""
    return bare_policy(load_model(write_mmada(tmp_path_factory.mktemp("mmada"))))


@pytest.fixture(scope="session")
def mmada_cases() -> dict[str, Tensor]:
    """Inputs and outputs of the public code for that network."""
    return load_file(FIXTURES / "mmada" / "cases.safetensors")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Paths of an untrained policy of two blocks and of prompts, see `write_world`."""
    return write_world(tmp_path_factory.mktemp("world"))


def launch_pair(name: str, settings: str, says: str) -> Callable:
    """A fixture of two processes that one file of `configs/accelerate` launches."""

    @pytest.fixture(scope="session", name=name)
    def launched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
        both = Pair(tmp_path_factory.mktemp(name), settings)
        yield both
        both.close()

    launched.__doc__ = says
    return launched


pair = launch_pair("pair", "cpu2.yaml", "Two processes, each with a copy of the model.")
sharing_pair = launch_pair(
    "sharing_pair", "fsdp2_cpu2.yaml", "Two processes that share one copy of the model (FSDP2)."
)
zero2_pair = launch_pair(
    "zero2_pair",
    "zero2_cpu2.yaml",
    "Two processes that share gradients and moments (DeepSpeed ZeRO-2).",
)
zero3_pair = launch_pair(
    "zero3_pair",
    "zero3_cpu2.yaml",
    "Two processes that share one copy of the model (DeepSpeed ZeRO-3).",
)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A parquet of twelve 8 x 8 images of two flat colours each."""
    colors = np.random.default_rng(0).integers(0, 256, (12, 2, 1, 3), dtype=np.uint8)
    images = map(Image.fromarray, colors.repeat(4, axis=1).repeat(8, axis=2))
    path = tmp_path_factory.mktemp("images") / "images.parquet"
    return write_images(path, [*images], ["two stripes"] * 12)
