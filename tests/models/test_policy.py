"""A policy from prompt to image: canvases, padding, decoding, and the way to disk and back."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from mmrl.data.prompts import drop_long
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.models import Policy, load_policy
from mmrl.models.image_tokenizers.image_tokenizer import to_bytes
from mmrl.models.layouts.text_to_image import open_images
from mmrl.types import Prompt
from tests.models.small_policies import small_policy

TEXTS = ["a cat", "two big dogs"]
PROMPTS = [Prompt(str(i), "text_to_image", text) for i, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def policy(checkpoint: Path) -> Policy:
    return load_policy(checkpoint, vq=checkpoint / "vq", max_prompt_length=20)


@pytest.fixture(scope="module")
def padding_aware(checkpoint: Path) -> Policy:
    return load_policy(
        checkpoint, vq=checkpoint / "vq", max_prompt_length=20, mask_policy="key_padding"
    )


def finished(canvas: MaskedCanvas, policy: Policy) -> MaskedCanvas:
    """The canvas with the codes 0, 1, … written in reading order."""
    codes = torch.arange(int(canvas.response.sum())).view(len(canvas), -1) % 32
    canvas.tokens[canvas.response] = codes.flatten() + canvas.columns[0]
    return canvas


@torch.no_grad()
def image_logits(policy: Policy, canvas: MaskedCanvas) -> Tensor:
    out = policy.model(
        input_ids=canvas.tokens,
        attention_mask=canvas.attend,
        positions=canvas.response,
        columns=canvas.columns,
    )
    return out.logits


def test_the_branch_without_text_follows_what_is_written(policy: Policy) -> None:
    canvas = finished(policy.canvas(PROMPTS), policy)
    branch = canvas.unconditional()
    assert torch.equal(branch.tokens[:, -18:], canvas.tokens[:, -18:])
    assert torch.equal(branch.tokens[0, :21], branch.tokens[1, :21])
    assert (branch.tokens[:, :21] != canvas.tokens[:, :21]).any(1).all()


def test_cutting_padding_does_not_change_logits(policy: Policy, padding_aware: Policy) -> None:
    whole = policy.canvas(PROMPTS)
    pad = policy.tokenizer.get_vocab()["<|reserved_token_9|>"]
    whole.attend = whole.tokens != pad
    cut = padding_aware.canvas(PROMPTS)
    for a, b in ((whole, cut), (whole[:1], padding_aware.canvas(PROMPTS[:1]))):
        difference = image_logits(policy, a) - image_logits(padding_aware, b)
        # sums over rows of another length, of logits that reach 10: float32 rounds by 1e-6 of that
        assert difference.abs().max() < 5e-5


def test_finished_canvases_decode_to_the_images_of_their_codes(policy: Policy) -> None:
    canvas = finished(policy.canvas(PROMPTS), policy)
    images = policy.decode(canvas, PROMPTS)
    assert [image.size for image in images] == [(8, 8), (8, 8)]
    task = policy.layouts["text_to_image"]
    codes = (torch.arange(32) % 32).view(2, 16)
    expected = open_images(to_bytes(task.vq.decode_code(codes)))
    assert [image.tobytes() for image in images] == [image.tobytes() for image in expected]


def test_a_policy_saved_and_loaded_is_the_same(policy: Policy, tmp_path: Path) -> None:
    policy.save(tmp_path)
    vq = policy.layouts["text_to_image"].vq
    loaded = load_policy(tmp_path, vq=None)
    assert loaded.network.public_config == policy.network.public_config
    assert loaded.tokenizer.get_vocab() == policy.tokenizer.get_vocab()
    assert loaded.mask_id == policy.mask_id and set(loaded.layouts) == {"text"}
    canvas = policy.canvas(PROMPTS)
    assert torch.equal(image_logits(loaded, canvas), image_logits(policy, canvas))
    assert vq.codebook_size == 32


def test_prompts_of_another_task_are_refused_with_those_there_are(policy: Policy) -> None:
    with pytest.raises(ValueError, match=r"\['mmu'\].*\['image_edit', .*'text_to_image'\]"):
        policy.canvas([Prompt("0", "mmu", "hello")])
    with pytest.raises(ValueError, match="one task at a time"):
        policy.canvas([*PROMPTS, Prompt("0", "text", "hello")])


@pytest.mark.parametrize(("family", "words"), [("mmada", 20), ("lumina", 200), ("amused", 5)])
def test_prompts_of_images_that_lose_their_end_are_counted(
    family: str, words: int, caplog: pytest.LogCaptureFixture
) -> None:
    policy = small_policy(family)
    texts = ["red", "red red ", " ".join(["red"] * words)]
    prompts = [Prompt(text, "text_to_image", text) for text in texts]
    assert [policy.cuts(prompt) for prompt in prompts] == [False, False, True]
    assert drop_long(prompts, policy.fits, "rows.jsonl", policy.cuts) == prompts
    assert "rows.jsonl: 1 of 3 prompts are cut" in caplog.text
