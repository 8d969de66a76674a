"""Questions about images, from prompt to text: through the same sampler and scoring as any text."""

from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl.estimators import score
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.hidden import Hidden
from mmrl.models import Policy, load_policy
from mmrl.models.layouts.image_chat import SYSTEM
from mmrl.models.network.vision import Vision
from mmrl.pretrained.model_config import LoraConfig
from mmrl.runtime.precision import autocast_forward
from mmrl.training.adapter import add_adapter
from mmrl.types import Passes, Prompt
from tests.models.networks import write_small_llada_v
from tests.models.questions import PROMPTS, picture, rolled_out


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
def test_gradients_reach_the_projector_and_if_wanted_the_tower(
    directory: Path, tower: bool
) -> None:
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
