"""Questions about images, from prompt to text: through the same sampler and scoring as any text."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Generator, Tensor

from mmrl.data.lazy_images import LazyImage, LazyImages
from mmrl.estimators import score
from mmrl.estimators.scoring import predict_values
from mmrl.models import Policy, load_policy
from mmrl.models.layouts.image_chat import SYSTEM, EmbeddingAlbum, ImageChat
from mmrl.models.network.value_head import ValueHead, ValueNetwork, copy_backbone
from mmrl.models.network.vision import Vision
from mmrl.pretrained.model_config import LoraConfig
from mmrl.runtime.precision import autocast_forward
from mmrl.samplers import SamplerConfig, sample
from mmrl.training.adapter import add_adapter
from mmrl.types import Canvas, Passes, Prompt, Rollout
from tests.models.networks import write_small_llada_v

SETTINGS = SamplerConfig(name="static", steps=4)


def picture(width: int, height: int, seed: int) -> Image.Image:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def question(number: int, width: int, height: int, text: str = "which colour?") -> Prompt:
    image = picture(width, height, number)
    return Prompt(str(number), "image_to_text", text, images=[image])


PROMPTS = [question(0, 8, 8), question(1, 20, 9, "how many shapes are there?")]


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


def generators(rows: int) -> list[Generator]:
    return [Generator().manual_seed(row) for row in range(rows)]


def rolled_out(policy: Policy, prompts: list[Prompt], sampler: SamplerConfig = SETTINGS) -> Rollout:
    return sample(policy, policy.canvas(prompts), sampler, generators(len(prompts)))


def halves(canvas: Canvas) -> Passes:
    """Two passes that hide and score every other response position."""
    even = torch.arange(canvas.tokens.shape[1]) % 2 == 0
    hidden = torch.stack((canvas.response & even, canvas.response & ~even))
    return Passes(hidden, hidden, torch.ones(hidden.shape))


@contextmanager
def counted(module: torch.nn.Module) -> Iterator[list[int]]:
    """How often a module is called."""
    calls: list[int] = []
    hook = module.register_forward_hook(lambda *_: calls.append(1))
    try:
        yield calls
    finally:
        hook.remove()


def test_a_conversation_is_llada_vs_with_the_image_in_its_place(policy: Policy) -> None:
    canvas, [prompt, _] = policy.canvas(PROMPTS[:1]), PROMPTS
    assert canvas.features is not None and canvas.features.rows is not None
    [tokens], [at] = canvas.tokens, canvas.features.at
    words = policy.tokenizer.decode(tokens[(at < 0) & ~canvas.response[0]]).replace(" ", "")
    head = "<|start_header_id|>{}<|end_header_id|>??"
    # the newline behind the image is lost, as in the public code; other newlines this tokenizer,
    # which knows none, renders as question marks
    assert words == (
        "<|startoftext|>"
        + head.format("system")
        + SYSTEM.replace(" ", "")
        + "<|eot_id|>"
        + head.format("user")
        + "whichcolour?<|eot_id|>"
        + head.format("assistant")
    )
    count = eyes(policy).tiling.rows(*prompt.images[0].size)
    assert at[at >= 0].tolist() == list(range(count)) and len(canvas.features.rows) == count
    first = int((at >= 0).int().argmax())
    before = policy.tokenizer.decode(tokens[:first]).replace(" ", "")
    assert before.endswith(head.format("user"))


def test_several_images_stand_where_their_marks_are(policy: Policy) -> None:
    one, two = picture(8, 8, 0), picture(16, 8, 1)
    prompt = Prompt("0", "image_to_text", "a <image> b <image> c", images=[one, two])
    features = policy.canvas([prompt]).features
    assert features is not None and len(features.images) == 2
    places = features.at[0][features.at[0] >= 0]
    assert torch.equal(places, torch.arange(len(places)))
    gaps = (features.at[0] >= 0).int().diff().eq(1).sum()
    assert int(gaps) == 2
    messages = [{"role": "user", "content": "<image>\nwhat?"}]
    own = Prompt("1", "image_to_text", "ignored", messages=messages, images=[one])
    assert policy.canvas([own]).features is not None


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


def test_pictures_of_a_file_are_measured_unopened_and_opened_once_for_their_group(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer, opened = io.BytesIO(), []
    picture(20, 9, 1).save(buffer, "PNG")
    monkeypatch.setattr(LazyImage, "open", lambda p, was=LazyImage.open: opened.append(1) or was(p))
    sources = [LazyImage(buffer.getvalue()) for _ in range(2)]
    prompt = Prompt("1", "image_to_text", "?", images=LazyImages(sources))
    assert policy.fits(prompt) and not opened
    canvas = policy.canvas([prompt] * 4)
    assert len(opened) == 2
    given = policy.canvas([replace(prompt, images=[picture(20, 9, 1)] * 2)])
    assert canvas.features is not None and given.features is not None
    assert torch.equal(canvas.features.at[:1], given.features.at)
    assert torch.equal(canvas.features.rows, given.features.rows)


def test_a_response_ends_with_a_turn_and_has_no_other_structural_token(policy: Policy) -> None:
    canvas, ids = policy.canvas(PROMPTS), policy.tokenizer.get_vocab()
    assert canvas.stop_ids == (ids["<|eot_id|>"],)
    assert {ids["<|endoftext|>"], ids["<|startoftext|>"]} < set(canvas.banned)
    done = rolled_out(policy, PROMPTS * 8).canvas
    assert not bool(torch.isin(done.tokens[done.response], torch.tensor(canvas.banned)).any())
    assert all(isinstance(text, str) for text in policy.decode(done, PROMPTS * 8))


def test_an_image_is_looked_at_once_for_its_group_in_all_steps_and_passes(policy: Policy) -> None:
    group = [PROMPTS[0]] * 4 + [PROMPTS[1]] * 4
    tower = eyes(policy).tower.encoder
    with counted(tower) as looked, counted(policy.network.blocks[0]) as passed:
        done = rolled_out(policy, group, SamplerConfig(name="static", steps=8))
        for rows in (slice(0, 3), slice(3, 8)):
            score(policy, done.canvas[rows], halves(done.canvas)[rows])
    assert len(looked) == 2 and len(passed) == 12
    assert done.canvas.features is not None and len(done.canvas.features.images) == 2


def test_nothing_is_computed_anew_where_nothing_is_trained(directory: Path) -> None:
    policy = load(directory)
    policy.network.requires_grad_(False)
    with counted(eyes(policy)) as calls:
        done = rolled_out(policy, PROMPTS)
        score(policy, done.canvas, halves(done.canvas))
    assert len(calls) == 1
    assert done.canvas.features is not None and done.canvas.features.source is None


@pytest.mark.parametrize("tower", [False, True])
def test_gradients_reach_the_projector_and_if_wanted_the_tower(
    directory: Path, tower: bool
) -> None:
    policy = load(directory, train_vision_tower=tower)
    done = rolled_out(policy, PROMPTS)
    with counted(eyes(policy).tower.encoder) as looked:
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


@pytest.mark.parametrize("patterns", ["vision.tower", "vision.tower.encoder.layers.1"])
def test_recomputed_layers_of_the_tower_change_no_gradient_and_are_not_kept(
    directory: Path, patterns: str
) -> None:
    gradients, kept = [], []
    for recompute in (False, True):
        policy = load(directory, train_vision_tower=True)
        network = policy.network
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(name.startswith(patterns) and parameter.requires_grad)
        network.gradient_checkpointing = recompute
        saved: list[int] = []

        def count(tensor: Tensor, saved: list[int] = saved) -> Tensor:
            saved.append(tensor.numel())
            return tensor

        album = EmbeddingAlbum(eyes(policy).tiling, 0)
        album.add([picture(8, 8, 1)], 0)
        features = album.features(torch.zeros(1, 1, dtype=torch.long))
        assert features is not None
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            rows, _ = network(images=features.source, shown=features.images)
        rows.square().sum().backward()
        trained = [p for p in network.parameters() if p.requires_grad]
        gradients.append([p.grad for p in trained])
        kept.append(sum(saved))
    assert gradients[0] and all(g is not None and g.any() for g in gradients[0])
    assert all(torch.equal(one, two) for one, two in zip(*gradients, strict=True))
    assert kept[1] < (0.5 if patterns == "vision.tower" else 1) * kept[0]


def test_the_gradient_of_the_projector_is_that_of_finite_differences(directory: Path) -> None:
    policy = load(directory)
    policy.network.double()
    done = rolled_out(policy, PROMPTS)
    weight = eyes(policy).newline

    def total() -> Tensor:
        return score(policy, done.canvas, halves(done.canvas))[0].double().sum()

    total().backward()
    assert weight.grad is not None
    place = int(weight.grad.abs().argmax())
    with torch.no_grad():
        values = []
        for step in (1e-3, -2e-3):
            weight[place] += step
            values.append(float(total()))
    assert (values[0] - values[1]) / 2e-3 == pytest.approx(float(weight.grad[place]), rel=1e-2)


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


@torch.no_grad()
def test_a_value_model_reads_the_same_embeddings_without_eyes_of_its_own(policy: Policy) -> None:
    backbone = copy_backbone(policy.network)
    assert backbone.vision is None and policy.network.vision is not None
    head = ValueHead(32, "cpu", torch.float32)
    head.weight.fill_(1.0)
    done = rolled_out(policy, PROMPTS)
    values = predict_values(ValueNetwork(backbone, head), done.canvas, halves(done.canvas))
    blind = replace(done.canvas, features=None)
    others = predict_values(ValueNetwork(backbone, head), blind, halves(done.canvas))
    assert bool((values != others)[halves(done.canvas).scored].all())


def test_micro_batches_score_as_the_whole_batch_and_compute_only_what_they_show(
    directory: Path,
) -> None:
    policy = load(directory, train_vision_tower=True)
    done = rolled_out(policy, [*PROMPTS, PROMPTS[0]])
    passes = halves(done.canvas)
    whole, *_ = score(policy, done.canvas, passes)
    for rows, images in ((slice(0, 1), 1), (slice(1, 2), 1), (slice(1, 3), 2)):
        with counted(eyes(policy).tower.encoder) as looked:
            part, *_ = score(policy, done.canvas[rows], passes[rows])
        assert len(looked) == images
        torch.testing.assert_close(part, whole[:, rows], atol=1e-5, rtol=0)


@torch.no_grad()
def test_an_image_that_is_hidden_with_its_prompt_is_not_seen(policy: Policy) -> None:
    other = Prompt("0", "image_to_text", PROMPTS[0].text, images=[picture(8, 8, 99)])
    canvases = [policy.canvas([prompt]) for prompt in (PROMPTS[0], other)]
    tokens = canvases[0].tokens.masked_fill(canvases[0].response, 5)
    scores = []
    for canvas in canvases:
        assert canvas.features is not None
        canvas.tokens = tokens
        hidden = (canvas.response | (canvas.features.at >= 0))[None]
        passes = Passes(hidden, canvas.response[None], hidden.float())
        scores.append(score(policy, canvas, passes)[0])
    assert torch.equal(*scores)


@torch.no_grad()
def test_images_computed_at_once_are_those_computed_one_by_one(directory: Path) -> None:
    policy = load(directory)
    features = policy.layouts["image_to_text"].canvas(PROMPTS).features
    assert features is not None and features.source is not None
    rows = [features.compute(policy.model).rows]
    eyes(policy).one_by_one = False
    with counted(eyes(policy).tower.encoder) as looked:
        rows.append(features.compute(policy.model).rows)
    assert len(looked) == 1 and len(features.images) == 2
    torch.testing.assert_close(rows[0], rows[1], rtol=0, atol=1e-5)


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


def test_a_row_longer_than_the_checkpoint_was_trained_with_is_refused(policy: Policy) -> None:
    large, task = question(2, 64, 64), policy.layouts["image_to_text"]
    assert isinstance(task, ImageChat)
    limited = replace(task, max_length=policy.canvas(PROMPTS[:1]).tokens.shape[1])
    assert [limited.fits(prompt) for prompt in (PROMPTS[0], large)] == [True, False]
    longer = policy.canvas(PROMPTS[:1]).response.sum() + 1
    assert not limited.fits(PROMPTS[0], int(longer)) and limited.fits(PROMPTS[0], 1)
    with pytest.raises(ValueError, match=r"prompt '2' takes \d+ .*\(tokenizer_model_max_length\)"):
        limited.canvas([large])


def test_a_tokenizer_without_a_chat_template_is_refused(directory: Path, tmp_path: Path) -> None:
    policy = load(directory)
    policy.tokenizer.chat_template = None
    policy.save(tmp_path)
    with pytest.raises(ValueError, match="no chat template"):
        load(tmp_path)


def test_a_tower_that_is_not_there_cannot_be_trained(checkpoint: Path) -> None:
    with pytest.raises(ValueError, match="train_vision_tower is true"):
        load_policy(checkpoint, vq=None, train_vision_tower=True)
