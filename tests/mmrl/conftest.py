"""Numbers of the public code at tiny size and their network, a tiny policy, a few images."""

import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from datasets import Dataset, Features, Value
from datasets import Image as ImageFeature
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from models import load_model
from tests.mmrl.pair import Pair
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


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two processes, each with a copy of the model."""
    both = Pair(tmp_path_factory.mktemp("pair"), "cpu2.yaml")
    yield both
    both.close()


@pytest.fixture(scope="session")
def sharing_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two processes that share one copy of the model (FSDP2)."""
    both = Pair(tmp_path_factory.mktemp("sharing_pair"), "fsdp2_cpu2.yaml")
    yield both
    both.close()


@pytest.fixture(scope="session")
def zero2_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two processes that share gradients and moments (DeepSpeed ZeRO-2)."""
    both = Pair(tmp_path_factory.mktemp("zero2_pair"), "zero2_cpu2.yaml")
    yield both
    both.close()


@pytest.fixture(scope="session")
def zero3_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two processes that share one copy of the model (DeepSpeed ZeRO-3)."""
    both = Pair(tmp_path_factory.mktemp("zero3_pair"), "zero3_cpu2.yaml")
    yield both
    both.close()


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A parquet of twelve 8 x 8 images of two flat colours each."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(12):
        pixels = np.repeat(rng.integers(0, 256, (2, 1, 3), dtype=np.uint8), 4, axis=0)
        buffer = io.BytesIO()
        Image.fromarray(np.repeat(pixels, 8, axis=1)).save(buffer, "PNG")
        rows.append({"bytes": buffer.getvalue(), "path": None})
    path = tmp_path_factory.mktemp("images") / "images.parquet"
    columns = {"image": rows, "prompt": ["two stripes"] * 12}
    features = Features({"image": ImageFeature(), "prompt": Value("string")})
    Dataset.from_dict(columns, features=features).to_parquet(str(path))
    return path
