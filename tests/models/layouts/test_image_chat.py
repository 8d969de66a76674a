"""Questions about images, from prompt to text: through the same sampler and scoring as any text."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl.data.images import LazyImage, LazyImages
from mmrl.estimators import score
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.hidden import Hidden
from mmrl.models import Policy, load_policy
from mmrl.models.layouts.image_chat import SYSTEM
from mmrl.models.network.vision import Vision
from mmrl.pretrained.model_config import LoraConfig
from mmrl.runtime.precision import autocast_forward
from mmrl.samplers import SamplerConfig, sample
from mmrl.training.adapter import add_adapter
from mmrl.types import Passes, Prompt
from tests.models.networks import write_small_llada_v, write_small_mmada
from tests.models.questions import PROMPTS, generators, picture, question, rolled_out
from tests.pictures import png


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_llada_v(tmp_path_factory.mktemp("llada_v"))


def load(directory: Path, **options: bool) -> Policy:
    return load_policy(directory, max_prompt_length=300, max_completion_length=8, **options)


@pytest.fixture(scope="module")
def policy(directory: Path) -> Policy:
    return load(directory)


def eyes(policy: Policy) -> Vision:
    assert isinstance(policy.network.vision, Vision)
    return policy.network.vision


def halves(canvas: MaskedCanvas) -> Passes:
    """Two passes that hide and score every other response position."""
    even = torch.arange(canvas.tokens.shape[1]) % 2 == 0
    hidden = torch.stack((canvas.response & even, canvas.response & ~even))
    return Passes(Hidden(hidden), hidden, torch.ones(hidden.shape))


def test_a_conversation_is_llada_vs_with_the_image_in_its_place(policy: Policy) -> None:
    canvas, [prompt, _] = policy.canvas(PROMPTS[:1]), PROMPTS
    assert canvas.features is not None and canvas.features.embeddings is not None
    [tokens], [at] = canvas.tokens, canvas.features.at
    words = policy.tokenizer.decode(tokens[(at < 0) & ~canvas.response[0]]).replace(" ", "")
    system, user, assistant = (
        f"<|start_header_id|>{role}<|end_header_id|>??" for role in ("system", "user", "assistant")
    )
    # the newline behind the image is lost, as in the public code; other newlines this tokenizer,
    # which knows none, renders as question marks
    turns = f"{system}{SYSTEM}<|eot_id|>{user}whichcolour?<|eot_id|>{assistant}".replace(" ", "")
    assert words == "<|startoftext|>" + turns
    count = eyes(policy).tiling.rows(*prompt.images[0].size)
    assert at[at >= 0].tolist() == list(range(count)) and len(canvas.features.embeddings) == count
    first = int((at >= 0).int().argmax())
    before = policy.tokenizer.decode(tokens[:first]).replace(" ", "")
    assert before.endswith(user)


IMAGE = {"type": "image"}


def say(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


@pytest.mark.parametrize(
    ("content", "same"),
    [
        ([IMAGE, IMAGE, say("which?")], "<image> <image>\nwhich?"),
        ([say("a "), IMAGE, say("b"), IMAGE], "a <image>\nb<image>"),
        ([IMAGE, IMAGE, say("<image> or <image>?")], "<image> or <image>?"),
        ("which?", "<image> <image>\nwhich?"),
    ],
)
def test_parts_of_messages_stand_where_marks_in_words_would(
    content: Any, same: str, policy: Policy
) -> None:
    images = [picture(8, 8, 0), picture(16, 8, 1)]
    canvases = [
        policy.canvas([Prompt("0", "image_to_text", "", [{"role": "user", "content": c}], images)])
        for c in (content, same)
    ]
    assert torch.equal(canvases[0].tokens, canvases[1].tokens)
    assert torch.equal(*[c.features.at for c in canvases if c.features is not None])
    ends = (canvases[0].tokens == policy.tokenizer.get_vocab()["<|eot_id|>"]).sum()
    assert int(ends) == 1  # that of the turn, also where an image stands before it


@pytest.mark.parametrize("tower", [False, True])
def test_gradients_reach_the_projector_and_if_asked_the_tower(directory: Path, tower: bool) -> None:
    policy = load(directory, train_vision_tower=tower)
    done, looked = rolled_out(policy, PROMPTS), []
    eyes(policy).tower.encoder.register_forward_hook(lambda *_: looked.append(1))
    logprobs, *_ = score(policy, done.canvas, halves(done.canvas))
    # once per image for both passes where the tower may change, and never where it may not
    assert len(looked) == (2 if tower else 0)
    logprobs.sum().backward()
    moved = {
        name for name, p in policy.network.named_parameters() if p.grad is not None and p.grad.any()
    }
    assert {"vision.newline", "vision.projector.0.weight", "vision.projector.2.bias"} <= moved
    assert ("vision.tower.embeddings.patch_embedding.weight" in moved) == tower
    trained = {name for name, p in policy.network.named_parameters() if p.requires_grad}
    assert any(name.startswith("vision.tower") for name in trained) == tower
    assert trained == {n for n, p in policy.network.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("bf16", [False, True])
def test_under_an_adapter_embeddings_are_final_and_the_reference_sees_them_too(
    directory: Path, bf16: bool
) -> None:
    policy = load(directory)
    if bf16:
        autocast_forward(policy.network, policy.device)
    policy.model = add_adapter(policy.network, LoraConfig(r=2), seed=0)
    done = rolled_out(policy, PROMPTS)
    assert done.canvas.features is not None and done.canvas.features.source is None
    logprobs, *_ = score(policy, done.canvas, halves(done.canvas))
    with policy.model.disable_adapter():
        reference, *_ = score(policy, done.canvas, halves(done.canvas))
    assert torch.equal(logprobs, reference)
    logprobs.sum().backward()
    moved = {n for n, p in policy.network.named_parameters() if p.grad is not None and p.grad.any()}
    assert moved and all("lora_B" in name for name in moved)


@pytest.mark.parametrize(
    ("text", "images", "named"),
    [
        ("what?", 0, "prompt 'p' has 0 images and 0 marks <image>"),
        ("<image> and <image>", 1, "prompt 'p' has 1 images and 2 marks"),
        ("x" * 300, 1, "prompt 'p' has .* beside its images; max_prompt_length is 300"),
    ],
)
def test_prompts_that_cannot_be_laid_out_are_named(
    text: str, images: int, named: str, policy: Policy
) -> None:
    prompt = Prompt("p", "image_to_text", text, images=[picture(8, 8, n) for n in range(images)])
    with pytest.raises(ValueError, match=named):
        policy.canvas([prompt])


WRITERS: dict[str, Callable] = {"llada_v": write_small_llada_v, "mmada": write_small_mmada}


def load_any(directory: Path) -> Policy:
    vq = directory / "vq"
    limits = {"max_prompt_length": 300, "max_completion_length": 8}
    return load_policy(directory, vq=vq if vq.is_dir() else None, **limits)


@pytest.fixture(scope="module", params=WRITERS)
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return load_any(WRITERS[request.param](tmp_path_factory.mktemp(request.param)))


@pytest.mark.parametrize(
    "settings",
    [{}, {"cfg_scale": 1.0}, {"block_size": 4, "cache": "prefix"}]
    + [{"block_size": 4, "cache": "dual"}, {"name": "emerge"}, {"eos": "leave"}],
)
def test_a_row_equals_the_row_alone_whatever_the_others_show(
    settings: dict[str, object], either: Policy
) -> None:
    sampler = SamplerConfig(**{"name": "static", "steps": 4, **settings})
    prompts = [*PROMPTS, question(2, 5, 30, "?"), PROMPTS[0]]
    together = rolled_out(either, prompts, sampler)
    for row, prompt in enumerate(prompts):
        canvas = either.canvas([prompt])
        alone = sample(either, canvas, sampler, generators(len(prompts))[row : row + 1])
        width = canvas.tokens.shape[1]
        assert torch.equal(together.canvas.tokens[row, -width:], alone.canvas.tokens[0])
        difference = together.logprobs[row, -width:] - alone.logprobs[0]
        assert float(difference.abs().max()) < 1e-4


def test_a_response_is_text_of_the_tokenizer(either: Policy) -> None:
    done = rolled_out(either, PROMPTS * 4).canvas
    written = done.tokens[done.response]
    assert int(written.min()) >= 0 and int(written.max()) < len(either.tokenizer)
    assert not bool(torch.isin(written, torch.tensor([either.mask_id, *done.banned])).any())
    assert all(isinstance(text, str) for text in either.decode(done, PROMPTS * 4))


def test_a_picture_of_a_file_is_measured_unopened_and_opened_once_for_its_group(
    either: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    monkeypatch.setattr(LazyImage, "open", lambda p, was=LazyImage.open: opened.append(1) or was(p))
    prompt = Prompt(
        "1", "image_to_text", "?", images=LazyImages([LazyImage(png(picture(20, 9, 1)))])
    )
    assert either.fits(prompt) and not opened
    canvas = either.canvas([prompt] * 4)
    assert len(opened) == 1
    given = either.canvas([replace(prompt, images=[picture(20, 9, 1)])])
    assert torch.equal(canvas.tokens[:1], given.tokens)
    if canvas.features is not None and given.features is not None:
        assert torch.equal(canvas.features.at[:1], given.features.at)
        assert torch.equal(canvas.features.embeddings, given.features.embeddings)
