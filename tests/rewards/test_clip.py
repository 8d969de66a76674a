"""The CLIP reward, and LAION's aesthetic score by its formula, written out here a second time."""

from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from huggingface_hub import constants
from PIL import Image
from torch import Tensor

from mmrl.config import NotHereError
from mmrl.rewards import build_reward
from mmrl.rewards.networks.open_clip_encoder import uses_quick_gelu
from mmrl.types import Sample
from tests.rewards.gradients import check_gradient
from tests.rewards.rounding import up_to_rounding

PROMPTS = ["a red circle", "two blue squares", "a green star left of a ring", "a red circle"]


def samples_of(pictures: list[Image.Image]) -> list[Sample]:
    return [Sample(p, image) for p, image in zip(PROMPTS, pictures, strict=True)]


def test_the_score_is_the_cosine_open_clip_itself_gives(
    clip_directory: Path, pictures: list[Image.Image]
) -> None:
    scores = build_reward({"name": "clip", "model": str(clip_directory), "device": "cpu"})(
        samples_of(pictures)
    )
    name = f"local-dir:{clip_directory}"
    network, transform = open_clip.create_model_from_pretrained(name)
    network.eval()
    tokens = open_clip.get_tokenizer(name)(PROMPTS)
    with torch.no_grad():
        images = network.encode_image(torch.stack([transform(p) for p in pictures]))
        texts = network.encode_text(tokens)
    expected = torch.cosine_similarity(images, texts)
    torch.testing.assert_close(torch.tensor(scores), expected, atol=1e-6, rtol=0)
    assert torch.tensor(scores).std() > 1e-3, "random weights must tell images apart"


def test_a_caption_is_scored_with_the_image_of_its_prompt(
    clip_directory: Path, pictures: list[Image.Image]
) -> None:
    entry = {"name": "clip", "model": str(clip_directory), "device": "cpu"}
    captions: Any = build_reward({**entry, "image": "prompt"})
    group = [pictures[1]]
    rows = [
        Sample("describe it", "two blue squares", images=group),
        Sample("describe it", "a red circle", {"answer": "a ring", "is_caption": True}, group),
        Sample("describe it", "a green star " * 60, images=[pictures[2]]),
        Sample("what is it?", "a", {"answer": "a"}, group),
        Sample("what is it?", "a", {"is_caption": False}, group),
        Sample("no image", "words"),
    ]
    made = [Sample(str(row.completion), (row.images or [])[0]) for row in rows[:3]]
    expected: Any = build_reward(entry)(made)
    found = captions(rows)
    assert found[:3] == up_to_rounding(expected) and found[3:] == [None] * 3
    assert captions(rows[4:]) == [None, None] and captions.needs == ("completion",)
    with pytest.raises(ValueError, match="caption of one image.*has 2"):
        captions([Sample("both", "words", images=pictures[:2])])
    with pytest.raises(ValueError, match="clip.image is prompt.*is an image"):
        captions([Sample("draw", pictures[0], images=group)])


def test_a_batch_scores_like_its_rows_alone(
    clip_directory: Path, pictures: list[Image.Image]
) -> None:
    reward = build_reward({"name": "clip", "model": str(clip_directory), "batch_size": 3})
    rows = samples_of(pictures)
    alone = [reward([row])[0] for row in rows]
    assert reward(rows) == pytest.approx(alone, abs=1e-6)
    assert reward([]) == []


def test_half_precision_towers_stay_near_float32(
    clip_directory: Path, pictures: list[Image.Image]
) -> None:
    rows = samples_of(pictures)
    entry = {"name": "clip", "model": str(clip_directory), "device": "cpu"}
    full = build_reward(entry)(rows)
    half = build_reward({**entry, "dtype": "bfloat16"})(rows)
    assert half == pytest.approx(full, abs=0.02)
    assert half != full


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "1", "CMYK"])
def test_every_image_mode_is_scored_as_the_rgb_it_shows(clip_directory: Path, mode: str) -> None:
    reward = build_reward({"name": "clip", "model": str(clip_directory)})
    # Black and white survive the conversion to every one of these modes.
    shown = Image.new("RGB", (32, 32), "white")
    shown.paste("black", (4, 4, 20, 28))
    assert reward([Sample("a bar", shown.convert(mode))]) == pytest.approx(
        reward([Sample("a bar", shown)]), abs=1e-6
    )


def test_a_text_completion_is_an_error_that_names_reward_and_prompt(clip_directory: Path) -> None:
    reward = build_reward({"name": "clip", "model": str(clip_directory)})
    with pytest.raises(ValueError, match="'clip' scores images.*'a red circle'.*str"):
        reward([Sample("a red circle", "not an image")])


