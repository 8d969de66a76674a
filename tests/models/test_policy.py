"""A policy from prompt to image: canvases, padding, decoding, and the way to disk and back."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mmrl.data.prompts import drop_long
from mmrl.models import Policy, load_policy
from mmrl.models.image_tokenizers.image_tokenizer import save_vq
from mmrl.models.image_tokenizers.magvit import MagvitConfig, MagvitV2
from mmrl.models.layouts.text_to_image import to_images
from mmrl.models.loading import save_model
from mmrl.pretrained.checks import check_checkpoints
from mmrl.pretrained.model_config import ModelConfig
from mmrl.types import Canvas, Prompt
from tests.models.networks import LEVELS, small_network
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


def finished(canvas: Canvas, policy: Policy) -> Canvas:
    """The canvas with the codes 0, 1, … written in reading order."""
    codes = torch.arange(int(canvas.response.sum())).view(len(canvas), -1) % 32
    canvas.tokens[canvas.response] = codes.flatten() + canvas.vocab[0]
    return canvas


@torch.no_grad()
def image_logits(policy: Policy, canvas: Canvas) -> Tensor:
    out = policy.model(
        input_ids=canvas.tokens,
        attention_mask=canvas.attend,
        positions=canvas.response,
        columns=canvas.vocab,
    )
    return out.logits


def test_a_canvas_masks_the_image_and_nothing_else(policy: Policy) -> None:
    canvas = policy.canvas(PROMPTS)
    assert canvas.tokens.shape == (2, 20 + 1 + 16 + 2) and canvas.grid == (4, 4)
    assert torch.equal(canvas.response, canvas.tokens == policy.mask_id)
    assert canvas.response.sum(1).tolist() == [16, 16]
    assert canvas.vocab == (len(policy.tokenizer), len(policy.tokenizer) + 32)
    assert canvas.attend is None and canvas.uncond_attend is None


def test_the_twin_differs_in_the_text_and_follows_what_is_written(policy: Policy) -> None:
    canvas = finished(policy.canvas(PROMPTS), policy)
    twin = canvas.unconditional()
    assert torch.equal(twin.tokens[:, -18:], canvas.tokens[:, -18:])
    assert torch.equal(twin.tokens[0, :21], twin.tokens[1, :21])
    assert (twin.tokens[:, :21] != canvas.tokens[:, :21]).any(1).all()


def test_columns_that_are_padding_in_every_row_are_cut(padding_aware: Policy) -> None:
    canvas = padding_aware.canvas(PROMPTS)
    around = len(["t2i", "bos", "eos"]) + 16 + len(["soi", "eoi"])
    assert canvas.tokens.shape == (2, len("two big dogs") + around)
    assert canvas.attend is not None and canvas.uncond_attend is not None
    assert canvas.attend.sum(1).tolist() == [len(p.text) + around for p in PROMPTS]
    assert canvas.uncond_attend.sum(1).tolist() == [around, around]


def test_cutting_padding_does_not_change_logits(policy: Policy, padding_aware: Policy) -> None:
    whole = policy.canvas(PROMPTS)
    pad = policy.tokenizer.get_vocab()["<|reserved_token_9|>"]
    whole.attend = whole.tokens != pad
    cut = padding_aware.canvas(PROMPTS)
    for a, b in ((whole, cut), (whole[:1], padding_aware.canvas(PROMPTS[:1]))):
        difference = image_logits(policy, a) - image_logits(padding_aware, b)
        # sums over rows of another length, of logits that reach 10: float32 rounds by 1e-6 of that
        assert difference.abs().max() < 5e-5


def test_padding_that_is_attended_to_changes_logits(policy: Policy, padding_aware: Policy) -> None:
    ignored, heeded = policy.canvas(PROMPTS), padding_aware.canvas(PROMPTS)
    difference = image_logits(policy, ignored) - image_logits(padding_aware, heeded)
    assert difference.abs().max() > 1e-3


def test_finished_canvases_decode_to_the_images_of_their_codes(policy: Policy) -> None:
    canvas = finished(policy.canvas(PROMPTS), policy)
    images = policy.decode(canvas, PROMPTS)
    assert [image.size for image in images] == [(8, 8), (8, 8)]
    task = policy.layouts["text_to_image"]
    codes = (torch.arange(32) % 32).view(2, 16)
    expected = to_images(task.vq.decode_code(codes))
    assert [image.tobytes() for image in images] == [image.tobytes() for image in expected]


def test_an_unfinished_canvas_is_not_decoded(policy: Policy) -> None:
    with pytest.raises(ValueError, match="finished"):
        policy.decode(policy.canvas(PROMPTS), PROMPTS)


def test_pixels_outside_the_range_are_clamped() -> None:
    pixels = torch.tensor([-3.0, -1.0, 1.0, 5.0]).expand(1, 3, 1, 4)
    [image] = to_images(pixels)
    assert [image.getpixel((x, 0))[0] for x in range(4)] == [0, 0, 255, 255]


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


def test_an_image_has_the_length_of_its_grid_whatever_is_asked_for(policy: Policy) -> None:
    assert policy.canvas(PROMPTS, 16).response.sum(1).tolist() == [16, 16]
    with pytest.raises(ValueError, match="max_completion_length is 20; an image has 16 tokens"):
        policy.canvas(PROMPTS, 20)


def test_image_size_decides_the_grid(checkpoint: Path) -> None:
    policy = load_policy(checkpoint, vq=checkpoint / "vq", image_size=12)
    assert policy.canvas(PROMPTS).grid == (6, 6)
    with pytest.raises(ValueError, match="image_size is 13"):
        load_policy(checkpoint, vq=checkpoint / "vq", image_size=13)


def test_an_unknown_mask_policy_is_named_with_those_there_are(checkpoint: Path) -> None:
    with pytest.raises(ValueError, match="'none'.*ignore, key_padding"):
        load_policy(checkpoint, vq=checkpoint / "vq", mask_policy="none")


def test_a_checkpoint_without_tokenizer_still_loads_as_a_network(
    checkpoint: Path, tmp_path: Path
) -> None:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(checkpoint / name, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json.*load_model"):
        load_policy(tmp_path, vq=None)


@pytest.mark.parametrize("damage", ["truncated", "empty", "too many codes"])
def test_what_is_wrong_with_the_image_tokenizer_is_known_before_the_network_loads(
    damage: str, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(checkpoint / "vq", tmp_path / "vq")
    weights = tmp_path / "vq" / "model.safetensors"
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif damage == "empty":
        weights.unlink()
    else:
        save_vq(MagvitV2(MagvitConfig(ch=4, bits=6, norm_groups=2, **LEVELS)), tmp_path / "vq")
    monkeypatch.setattr("mmrl.models.policy.load_model", lambda *_: pytest.fail("network loaded"))
    named = {"empty": "no weights", "truncated": "truncated", "too many codes": "64 image codes"}
    with pytest.raises((FileNotFoundError, ValueError), match=named[damage]):
        load_policy(checkpoint, vq=tmp_path / "vq")


def test_a_vocabulary_without_room_for_the_codes_is_refused(
    checkpoint: Path, tmp_path: Path
) -> None:
    shutil.copytree(checkpoint, tmp_path, dirs_exist_ok=True)
    model = small_network(vocab_size=130)
    model.public_config |= {"model_type": "mmada", "mask_token_id": 115}
    save_model(model, tmp_path)
    with pytest.raises(ValueError, match="32 image codes"):
        load_policy(tmp_path, vq=checkpoint / "vq")


@pytest.mark.parametrize("damage", ["mask", "tokens"])
def test_a_tokenizer_of_another_checkpoint_is_refused_before_weights_load(
    damage: str, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(checkpoint, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    if damage == "mask":
        (tmp_path / "config.json").write_text(json.dumps({**config, "mask_token_id": 5}))
    else:
        text = (tmp_path / "tokenizer.json").read_text().replace("<|mdm_mask|>", "<|other|>")
        (tmp_path / "tokenizer.json").write_text(text)
    monkeypatch.setattr("mmrl.models.policy.load_model", lambda *_: pytest.fail("network loaded"))
    named = {
        "mask": "the mask 115 .* mask_token_id 5 in",
        "tokens": r"lacks .*<\|mdm_mask\|>",
    }
    for check in (
        lambda: load_policy(tmp_path, vq=None),
        lambda: check_checkpoints(ModelConfig(path=str(tmp_path), vq=None)),  # of a dry run
    ):
        with pytest.raises(ValueError, match=named[damage]) as raised:
            check()
        assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize(("family", "words"), [("mmada", 20), ("lumina", 200), ("amused", 5)])
def test_prompts_of_images_that_lose_their_end_are_counted(
    family: str, words: int, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        policy = small_policy(family)
    except ImportError:
        pytest.skip(f"{family} needs a package that is not installed")
    texts = ["red", "red red ", " ".join(["red"] * words)]
    prompts = [Prompt(text, "text_to_image", text) for text in texts]
    assert [policy.cuts(prompt) for prompt in prompts] == [False, False, True]
    assert drop_long(prompts, policy.fits, "rows.jsonl", policy.cuts) == prompts
    assert "rows.jsonl: 1 of 3 prompts are cut" in caplog.text
