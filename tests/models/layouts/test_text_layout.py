"""Text prompts as canvases and finished canvases as text, for both families."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.data.prompts import drop_long
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.models import Policy, load_policy
from mmrl.models.layouts.layout_config import LayoutConfig
from mmrl.models.loading import save_model
from mmrl.models.policy import build_layouts
from mmrl.types import Prompt
from tests.models.llada_tokenizer import small_tokenizer
from tests.models.networks import CONFIG, small_network

TEXTS = ["2 + 3?", "what is 12 times 12?"]
PROMPTS = [Prompt(str(i), "text", text) for i, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """LLaDA's, with its tokenizer, and no image tokenizer anywhere."""
    directory = tmp_path_factory.mktemp("llada")
    tokenizer = small_tokenizer()
    tokenizer.save_pretrained(directory)
    model = small_network(vocab_size=len(tokenizer) + 9)
    model.public_config = {**CONFIG, "mask_token_id": tokenizer.get_vocab()["<|mdm_mask|>"]}
    save_model(model, directory)
    return load_policy(directory, max_prompt_length=30, max_completion_length=8)


def answered(canvas: MaskedCanvas, policy: Policy, texts: list[str]) -> MaskedCanvas:
    """The canvas with texts written, and 'x' behind them."""
    for row, text in enumerate(texts):
        ids = policy.tokenizer(text, add_special_tokens=False)["input_ids"]
        length = int(canvas.response[row].sum())
        ids += policy.tokenizer("x" * (length - len(ids)), add_special_tokens=False)["input_ids"]
        canvas.tokens[row, canvas.response[row]] = torch.tensor(ids)
    return canvas


def test_prompts_are_padded_on_the_left_and_padding_is_hidden(policy: Policy) -> None:
    canvas = policy.canvas(PROMPTS)
    width = len(TEXTS[1])
    assert canvas.tokens.shape == (2, width + 8) and canvas.grid is None
    assert torch.equal(canvas.response, canvas.tokens == policy.mask_id)
    assert bool(canvas.response[:, width:].all()) and not bool(canvas.response[:, :width].any())
    assert canvas.attend is not None
    assert canvas.attend.sum(1).tolist() == [len(text) + 8 for text in TEXTS]
    for row, text in enumerate(TEXTS):
        kept = canvas.tokens[row, canvas.attend[row] & ~canvas.response[row]]
        assert policy.tokenizer.decode(kept) == " ".join(text)
    assert policy.canvas(PROMPTS[:1]).attend is None


def test_the_branch_has_masks_in_place_of_the_prompt(policy: Policy) -> None:
    canvas = answered(policy.canvas(PROMPTS), policy, ["5", "144"])
    branch = canvas.unconditional()
    assert bool((branch.tokens[~canvas.response] == policy.mask_id).all())
    assert torch.equal(branch.tokens[canvas.response], canvas.tokens[canvas.response])
    assert branch.attend is canvas.attend


@pytest.mark.parametrize("end", ["<|endoftext|>", "<|eot_id|>"])
def test_a_text_ends_at_the_first_end_and_has_no_special_tokens(policy: Policy, end: str) -> None:
    texts = [f"5{end}", f"1<|startoftext|>4{end}5{end}"]
    canvas = answered(policy.canvas(PROMPTS), policy, texts)
    assert policy.decode(canvas, PROMPTS) == ["5", "1 4"]
    whole = answered(policy.canvas(PROMPTS), policy, ["5", end])
    assert policy.decode(whole, PROMPTS) == ["5 x x x x x x x", ""]


def test_a_prompt_beyond_the_limit_does_not_fit_and_is_refused_by_name(policy: Policy) -> None:
    prompts = [Prompt("short", "text", "x" * 30), Prompt("long", "text", "x" * 31)]
    assert [policy.fits(prompt) for prompt in prompts] == [True, False]
    with pytest.raises(ValueError, match="prompt 'long' has 31 tokens; max_prompt_length is 30"):
        policy.canvas(prompts)
    assert policy.canvas(prompts[:1]).tokens.shape == (1, 38)


def test_a_long_prompt_is_left_out_cut_to_its_end_or_refused_by_setting(policy: Policy) -> None:
    long, short = Prompt("long", "text", "2x13"), Prompt("short", "text", "13")
    options = LayoutConfig(max_prompt_length=2, long_prompts="cut")
    layouts = build_layouts(policy.network, policy.tokenizer, options)
    cutting = replace(policy, layouts=layouts)
    assert [cutting.cuts(each) for each in (long, short)] == [True, False]
    assert torch.equal(*(cutting.canvas([each], 2).tokens for each in (long, short)))
    source: Any = ("rows.jsonl", cutting.cuts)
    assert drop_long([long, short], cutting.fits, *source, "cut") == [long, short]
    assert drop_long([long, short], cutting.fits, *source, "leave_out") == [short]
    assert drop_long([short], cutting.fits, *source, "refuse") == [short]
    for prompts in ([long, short], [short, long]):
        with pytest.raises(ConfigError, match=r"long_prompts is 'refuse'.*\. long is longer"):
            drop_long(prompts, cutting.fits, *source, "refuse")
    with pytest.raises(ConfigError, match="long_prompts is 'cut'"):
        drop_long([long, short], lambda prompt: prompt is short, "rows.jsonl", rule="cut")
