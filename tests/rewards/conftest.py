"""Small random open_clip models on disk, and images of every kind."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.rewards.judge_server import judge_server

TINY = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 28, "layers": 2, "width": 32, "head_width": 16, "patch_size": 14},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}


def random_network(directory: Path, seed: int) -> Any:
    """An open_clip model of the architecture in `directory` whose features differ clearly."""
    network = open_clip.CLIP(**open_clip.get_model_config(f"local-dir:{directory}"))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
            if "ln_" in name and name.endswith("weight"):
                parameter.add_(1.0)
    return network.eval()


def write_architecture(directory: Path) -> Path:
    """Write the architecture of a small CLIP, without weights."""
    config = {"model_cfg": TINY, "preprocess_cfg": {}}
    (directory / "open_clip_config.json").write_text(json.dumps(config))
    return directory


def write_clip(directory: Path) -> Path:
    """Write a small CLIP as open_clip does: architecture and weights."""
    weights = random_network(write_architecture(directory), seed=0).state_dict()
    save_file(weights, directory / "open_clip_model.safetensors")
    return directory


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a judge."""
    with judge_server() as address:
        yield address


@pytest.fixture(scope="session")
def architecture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an architecture and no weights."""
    return write_architecture(tmp_path_factory.mktemp("architecture"))


@pytest.fixture(scope="session")
def clip_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as open_clip writes it: architecture and weights."""
    return write_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture
def pictures() -> list[Image.Image]:
    """RGB images: square, wide, tall, and one whose longest side is the input size."""
    random = np.random.default_rng(0)
    sizes = [(40, 40), (60, 25), (17, 50), (28, 20)]
    return [
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for width, height in sizes
    ]


@pytest.fixture(scope="session")
def clip_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with OpenAI's tokenizer as transformers writes it."""
    from open_clip.tokenizer import SimpleTokenizer
    from transformers import CLIPTokenizer

    known = SimpleTokenizer()
    merges = [pair for pair, _ in sorted(known.bpe_ranks.items(), key=lambda x: x[1])]
    directory = tmp_path_factory.mktemp("tokenizer")
    words = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>"}
    vocabulary = {
        {"<start_of_text>": words["bos_token"], "<end_of_text>": words["eos_token"]}.get(k, k): v
        for k, v in known.encoder.items()
    }
    CLIPTokenizer(vocab=vocabulary, merges=merges, **words).save_pretrained(directory)
    return directory


def randomised(network: Any, seed: int, spread: float = 0.2) -> Any:
    """The network with weights that make its outputs differ clearly."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(spread * torch.randn(parameter.shape, generator=generator))
            if "norm" in name.lower() and name.endswith("weight"):
                parameter.add_(1.0)
    return network.eval()
