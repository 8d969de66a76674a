"""What several tests of models share."""

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerBase

from mmrl.models.image_tokenizers.image_tokenizer import save_vq
from mmrl.models.image_tokenizers.magvit import MagvitConfig, MagvitV2
from mmrl.models.loading import save_model
from tests.models.llada_tokenizer import llada_tokenizer, small_tokenizer
from tests.models.networks import CONFIG, LEVELS, small_network


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerBase:
    """LLaDA's ids, one per character."""
    return llada_tokenizer()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small MMaDA-type checkpoint with tokenizer, its image tokenizer in the folder `vq`."""
    directory = tmp_path_factory.mktemp("checkpoint")
    tokenizer = small_tokenizer()
    tokenizer.save_pretrained(directory)
    vq = MagvitV2(MagvitConfig(ch=4, bits=5, norm_groups=2, **LEVELS))
    save_vq(vq, directory / "vq")
    model = small_network(vocab_size=len(tokenizer) + vq.codebook_size)
    model.public_config = {
        **CONFIG,
        "model_type": "mmada",
        "vocab_size": model.core.vocab_size,
        "embedding_size": model.core.vocab_size,
        "mask_token_id": tokenizer.get_vocab()["<|mdm_mask|>"],
        "num_vq_tokens": 16,
        "mask_policy": "ignore",
    }
    save_model(model, directory)
    return directory
