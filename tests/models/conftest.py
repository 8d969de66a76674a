"""What several tests of models share."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import save_file
from transformers import PreTrainedTokenizerBase

from tests.models.llada_tokenizer import llada_tokenizer
from tests.models.networks import FIXTURES, mmada_tensors


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerBase:
    """LLaDA's ids, one per character."""
    return llada_tokenizer()


@pytest.fixture(scope="session")
def mmada_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The MMaDA fixture as a checkpoint directory in the public format, without a tokenizer."""
    directory = tmp_path_factory.mktemp("mmada")
    shutil.copy(FIXTURES / "mmada" / "config.json", directory)
    save_file(mmada_tensors(), directory / "model.safetensors", metadata={"format": "pt"})
    return directory
