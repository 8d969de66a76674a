"""What several tests of models share."""

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerBase

from tests.models.llada_tokenizer import llada_tokenizer
from tests.models.networks import write_small_mmada


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerBase:
    """LLaDA's ids, one per character."""
    return llada_tokenizer()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small MMaDA-type checkpoint with tokenizer, its image tokenizer in the folder `vq`."""
    return write_small_mmada(tmp_path_factory.mktemp("checkpoint"))
