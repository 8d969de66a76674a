"""HPSv2 and v2.1 against the published formula, written out here a second time."""

import gzip
import json
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as TF

from mmrl.rewards import build_reward
from mmrl.rewards.hps import letterbox
from mmrl.types import Sample
from tests.rewards.conftest import TINY, random_network

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
