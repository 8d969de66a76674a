"""The CLIP similarity of an edit to its source, and CLIP with the caption of the target."""

from pathlib import Path

import open_clip
import pytest
import torch
from PIL import Image

from mmrl.rewards import build_reward
from mmrl.types import Sample
from tests.rewards.rounding import up_to_rounding


@pytest.fixture
def entry(clip_directory: Path) -> dict:
    return {"model": str(clip_directory), "device": "cpu"}


@pytest.fixture
def edits(pictures: list[Image.Image]) -> list[Sample]:
    return [Sample("turn it", image, {}, [image.rotate(180)]) for image in pictures]


@torch.no_grad()
def test_the_score_is_the_cosine_of_both_images(entry: dict, edits: list[Sample]) -> None:
    name = f"local-dir:{entry['model']}"
    network, transform = open_clip.create_model_from_pretrained(name)
    network = network.eval()
    sources, made = (
        network.encode_image(torch.stack([transform(image) for image in images]))
        for images in ([e.images[0] for e in edits], [e.completion for e in edits])
    )
    expected = torch.nn.functional.cosine_similarity(sources, made)
    reward = build_reward({"name": "clip_image", **entry})
    scores = torch.tensor(reward(edits))
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)
    unchanged = Sample("x", edits[0].completion, {}, [edits[0].completion])
    assert reward([unchanged]) == [pytest.approx(1.0, abs=1e-5)]


def test_a_sample_without_a_source_has_no_score(entry: dict, edits: list[Sample]) -> None:
    reward = build_reward({"name": "clip_image", **entry})
    bare = Sample("x", edits[0].completion)
    assert reward([bare]) == [None]
    shared = Sample("x", edits[1].completion, {}, edits[0].images)
    found = reward([edits[0], bare, shared])
    assert found[1] is None
    assert [found[0], found[2]] == up_to_rounding([reward([edits[0]])[0], reward([shared])[0]])


def test_clip_compares_an_edit_with_the_caption_of_its_target(
    entry: dict, pictures: list[Image.Image]
) -> None:
    by_prompt = build_reward({"name": "clip", **entry})
    by_target = build_reward({"name": "clip", "text": "target_text", **entry})
    edit = Sample("make it blue", pictures[0], {"target_text": "a blue circle"})
    caption = Sample("a blue circle", pictures[0])
    assert by_target([edit]) == by_prompt([caption]) != by_prompt([edit])
    assert by_target([caption]) == by_prompt([caption])  # without one, the prompt
    with pytest.raises(ValueError, match="metadata.target_text is 3; it must be a text"):
        by_target([Sample("x", pictures[0], {"target_text": 3})])
