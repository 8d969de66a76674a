"""The CLIP directional score of edits."""

from pathlib import Path

import open_clip
import pytest
import torch
from PIL import Image

from mmrl.rewards import build_reward
from mmrl.types import Sample
from tests.rewards.rounding import up_to_rounding

SOURCES = ["a street", "a red circle", "a house", "a street"]
TARGETS = ["a street in winter", "a blue circle", "a burning house", "a street at night"]


@pytest.fixture
def entry(clip_directory: Path) -> dict:
    return {"name": "clip_direction", "model": str(clip_directory), "device": "cpu"}


@pytest.fixture
def edits(pictures: list[Image.Image]) -> list[Sample]:
    """Images, each turned upside down from its source."""
    return [
        Sample("make it so", image, {"source_text": s, "target_text": t}, [image.rotate(180)])
        for image, s, t in zip(pictures, SOURCES, TARGETS, strict=True)
    ]


def test_the_score_is_the_cosine_of_both_differences(entry: dict, edits: list[Sample]) -> None:
    name = f"local-dir:{entry['model']}"
    network, transform = open_clip.create_model_from_pretrained(name)
    tokenizer, network = open_clip.get_tokenizer(name), network.eval()

    def moved(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        return after / after.norm(dim=-1, keepdim=True) - before / before.norm(dim=-1, keepdim=True)

    with torch.no_grad():
        before = torch.stack([transform(e.images[0]) for e in edits])  # type: ignore[index]
        after = torch.stack([transform(e.completion) for e in edits])
        images = moved(network.encode_image(before), network.encode_image(after))
        texts = moved(
            network.encode_text(tokenizer(SOURCES)), network.encode_text(tokenizer(TARGETS))
        )
    expected = (images * texts).sum(-1) / images.norm(dim=-1) / texts.norm(dim=-1)
    scores = torch.tensor(build_reward(entry)(edits))
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)
    assert scores.std() > 1e-3, "random weights must tell edits apart"


def test_what_else_is_scored_changes_a_score_by_no_more_than_rounding(
    entry: dict, edits: list[Sample]
) -> None:
    reward = build_reward({**entry, "batch_size": 3})
    alone = [reward([edit])[0] for edit in edits]
    assert reward(edits) == up_to_rounding(alone)


def test_the_rollouts_of_a_prompt_share_its_source(entry: dict, edits: list[Sample]) -> None:
    reward, (a, b) = build_reward(entry), edits[:2]
    shared = Sample(a.prompt, b.completion, a.metadata, a.images)
    assert reward([a, shared]) == [reward([a])[0], reward([shared])[0]]


def test_the_prompt_is_the_target_where_no_other_is_given(entry: dict, edits: list[Sample]) -> None:
    reward, edit = build_reward(entry), edits[0]
    described = Sample(TARGETS[0], edit.completion, {"source_text": SOURCES[0]}, edit.images)
    assert reward([described]) == reward([edit])


def test_an_unchanged_picture_scores_zero(entry: dict, edits: list[Sample]) -> None:
    edit = edits[0]
    assert isinstance(edit.completion, Image.Image)
    assert build_reward(entry)(
        [Sample("x", edit.completion, edit.metadata, [edit.completion])]
    ) == [0.0]


def test_a_sample_without_source_has_no_score(entry: dict, edits: list[Sample]) -> None:
    reward, edit = build_reward(entry), edits[0]
    bare = Sample("a street", edit.completion)
    no_image = Sample("a street in winter", edit.completion, edit.metadata)
    no_text = Sample("a street in winter", edit.completion, {}, edit.images)
    assert reward([bare, no_image, no_text]) == [None, None, None]
    assert reward([bare, edit]) == [None, reward([edit])[0]]


def test_equal_texts_and_texts_that_are_none_are_refused(entry: dict, edits: list[Sample]) -> None:
    reward = build_reward(entry)
    with pytest.raises(ValueError, match="metadata.source_text is 3.*a text"):
        reward.check({"source_text": 3})  # type: ignore[attr-defined]
    reward.check({})  # type: ignore[attr-defined]
    same = Sample("a street", edits[0].completion, {"source_text": "a street"}, edits[0].images)
    with pytest.raises(ValueError, match="metadata.source_text is 'a street'.*another text"):
        reward([same])


def test_a_text_completion_is_an_error(entry: dict) -> None:
    with pytest.raises(ValueError, match="'clip_direction' scores images.*str"):
        build_reward(entry)([Sample("a red circle", "words")])
