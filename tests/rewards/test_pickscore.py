"""PickScore against the formula of its paper, on transformers' CLIP with random weights."""

import shutil
from pathlib import Path

import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as TF
from transformers import AutoTokenizer, CLIPConfig, CLIPImageProcessor, CLIPModel

from mmrl.rewards import build_reward
from mmrl.types import Sample
from tests.rewards.conftest import randomised

PROMPTS = ["a red circle", "Two  blue squares!", "a green star " * 60, "a red circle"]
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
LAYERS = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
SIDE = 28


@pytest.fixture(scope="module")
def checkpoint(clip_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Network, tokenizer and image processor in one directory."""
    directory = tmp_path_factory.mktemp("pickscore")
    text = {**LAYERS, "num_attention_heads": 2, "vocab_size": 49408, "max_position_embeddings": 77}
    vision = {**LAYERS, "num_attention_heads": 2, "image_size": SIDE, "patch_size": 14}
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=24)
    network = randomised(CLIPModel(config), seed=2)
    network.logit_scale.data.fill_(4.6052)
    network.save_pretrained(directory)
    size = {"size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE}}
    CLIPImageProcessor(**size).save_pretrained(directory)
    AutoTokenizer.from_pretrained(clip_tokenizer).save_pretrained(directory)
    return directory


@pytest.fixture
def entry(checkpoint: Path) -> dict:
    paths = {"model": str(checkpoint), "processor": str(checkpoint)}
    return {"name": "pickscore", "device": "cpu", **paths}


def samples_of(pictures: list[Image.Image]) -> list[Sample]:
    return [Sample(p, image) for p, image in zip(PROMPTS, pictures, strict=True)]


def prepared(image: Image.Image) -> torch.Tensor:
    """Shortest side, centre crop, OpenAI's statistics, by torchvision on the PIL image.

    Where a margin has an odd number of pixels transformers cuts one less off the left, torchvision
    one more; the published scores are transformers'."""
    image = TF.resize(image, [SIDE], InterpolationMode.BICUBIC)
    left, top = (image.width - SIDE) // 2, (image.height - SIDE) // 2
    image = image.crop((left, top, left + SIDE, top + SIDE))
    return TF.normalize(TF.to_tensor(image), MEAN, STD)


def test_the_score_is_the_scaled_cosine_of_the_published_formula(
    entry: dict, checkpoint: Path, pictures: list[Image.Image]
) -> None:
    network = CLIPModel.from_pretrained(checkpoint).eval()
    tokens = open_clip.get_tokenizer("ViT-H-14")(PROMPTS)
    with torch.no_grad():
        output = network(
            input_ids=tokens, pixel_values=torch.stack([prepared(p) for p in pictures])
        )
    expected = output.logits_per_image.diagonal()
    scores = torch.tensor(build_reward(entry)(samples_of(pictures)))
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)
    assert expected.std() > 0.1, "random weights must tell images apart"


def test_a_checkpoint_with_weights_missing_is_refused(
    entry: dict, checkpoint: Path, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(checkpoint, tmp_path / "model"))
    weights = load_file(directory / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="pickscore.model.*missing.*visual_projection.weight"):
        build_reward({**entry, "model": str(directory)})