def test_published_openai_weights_run_with_their_own_activation() -> None:
    assert uses_quick_gelu("ViT-L-14", "openai")
    assert not uses_quick_gelu("ViT-L-14", "laion2b_s32b_b82k")
    assert not uses_quick_gelu("ViT-L-14", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "ViT-L-41"}, "clip.model is 'ViT-L-41'.*ViT-L-14"),
        ({"model": "ViT-L-14", "pretrained": "opneai"}, "clip.pretrained is 'opneai'.*'openai'"),
        ({"model": "ViT-H-14"}, "clip.pretrained is None.*laion2b_s32b_b79k"),
        ({"dtype": "int8"}, "dtype"),
        ({"batch_size": "many"}, "batch_size"),
    ],
)
def test_a_wrong_option_names_key_value_and_choices(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_reward({"name": "clip", **options})


@pytest.mark.parametrize(
    "options", [{}, {"model": "hf-hub:nobody/clip"}, {"model": "ViT-B-32", "pretrained": "openai"}]
)
def test_weights_that_are_not_here_are_no_fault_of_the_architecture(
    options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(NotHereError, match="nor in the local cache.*`hf download") as caught:
        build_reward({"name": "clip", **options})
    assert "architecture" not in str(caught.value) and caught.value.__suppress_context__


def test_missing_and_truncated_weights_are_refused(architecture: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="could not be loaded"):
        build_reward({"name": "clip", "model": str(architecture)})
    config = (architecture / "open_clip_config.json").read_text()
    (tmp_path / "open_clip_config.json").write_text(config)
    (tmp_path / "open_clip_model.safetensors").write_bytes(b"\x10\x00\x00\x00")
    with pytest.raises(ValueError, match="could not be loaded.*complete"):
        build_reward({"name": "clip", "model": str(tmp_path)})


WIDTHS = (24, 1024, 128, 64, 16, 1)
PLACES = (0, 2, 4, 6, 7)


@pytest.fixture
def layers() -> dict[str, Tensor]:
    """Weights under their published names."""
    random = torch.Generator().manual_seed(0)
    weights = {}
    for place, a, b in zip(PLACES, WIDTHS, WIDTHS[1:], strict=False):
        weights[f"layers.{place}.weight"] = torch.randn(b, a, generator=random) / a**0.5
        weights[f"layers.{place}.bias"] = torch.randn(b, generator=random)
    return weights


@pytest.fixture
def entry(clip_directory: Path, layers: dict[str, Tensor], tmp_path: Path) -> dict:
    path = tmp_path / "sac+logos+ava1-l14-linearMSE.pth"
    torch.save(layers, path)
    model = {"model": str(clip_directory), "device": "cpu"}
    return {"name": "aesthetic", "checkpoint": str(path), **model}


def shown(pictures: list[Image.Image]) -> list[Sample]:
    return [Sample("whatever", image) for image in pictures]


def test_the_score_is_an_affine_map_of_clips_normalised_features(
    entry: dict, layers: dict[str, Tensor], pictures: list[Image.Image]
) -> None:
    name = f"local-dir:{entry['model']}"
    network, transform = open_clip.create_model_from_pretrained(name)
    with torch.no_grad():
        rows = network.eval().encode_image(torch.stack([transform(p) for p in pictures]))
    rows = rows / rows.norm(dim=-1, keepdim=True)
    for place in PLACES:
        rows = rows @ layers[f"layers.{place}.weight"].T + layers[f"layers.{place}.bias"]
    scores = torch.tensor(build_reward(entry)(shown(pictures)))
    torch.testing.assert_close(scores, rows[:, 0], atol=1e-4, rtol=0)
    assert scores.std() > 1e-3, "random weights must tell images apart"


def test_layers_for_another_clip_and_layers_that_lack_one_are_refused(
    entry: dict, layers: dict[str, Tensor]
) -> None:
    path = Path(entry["checkpoint"])
    torch.save({**layers, "layers.0.weight": torch.zeros(1024, 768)}, path)
    with pytest.raises(ValueError, match="(?s)does not fit the features.*layers.0.weight"):
        build_reward(entry)
    torch.save({k: v for k, v in layers.items() if k != "layers.7.bias"}, path)
    with pytest.raises(ValueError, match="missing.*layers.7.bias"):
        build_reward(entry)


def test_the_score_of_pixels_is_that_of_the_image_and_has_a_gradient(
    clip_directory: Path, entry: dict, pictures: list[Image.Image]
) -> None:
    own = {"name": "clip", "model": str(clip_directory), "device": "cpu"}
    prompts = ["a red circle", "two blue squares", "", "a red circle"]
    for each in (own, entry):
        check_gradient(build_reward(each), prompts, pictures, 28)
