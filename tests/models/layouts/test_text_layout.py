"""Text prompts as canvases and finished canvases as text, for both families."""

import shutil
from pathlib import Path

import pytest
import torch

from mmrl.models import Policy, load_policy
from mmrl.models.loading import save_model
from mmrl.types import Canvas, Prompt
from tests.models.llada_tokenizer import llada_tokenizer, small_tokenizer
from tests.models.networks import CONFIG, small_network, text_layout

TEMPLATE = (
    "{{ '<|startoftext|>' }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] +"
    " '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
)
TEXTS = ["2 + 3?", "what is 12 times 12?"]
PROMPTS = [Prompt(str(i), "text", text) for i, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LLaDA-type checkpoint with its tokenizer and no image tokenizer anywhere."""
    path = tmp_path_factory.mktemp("llada")
    tokenizer = small_tokenizer()
    tokenizer.save_pretrained(path)
    model = small_network(vocab_size=len(tokenizer) + 9)
    model.public_config = {
        **CONFIG,
        "mask_token_id": tokenizer.get_vocab()["<|mdm_mask|>"],
    }
    save_model(model, path)
    return path


@pytest.fixture(scope="module")
def policy(directory: Path) -> Policy:
    return load_policy(directory, max_prompt_length=30, max_completion_length=8)


def answered(canvas: Canvas, policy: Policy, texts: list[str]) -> Canvas:
    """The canvas with texts written, and 'x' behind them."""
    for row, text in enumerate(texts):
        ids = policy.tokenizer(text, add_special_tokens=False)["input_ids"]
        length = int(canvas.response[row].sum())
        ids += policy.tokenizer("x" * (length - len(ids)), add_special_tokens=False)["input_ids"]
        canvas.tokens[row, canvas.response[row]] = torch.tensor(ids)
    return canvas


def test_a_llada_checkpoint_is_a_text_policy_without_an_image_tokenizer(policy: Policy) -> None:
    assert set(policy.layouts) == {"text"}
    assert policy.canvas(PROMPTS).vocab == (0, len(policy.tokenizer))


def test_a_mmada_checkpoint_writes_text_and_images(checkpoint: Path) -> None:
    both = load_policy(checkpoint, vq=checkpoint / "vq")
    assert set(both.layouts) == {"text", "text_to_image", "image_to_text", "image_edit"}
    first, end = both.canvas(PROMPTS).vocab
    codes = both.layouts["text_to_image"].vocab
    assert first == 0 and end == codes[0] == len(both.tokenizer)


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


def test_the_twin_has_masks_in_place_of_the_prompt(policy: Policy) -> None:
    canvas = answered(policy.canvas(PROMPTS), policy, ["5", "144"])
    twin = canvas.unconditional()
    assert bool((twin.tokens[~canvas.response] == policy.mask_id).all())
    assert torch.equal(twin.tokens[canvas.response], canvas.tokens[canvas.response])
    assert twin.attend is canvas.attend


def test_text_goes_through_the_chat_template_as_a_message_of_the_user() -> None:
    tokenizer = llada_tokenizer()
    tokenizer.chat_template = TEMPLATE
    chat = text_layout(tokenizer)
    messages = [{"role": "user", "content": "hi"}]
    [ids] = chat.canvas([Prompt("0", "text", "hi")], 1).tokens[:, :-1].tolist()
    assert ids == chat.prompt_ids(Prompt("0", "text", "ignored", messages=messages))
    assert (ids[:2], ids[-3:]) == ([126080, 126346], [126347, 1010, 1010])
    assert tokenizer.decode(ids).replace(" ", "") == (
        "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    plain = text_layout(tokenizer, chat_template=False)
    assert plain.prompt_ids(Prompt("0", "text", "hi")) == [1000 + ord("h"), 1000 + ord("i")]


def test_templates_that_are_not_there_are_asked_for_in_vain() -> None:
    with pytest.raises(ValueError, match="chat_template is true"):
        text_layout(llada_tokenizer(), chat_template=True)
    with pytest.raises(ValueError, match="prompt '7' has messages"):
        text_layout(llada_tokenizer()).fits(Prompt("7", "text", "", messages=[{"role": "user"}]))


@pytest.mark.parametrize("end", ["<|endoftext|>", "<|eot_id|>"])
def test_a_completion_ends_at_the_first_end_and_has_no_special_tokens(
    policy: Policy, end: str
) -> None:
    texts = [f"5{end}", f"1<|startoftext|>4{end}5{end}"]
    canvas = answered(policy.canvas(PROMPTS), policy, texts)
    assert policy.decode(canvas, PROMPTS) == ["5", "1 4"]
    whole = answered(policy.canvas(PROMPTS), policy, ["5", end])
    assert policy.decode(whole, PROMPTS) == ["5 x x x x x x x", ""]


def test_an_unfinished_canvas_is_not_decoded(policy: Policy) -> None:
    with pytest.raises(ValueError, match="finished"):
        policy.decode(policy.canvas(PROMPTS), PROMPTS)


def test_the_length_of_a_completion_can_be_asked_for(policy: Policy) -> None:
    assert policy.canvas(PROMPTS, 3).response.sum(1).tolist() == [3, 3]
    with pytest.raises(ValueError, match="max_completion_length is 0"):
        policy.canvas(PROMPTS, 0)


def test_a_prompt_beyond_the_limit_does_not_fit_and_is_refused_by_name(policy: Policy) -> None:
    prompts = [Prompt("short", "text", "x" * 30), Prompt("long", "text", "x" * 31)]
    assert [policy.fits(prompt) for prompt in prompts] == [True, False]
    with pytest.raises(ValueError, match="prompt 'long' has 31 tokens; max_prompt_length is 30"):
        policy.canvas(prompts)
    assert policy.canvas(prompts[:1]).tokens.shape == (1, 38)


def test_ends_and_mask_are_those_of_llada() -> None:
    canvas = text_layout(llada_tokenizer()).canvas([Prompt("0", "text", "a")])
    assert (canvas.stop_ids, canvas.mask_id, canvas.vocab) == (
        (126081, 126348),
        126336,
        (0, 126349),
    )
    assert canvas.never == [126336]


def test_a_tokenizer_larger_than_the_embedding_is_refused(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    save_model(small_network(vocab_size=100), tmp_path)
    with pytest.raises(ValueError, match="119 tokens and the checkpoint has 100 vocabulary rows"):
        load_policy(tmp_path)
