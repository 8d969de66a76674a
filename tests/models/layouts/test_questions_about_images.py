"""What every family promises for questions about images, whether it sees them or reads them."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mmrl.data.images import LazyImage, LazyImages
from mmrl.models import Policy, load_policy
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt
from tests.models.networks import write_small_llada_v, write_small_mmada
from tests.models.questions import PROMPTS, generators, picture, question, rolled_out

WRITERS: dict[str, Callable[[Path], Path]] = {
    "llada_v": write_small_llada_v,
    "mmada": write_small_mmada,
}


def load(directory: Path) -> Policy:
    vq = directory / "vq"
    limits = {"max_prompt_length": 300, "max_completion_length": 8}
    return load_policy(directory, vq=vq if vq.is_dir() else None, **limits)


@pytest.fixture(scope="module", params=WRITERS)
def policy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return load(WRITERS[request.param](tmp_path_factory.mktemp(request.param)))


@pytest.mark.parametrize(
    "settings",
    [{}, {"cfg_scale": 1.0}, {"block_size": 4, "cache": "prefix"}]
    + [{"block_size": 4, "cache": "dual"}, {"name": "emerge"}, {"eos": "leave"}],
)
def test_a_row_equals_the_row_alone_whatever_the_others_show(
    settings: dict[str, object], policy: Policy
) -> None:
    sampler = SamplerConfig(**{"name": "static", "steps": 4, **settings})
    prompts = [*PROMPTS, question(2, 5, 30, "?"), PROMPTS[0]]
    together = rolled_out(policy, prompts, sampler)
    for row, prompt in enumerate(prompts):
        canvas = policy.canvas([prompt])
        alone = sample(policy, canvas, sampler, generators(len(prompts))[row : row + 1])
        width = canvas.tokens.shape[1]
        assert torch.equal(together.canvas.tokens[row, -width:], alone.canvas.tokens[0])
        difference = together.logprobs[row, -width:] - alone.logprobs[0]
        assert float(difference.abs().max()) < 1e-4


def test_a_response_is_text_of_the_tokenizer(policy: Policy) -> None:
    done = rolled_out(policy, PROMPTS * 4).canvas
    written = done.tokens[done.response]
    assert int(written.min()) >= 0 and int(written.max()) < len(policy.tokenizer)
    assert not bool(torch.isin(written, torch.tensor([policy.mask_id, *done.banned])).any())
    assert all(isinstance(text, str) for text in policy.decode(done, PROMPTS * 4))


def test_a_picture_of_a_file_is_measured_unopened_and_opened_once_for_its_group(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer, opened = io.BytesIO(), []
    picture(20, 9, 1).save(buffer, "PNG")
    monkeypatch.setattr(LazyImage, "open", lambda p, was=LazyImage.open: opened.append(1) or was(p))
    prompt = Prompt("1", "image_to_text", "?", images=LazyImages([LazyImage(buffer.getvalue())]))
    assert policy.fits(prompt) and not opened
    canvas = policy.canvas([prompt] * 4)
    assert len(opened) == 1
    given = policy.canvas([replace(prompt, images=[picture(20, 9, 1)])])
    assert torch.equal(canvas.tokens[:1], given.tokens)
    if canvas.features is not None and given.features is not None:
        assert torch.equal(canvas.features.at[:1], given.features.at)
        assert torch.equal(canvas.features.embeddings, given.features.embeddings)
