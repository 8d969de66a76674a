"""Text about images from causal models, against transformers' processor, `generate` and forward."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from transformers import (
    AutoImageProcessor,
    Qwen2_5_VLProcessor,
    Qwen3VLProcessor,
    VideoProcessorMixin,
)

from mmrl.algorithms import AlgorithmConfig
from mmrl.estimators import draw_passes, score
from mmrl.models import load_policy
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt, Rollout
from tests.mmrl.canvases import generators
from tests.mmrl.generation.test_causal import rows_of
from tests.models.causal import SEEING, write_qwen_vl

LENGTH = 12
SAMPLER: dict[str, Any] = {"name": "autoregressive"}
GREEDY: dict[str, Any] = {"temperature": 0.0}
WARM: dict[str, Any] = {"temperature": 0.7}
PROCESSORS: dict[str, Any] = {"qwen2_5_vl": Qwen2_5_VLProcessor, "qwen3_vl": Qwen3VLProcessor}


def picture(width: int, height: int) -> Image.Image:
    """Colours that differ from pixel to pixel."""
    image = Image.new("RGB", (width, height))
    image.putdata([(7 * n % 256, 90, 255 - 5 * n % 256) for n in range(width * height)])
    return image


WIDE, SMALL = picture(21, 9), picture(9, 8)
ONE = [WIDE]
PARTS = [{"type": "image"}, {"type": "text", "text": " or "}, {"type": "image"}]
PROMPTS = [
    Prompt(id="0", task="image_to_text", text="what is it?", images=ONE),
    Prompt(id="1", task="image_to_text", text="a <image>, a <image>.", images=[SMALL, WIDE]),
    Prompt(id="2", task="image_to_text", text="so", images=ONE, prefill="It "),
    Prompt(
        id="3",
        text="",
        task="image_to_text",
        images=[WIDE, SMALL],
        messages=[{"role": "system", "content": "say"}, {"role": "user", "content": PARTS}],
    ),
]
"""Two of them show the same image."""
TEXTS = [("user\n{}what is it?", ""), ("user\na {}, a {}.", ""), ("user\n{}so", "It ")]
TEXTS += [("system\nsay<|im_end|>\n<|im_start|>user\n{} or {}", "")]
"""What the chat template makes of them, and the prefill."""


@pytest.fixture(scope="module", params=SEEING)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A policy, and transformers' model and processor of the same checkpoint."""
    folder = tmp_path_factory.mktemp(request.param)
    model = write_qwen_vl(folder, request.param)
    policy = load_policy(folder, max_completion_length=LENGTH)
    images = AutoImageProcessor.from_pretrained(folder, backend="pil")
    processor = PROCESSORS[request.param](images, policy.tokenizer, NoVideos())
    return SimpleNamespace(policy=policy, model=model, processor=processor)


class NoVideos(VideoProcessorMixin):
    """In place of a processor of videos, which none is shown."""


def processed(world: Any, row: int) -> Mapping[str, Tensor]:
    """What transformers' model reads of a prompt."""
    shown, (text, prefill) = "<|vision_start|><|image_pad|><|vision_end|>", TEXTS[row]
    said = text.replace("{}", shown)
    said = f"<|im_start|>{said}<|im_end|>\n<|im_start|>assistant\n{prefill}"
    images = list(PROMPTS[row].images or ())
    return world.processor(images=images, text=[said], return_tensors="pt")


def test_a_prompt_is_laid_out_as_by_transformers_processor(world: Any) -> None:
    for row, prompt in enumerate(PROMPTS):
        canvas, expected = world.policy.canvas([prompt]), processed(world, row)
        assert torch.equal(canvas.tokens[:, :-LENGTH], expected["input_ids"])
        found = canvas.features.inputs()["features"]
        order = found["image_of"].tolist()
        grids = found["image_grid_thw"]
        pixels = found["pixel_values"].split(grids.prod(1).tolist())
        assert torch.equal(grids[order], expected["image_grid_thw"])
        assert torch.equal(torch.cat([pixels[n] for n in order]), expected["pixel_values"])
        count = int((canvas.features.at >= 0).sum())
        assert world.policy.layouts["image_to_text"].positions(prompt) == count


def generated(world: Any, row: int) -> list[int]:
    """The greedy response of transformers."""
    layout, inputs = world.policy.layouts["text"], processed(world, row)
    vocab = world.model.config.text_config.vocab_size
    [found] = world.model.generate(
        **inputs,
        max_new_tokens=LENGTH,
        do_sample=False,
        eos_token_id=list(layout.stop_ids),
        pad_token_id=layout.stop_ids[0],
        suppress_tokens=[*layout.banned, *range(layout.vocab[1], vocab)],
    )
    return found[inputs["input_ids"].shape[1] :].tolist()


def test_greedy_tokens_are_those_of_transformers_alone_and_in_a_batch(world: Any) -> None:
    policy, config = world.policy, SamplerConfig(**SAMPLER, **GREEDY)
    together = rows_of(sample(policy, policy.canvas(PROMPTS), config, generators(4)))
    assert together == [generated(world, row) for row in range(4)]
    for prompt, row in zip(PROMPTS, together, strict=True):
        assert rows_of(sample(policy, policy.canvas([prompt]), config, generators(1))) == [row]


def plain_logprobs(world: Any, rollout: Rollout) -> Tensor:
    """[B, L] of each token under transformers' own forward pass of its row alone."""
    canvas = rollout.canvas
    found, end = torch.zeros(canvas.tokens.shape), canvas.columns[1]
    for n, tokens in enumerate(canvas.tokens):
        inputs = dict(processed(world, n % 4))
        row = torch.cat((inputs["input_ids"][0], tokens[-LENGTH:]))[None]
        kinds = torch.nn.functional.pad(inputs["mm_token_type_ids"], (0, LENGTH))
        inputs |= {"input_ids": row, "mm_token_type_ids": kinds}
        inputs |= {"attention_mask": torch.ones_like(row)}
        with torch.no_grad():
            logits = world.model(**inputs).logits[0, :, :end]
        logits[:, list(canvas.banned)] = -torch.inf
        logp = logits.log_softmax(-1)[-LENGTH - 1 : -1]
        found[n, -LENGTH:] = logp.gather(1, tokens[-LENGTH:, None])[:, 0]
    return found * canvas.counted


def test_log_probs_are_those_of_a_plain_forward_and_replaying_gives_the_samplers_own(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, config = world.policy, SamplerConfig(**SAMPLER, **WARM)
    body, encoded = policy.network.body, list[int]()
    encode = body.get_image_features
    monkeypatch.setattr(
        body,
        "get_image_features",
        lambda pixels, grids: encoded.append(len(grids)) or encode(pixels, grids),
    )
    rollout = sample(policy, policy.canvas(PROMPTS * 2), config, generators(8))
    assert encoded == [5], "each image once, in one forward pass"
    joined = Rollout.join([rollout[3:5], rollout[:3], rollout[5:]])
    order = torch.tensor([3, 4, 0, 1, 2, 5, 6, 7])
    passes = draw_passes(joined, AlgorithmConfig(strategy="causal"), generators(8))
    with torch.no_grad():
        found = score(policy, joined.canvas, passes, temperature=0.7)
        raw = score(policy, joined.canvas, passes)
    torch.testing.assert_close(found.logprobs[0], rollout.logprobs[order], atol=1e-5, rtol=0)
    plain = plain_logprobs(world, rollout)
    torch.testing.assert_close(raw.logprobs[0], plain[order], atol=1e-5, rtol=0)
    assert (rollout.logprobs - plain).abs().max() > 0.1
