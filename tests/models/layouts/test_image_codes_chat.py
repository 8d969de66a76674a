"""Questions about images that MMaDA reads as codes: what stands where, from image to ids."""

from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torchvision import transforms
from torchvision.transforms.functional import InterpolationMode
from transformers import PreTrainedTokenizerBase

from mmrl.models import Policy, load_policy
from mmrl.models.families.mmada import build_rows
from mmrl.models.image_tokenizers.magvit import MagvitV2
from mmrl.models.layouts.image_codes_chat import CodesAlbum, ImageCodesChat
from mmrl.models.layouts.pixels import ImageFit, encode_image, image_to_pixels
from mmrl.types import Prompt
from tests.models.networks import FIXTURES, text_layout, write_small_mmada
from tests.models.questions import picture

IMAGE = {"type": "image"}
CODES = 16


def question(text: str = "which?", content: Any = None, images: int = 1) -> Prompt:
    messages = None if content is None else [{"role": "user", "content": content}]
    shown = [picture(8, 8, n) for n in range(images)]
    return Prompt("p", "image_to_text", text, messages, shown)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    directory = write_small_mmada(tmp_path_factory.mktemp("mmada"))
    limits = {"max_prompt_length": 60, "max_completion_length": 8}
    return load_policy(directory, vq=directory / "vq", **limits)


def layout(policy: Policy) -> ImageCodesChat:
    task = policy.layouts["image_to_text"]
    assert isinstance(task, ImageCodesChat)
    return task


def test_a_row_is_what_understanding_was_trained_with(policy: Policy) -> None:
    """`MmadaRows.image_to_text` is the layout of training, where the answer follows the header."""
    prompt = question("describe the image")
    canvas, task = policy.canvas([prompt]), layout(policy)
    turn = policy.tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt.text}], tokenize=False
    )
    codes = encode_image(task.vq, picture(8, 8), task.grid, task.image_fit) + task.rows.code_offset
    trained, _ = task.rows.image_to_text([f"{turn}a cat"], codes[None])
    width = canvas.tokens.shape[1] - 8
    assert torch.equal(canvas.tokens[:, :width], trained[:, :width])


def test_the_ids_are_those_of_the_public_prompting_code(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = load_file(FIXTURES / "mmada" / "cases.safetensors")["layouts/mmu/0"]
    shown = public[0, : 3 + CODES].tolist()
    monkeypatch.setattr(CodesAlbum, "_show", lambda *_: (shown, [-1] * len(shown)))
    words = "<|start_header_id|>user<|end_header_id|>\nhi<eot_id><|start_header_id|>"
    text = text_layout(tokenizer, max_prompt_length=30, max_completion_length=4)
    task = ImageCodesChat(text, build_rows(tokenizer, 20), MagvitV2, (4, 4))  # type: ignore[arg-type]
    canvas = task.canvas([question(words)])
    # of the 20 ids of text in the public row the last is an end, since its text is cut there
    assert torch.equal(canvas.tokens[0, :-4], public[0, :-1])


@pytest.mark.parametrize(
    "prompt",
    [question("<image>\nwhich?"), question("<image> which?"), question("which?\n<image>")]
    + [question("", "which?"), question("", "<image>\nwhich?")]
    + [question("", [IMAGE, {"type": "text", "text": "which?"}])]
    + [question("", [{"type": "text", "text": "which?"}, IMAGE])],
)
def test_wherever_the_image_was_it_stands_before_the_words(prompt: Prompt, policy: Policy) -> None:
    assert torch.equal(policy.canvas([prompt]).tokens, policy.canvas([question()]).tokens)


@pytest.mark.parametrize("size", [(8, 8), (24, 8), (9, 31), (40, 17), (5, 6)])
@pytest.mark.parametrize("fit", ["crop", "squash"])
def test_pixels_are_those_of_the_public_transform(size: tuple[int, int], fit: ImageFit) -> None:
    resize = transforms.Resize(8 if fit == "crop" else (8, 8), InterpolationMode.BICUBIC)
    centred = transforms.Normalize([0.5] * 3, [0.5] * 3)
    steps = [resize, transforms.CenterCrop((8, 8)), transforms.ToTensor(), centred]
    public = transforms.Compose(steps)
    assert torch.equal(image_to_pixels(picture(*size), 8, fit), public(picture(*size)))


@pytest.mark.parametrize("size", [(1, 2**22), (2**22, 1)])
def test_a_line_of_pixels_is_cropped_before_it_is_enlarged(size: tuple[int, int]) -> None:
    assert image_to_pixels(Image.new("RGB", size, "white"), 512).eq(1).all()


@pytest.mark.parametrize("size", [(8, 8), (24, 8), (16, 40)])
def test_a_padded_image_is_whole_with_grey_around_it(size: tuple[int, int]) -> None:
    shown = [max(1, round(8 * side / max(size))) for side in size]
    wide, (left, top) = Image.new("RGB", size, "white"), (round((8 - n) / 2) for n in shown)
    found = image_to_pixels(wide, 8, "pad")
    image = torch.zeros(8, 8, dtype=torch.bool)
    image[top : top + shown[1], left : left + shown[0]] = True
    assert found[:, image].eq(1).all() and found[:, ~image].abs().lt(0.01).all()


@pytest.mark.parametrize(
    ("prompt", "named"),
    [
        (question(images=2), "prompt 'p' has 2 images and 0 marks <image>; .* exactly one image"),
        (question("<image> or <image>?"), "prompt 'p' has 1 images and 2 marks"),
        (question("x" * 60), r"prompt 'p' has \d+ tokens beside its images; .* is 60"),
    ],
)
def test_prompts_that_have_no_layout_are_named(prompt: Prompt, named: str, policy: Policy) -> None:
    with pytest.raises(ValueError, match=named):
        policy.canvas([prompt])
