"""The OCR reward: which text is wanted, what a reading is worth, and what reads."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageDraw, ImageFont
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GotOcr2Config,
    GotOcr2ForConditionalGeneration,
    GotOcr2ImageProcessor,
    GotOcr2Processor,
    PreTrainedTokenizerFast,
)

from mmrl.rewards import build_reward
from mmrl.rewards.ocr import ENGINES, OCRReward, find_wanted_text, score_reading
from mmrl.types import Sample
from tests.rewards.conftest import randomised

SIGN = 'a sign that says "Hello World"'


@pytest.mark.parametrize(
    ("prompt", "metadata", "wanted"),
    [(SIGN, {}, "Hello World"), ("a sign that says “Grüße”", {}, "Grüße")]
    + [('"first" and "second"', {}, "first"), ('an empty " " and "a full one"', {}, "a full one")]
    + [(SIGN, {"text": "Other"}, "Other"), ("a sign that doesn't say much, 5\" high", {}, None)]
    + [("a red circle", {}, None)],
)
def test_the_wanted_text_is_in_the_metadata_or_in_quotes(
    prompt: str, metadata: dict, wanted: str | None
) -> None:
    assert find_wanted_text(prompt, metadata) == wanted


@pytest.mark.parametrize(
    ("reading", "score"),
    [("hello world", 1.0), ("HELLO\n WORLD", 1.0), ("xx hello world yy", 1.0)]
    + [("hallo world", 0.9), ("hello", 0.5), ("", 0.0), ("completely different words", 0.0)],
)
def test_the_score_is_one_minus_the_share_of_wrong_characters(reading: str, score: float) -> None:
    assert score_reading(reading, "Hello World") == pytest.approx(score)


def test_an_engine_that_is_not_installed_is_named_before_anything_loads() -> None:
    if find_spec("paddleocr") is not None:
        pytest.skip("paddleocr is installed")
    with pytest.raises(ValueError, match="ocr.engine is 'paddleocr'.*pip install"):
        build_reward({"name": "ocr", "engine": "paddleocr"})


def test_what_an_engine_reads_is_scored_and_what_is_not_wanted_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wide(settings: object) -> object:
        return lambda images: ["hello" if image.width > 10 else "" for image in images]

    monkeypatch.setitem(ENGINES, "got", wide)
    reward = build_reward({"name": "ocr"})
    white, narrow = Image.new("RGB", (20, 8)), Image.new("RGB", (8, 8))
    samples = [Sample(SIGN, white), Sample("a red circle", white), Sample(SIGN, narrow)]
    assert reward(samples) == [pytest.approx(0.5), None, 0.0]
    assert reward([samples[1]]) == [None]
    with pytest.raises(ValueError, match="'ocr' scores images.*str"):
        reward([Sample(SIGN, "words")])


def test_rapidocr_reads_what_is_written_and_nothing_on_a_blank_image() -> None:
    reward = build_reward({"name": "ocr", "engine": "rapidocr"})
    assert isinstance(reward, OCRReward)
    blank, sign = (Image.new("RGB", (256, 128), "white") for _ in range(2))
    for n, line in enumerate(("Hello", "World")):
        at = (20, 10 + 50 * n)
        ImageDraw.Draw(sign).text(at, line, "red", ImageFont.load_default(40))
    wrong = Sample("", sign, {"text": "hallo word"})
    assert reward.read([sign]) == ["Hello World"]
    assert reward([wrong, Sample(SIGN, blank)]) == [pytest.approx(7 / 9), 0.0]


def save_got(directory: Path) -> None:
    """Write a GOT-OCR 2.0 with random weights; its images are 256 tokens, as published."""
    special = ["<|im_start|>", "<|im_end|>", "<img>", "</img>", "<imgpad>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {word: n for n, word in enumerate([*letters, *special])}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    words = PreTrainedTokenizerFast(
        tokenizer_object=backend, additional_special_tokens=special, pad_token="<|im_end|>"
    )
    pixels = GotOcr2ImageProcessor(size={"height": 1024, "width": 1024})
    GotOcr2Processor(pixels, words).save_pretrained(directory)
    vision = {"hidden_size": 8, "output_channels": 8, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 1, "mlp_dim": 8, "global_attn_indexes": []}
    text = {"model_type": "qwen2", "vocab_size": len(vocabulary), "hidden_size": 16}
    text |= {"intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text |= {"num_key_value_heads": 2, "max_position_embeddings": 1024}
    config = GotOcr2Config(
        vision_config=vision, text_config=text, image_token_index=vocabulary["<imgpad>"]
    )
    network = randomised(GotOcr2ForConditionalGeneration(config), seed=0, spread=1.0)
    network.generation_config.eos_token_id = vocabulary["<|im_end|>"]
    network.save_pretrained(directory)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("got")
    save_got(directory)
    return directory


def test_got_reads_as_transformers_documents_it_one_picture_or_several(
    checkpoint: Path, pictures: list[Image.Image]
) -> None:
    options = {"model": str(checkpoint), "dtype": "float32", "device": "cpu", "max_tokens": 6}
    reward = build_reward({"name": "ocr", "batch_size": 3, **options})
    assert isinstance(reward, OCRReward)
    readings = reward.read(pictures)
    processor = GotOcr2Processor.from_pretrained(checkpoint)
    network = GotOcr2ForConditionalGeneration.from_pretrained(checkpoint).eval()
    for image, reading in zip(pictures, readings, strict=True):
        inputs = processor(image, return_tensors="pt")
        with torch.no_grad():
            written = network.generate(**inputs, do_sample=False, max_new_tokens=6)
        new = written[0, inputs["input_ids"].shape[1] :]
        assert reading == processor.decode(new, skip_special_tokens=True)
    assert len(set(readings)) > 1, "random weights must tell images apart"
    scores = reward([Sample("x", p, {"text": r}) for p, r in zip(pictures, readings, strict=True)])
    assert scores == [1.0] * len(pictures)
