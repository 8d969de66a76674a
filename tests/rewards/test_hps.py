"""HPSv2 and v2.1 against the published formula, written out here a second time."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as TF
from transformers import AutoTokenizer, CLIPConfig, CLIPImageProcessor, CLIPModel

from mmrl.rewards import build_reward
from mmrl.rewards.hps import letterbox
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.types import Sample, Video
from tests.rewards.conftest import TINY, random_network, randomised
from tests.rewards.gradients import check_gradient

PROMPTS = ["a red circle", "two blue squares", "a green star left of a ring", "a red circle"]
SIDE = 28


@pytest.fixture
def checkpoint(architecture: Path, tmp_path: Path) -> Path:
    """A checkpoint in the published form, with the stale causal mask some of them carry."""
    weights = random_network(architecture, seed=1).state_dict()
    path = tmp_path / "HPS_v2.1_compressed.pt"
    torch.save({"state_dict": {**weights, "attn_mask": torch.zeros(77, 77)}}, path)
    return path


def entry(architecture: Path, checkpoint: Path, **options: object) -> dict:
    paths = {"model": str(architecture), "checkpoint": str(checkpoint)}
    return {"name": "hps", "version": "v2.1", **paths, **options}


def prepared(image: Image.Image) -> Tensor:
    """The published transform by torchvision: longest side, zero padding, OpenAI's statistics."""
    pixels = TF.to_tensor(image)
    height, width = pixels.shape[1:]
    scale = SIDE / max(height, width)
    new = [round(height * scale), round(width * scale)]
    if scale != 1.0:
        pixels = TF.resize(pixels, new, InterpolationMode.BICUBIC, antialias=True)
    down, right = SIDE - new[0], SIDE - new[1]
    pixels = TF.pad(pixels, [right // 2, down // 2, right - right // 2, down - down // 2], 0)
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    return TF.normalize(pixels, mean, std)


def test_the_picture_is_scaled_by_its_longest_side_and_padded(pictures: list[Image.Image]) -> None:
    for image in pictures:
        torch.testing.assert_close(letterbox(image, SIDE), prepared(image), atol=1e-5, rtol=0)


def test_the_score_is_the_bare_cosine_of_the_published_formula(
    architecture: Path, checkpoint: Path, pictures: list[Image.Image]
) -> None:
    rows = [Sample(p, image) for p, image in zip(PROMPTS, pictures, strict=True)]
    scores = build_reward(entry(architecture, checkpoint, device="cpu"))(rows)
    network = random_network(architecture, seed=1)
    with torch.no_grad():
        images = network.encode_image(torch.stack([prepared(p) for p in pictures]))
        texts = network.encode_text(open_clip.get_tokenizer("ViT-H-14")(PROMPTS))
    images, texts = (x / x.norm(dim=-1, keepdim=True) for x in (images, texts))
    torch.testing.assert_close(torch.tensor(scores), (images * texts).sum(-1), atol=1e-5, rtol=0)
    assert torch.tensor(scores).std() > 1e-3, "random weights must tell images apart"


VOCABULARY = "bpe_simple_vocab_16e6.txt.gz"


@pytest.fixture
def official(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The score function and the open_clip of the package, where it is installed.

    The wheel 1.2.0 lacks its vocabulary, which is OpenAI's, so that of open_clip is read instead.
    """
    pytest.importorskip("hpsv2", reason="make test-hps installs it")
    opened = gzip.open

    def open_vocabulary(path: Any, *options: Any) -> Any:
        ours = Path(open_clip.__file__).with_name(VOCABULARY)
        return opened(ours if Path(path).name == VOCABULARY else path, *options)

    monkeypatch.setattr(gzip, "open", open_vocabulary)
    from hpsv2 import img_score  # pyright: ignore[reportMissingImports]
    from hpsv2.src import open_clip as its_clip  # pyright: ignore[reportMissingImports]

    return img_score, its_clip


def test_the_official_package_scores_the_same_weights_alike(
    architecture: Path,
    tmp_path: Path,
    pictures: list[Image.Image],
    monkeypatch: pytest.MonkeyPatch,
    official: tuple[Any, Any],
) -> None:
    img_score, its_clip = official
    (tmp_path / "tiny-hps.json").write_text(json.dumps(TINY))
    its_clip.add_model_config(tmp_path / "tiny-hps.json")
    network, _, transform = its_clip.create_model_and_transforms(
        "tiny-hps",
        None,
        precision="fp32",
        device=img_score.device,
        light_augmentation=True,  # as the package builds its own: longest side, zeros around
        output_dict=True,
    )
    monkeypatch.setattr(img_score, "model_dict", {"model": network, "preprocess_val": transform})
    checkpoint = tmp_path / "HPS_v2.1_compressed.pt"
    torch.save({"state_dict": random_network(architecture, seed=1).state_dict()}, checkpoint)
    # The last image already has the right longest side; the package leaves it unpadded and fails.
    rows = [Sample(p, image) for p, image in zip(PROMPTS[:3], pictures[:3], strict=True)]
    with pytest.raises(RuntimeError, match="size of tensor"):
        img_score.score(pictures[3], "x", str(checkpoint), "v2.1")
    assert its_clip.tokenize(PROMPTS).equal(open_clip.get_tokenizer("ViT-H-14")(PROMPTS))
    expected = [
        float(img_score.score(row.completion, row.prompt, str(checkpoint), "v2.1")[0])
        for row in rows
    ]
    scores = build_reward(entry(architecture, checkpoint, device="cpu"))(rows)
    assert scores == pytest.approx(expected, abs=5e-3 if img_score.device == "cuda" else 1e-4)


def test_the_checkpoint_is_found_in_a_directory_by_its_version(
    architecture: Path, checkpoint: Path
) -> None:
    build_reward(entry(architecture, checkpoint.parent))
    with pytest.raises(FileNotFoundError, match="HPS_v2_compressed.pt"):
        build_reward(entry(architecture, checkpoint.parent, version="v2.0"))


def test_a_checkpoint_that_would_run_code_is_refused(architecture: Path, checkpoint: Path) -> None:
    torch.save({"state_dict": Path("anything")}, checkpoint)
    with pytest.raises(ValueError, match="hps.checkpoint.*not a readable checkpoint"):
        build_reward(entry(architecture, checkpoint))


def test_missing_unexpected_and_misshapen_weights_are_named(
    architecture: Path, checkpoint: Path
) -> None:
    weights = random_network(architecture, seed=1).state_dict()
    incomplete = {key: value for key, value in weights.items() if key != "text_projection"}
    torch.save({"state_dict": incomplete}, checkpoint)
    with pytest.raises(ValueError, match="missing.*text_projection"):
        build_reward(entry(architecture, checkpoint))
    torch.save({"state_dict": {**weights, "extra": torch.zeros(1)}}, checkpoint)
    with pytest.raises(ValueError, match="unexpected.*extra"):
        build_reward(entry(architecture, checkpoint))
    torch.save({"state_dict": {**weights, "text_projection": torch.zeros(2, 2)}}, checkpoint)
    with pytest.raises(ValueError, match="(?s)does not fit hps.model.*text_projection"):
        build_reward(entry(architecture, checkpoint))


PICKED = ["a red circle", "Two  blue squares!", "a green star " * 60, "a red circle"]
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
LAYERS = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}


@pytest.fixture(scope="module")
def pick_checkpoint(clip_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def pick_entry(pick_checkpoint: Path) -> dict:
    paths = {"model": str(pick_checkpoint), "processor": str(pick_checkpoint)}
    return {"name": "pickscore", "device": "cpu", **paths}


def cropped(image: Image.Image) -> torch.Tensor:
    """Shortest side, centre crop, OpenAI's statistics, by torchvision on the PIL image.

    Where a margin has an odd number of pixels transformers cuts one less off the left, torchvision
    one more; the published scores are transformers'."""
    image = TF.resize(image, [SIDE], InterpolationMode.BICUBIC)
    left, top = (image.width - SIDE) // 2, (image.height - SIDE) // 2
    image = image.crop((left, top, left + SIDE, top + SIDE))
    return TF.normalize(TF.to_tensor(image), MEAN, STD)


def test_the_score_is_the_scaled_cosine_of_the_published_formula(
    pick_entry: dict, pick_checkpoint: Path, pictures: list[Image.Image]
) -> None:
    network = CLIPModel.from_pretrained(pick_checkpoint).eval()
    tokens = open_clip.get_tokenizer("ViT-H-14")(PICKED)
    with torch.no_grad():
        output = network(input_ids=tokens, pixel_values=torch.stack([cropped(p) for p in pictures]))
    expected = output.logits_per_image.diagonal()
    rows = [Sample(p, image) for p, image in zip(PICKED, pictures, strict=True)]
    scores = torch.tensor(build_reward(pick_entry)(rows))
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)
    assert expected.std() > 0.1, "random weights must tell images apart"
    video = Video(np.stack([picture.convert("RGB").resize((40, 30)) for picture in pictures[:2]]))
    found = Scorer([{**pick_entry, "frames": "first"}]).score([Sample("a cat", video)])
    first = build_reward(pick_entry)([Sample("a cat", video.image(0))])
    assert found.components["pickscore"] == first, "UniRL's videopickscore"


def test_a_checkpoint_with_weights_missing_is_refused(
    pick_entry: dict, pick_checkpoint: Path, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(pick_checkpoint, tmp_path / "model"))
    weights = load_file(directory / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="pickscore.model.*missing.*visual_projection.weight"):
        build_reward({**pick_entry, "model": str(directory)})


def test_the_score_of_pixels_is_that_of_the_image_and_has_a_gradient(
    architecture: Path, checkpoint: Path, pick_entry: dict, pictures: list[Image.Image]
) -> None:
    check_gradient(build_reward(entry(architecture, checkpoint)), PICKED, pictures, SIDE)
    check_gradient(build_reward(pick_entry), PICKED, pictures, SIDE)
