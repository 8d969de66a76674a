"""Qwen-VL checkpoints that cannot be used as asked: refused before weights are read."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mmrl import rl
from mmrl.models import load_policy, weights
from mmrl.types import Prompt
from tests.models.causal import write_causal, write_qwen_vl

PROCESSOR = "preprocessor_config.json"
TASK = (
    "tasks={ask: {task: image_to_text, prompts: FOLDER/rows.jsonl, num_prompts: 1,"
    " sampler: {name: autoregressive}, algorithm: {name: grpo}, rewards: [{name: math}]}}"
)


def write(folder: Path) -> None:
    """A checkpoint, and a question about an image."""
    write_qwen_vl(folder, "qwen3_vl")
    Image.new("RGB", (8, 8)).save(folder / "small.png")
    Image.new("RGB", (1000, 4)).save(folder / "line.png")
    (folder / "plain.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    row = {"prompt": "what?", "image": "small.png", "answer": "1"}
    (folder / "rows.jsonl").write_text(json.dumps(row))


def lack_processor(folder: Path) -> None:
    (folder / PROCESSOR).unlink()


def change_patches(folder: Path) -> None:
    file = folder / PROCESSOR
    file.write_text(file.read_text().replace('"patch_size": 4', '"patch_size": 6'))


def take_another(folder: Path) -> None:
    (folder / PROCESSOR).write_text(json.dumps({"image_processor_type": "CLIPImageProcessor"}))


def show_to_the_blind(folder: Path) -> None:
    write_causal(folder, "qwen3")


def show_a_line(folder: Path) -> None:
    shutil.copy(folder / "line.png", folder / "small.png")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("model.chat_template=FOLDER/plain.jinja", "an image part. This one writes it 0 times."),
        (lack_processor, "holds no preprocessor_config.json"),
        ("model.max_pixels=64", "min_pixels is 128; it must be at most max_pixels, 64"),
        (change_patches, "preprocessor_config.json: patch_size is 6, the tower's 4"),
        (take_another, "image_processor_type is 'CLIPImageProcessorPil'; allowed: Qwen2VLImage"),
        (show_a_line, "an image of 1000 x 4 pixels; this checkpoint reads images whose sides"),
        (show_to_the_blind, "it must be a checkpoint of type llava_llada or"),
    ],
)
def test_what_does_not_fit_is_refused_before_weights_are_read(
    change: str | Callable[[Path], None],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("weights were read")

    write(tmp_path)
    if not isinstance(change, str):
        change(tmp_path)
    word = change.replace("FOLDER", str(tmp_path)) if isinstance(change, str) else "seed=0"
    monkeypatch.setattr(weights, "read_rows", refuse)
    task = TASK.replace("FOLDER", str(tmp_path))
    words = [f"model.path={tmp_path}", task, word, f"output_dir={tmp_path / 'out'}", "bf16=false"]
    for more in ([], ["dry_run=true"]):
        assert rl.main([*words, *more]) == 1
        error = capsys.readouterr().err
        assert named in error, error


def test_images_beyond_the_length_of_the_checkpoint_and_stray_placeholders_are_named(
    tmp_path: Path,
) -> None:
    write(tmp_path)
    policy = load_policy(tmp_path, max_completion_length=4)
    layout = replace(policy.layouts["image_to_text"], max_length=40)  # type: ignore[type-var]
    images = [Image.new("RGB", (24, 24))]
    prompt = Prompt(id="7", task="image_to_text", text="so?", images=images)
    assert layout.fits(prompt) and not layout.fits(replace(prompt, images=images * 2))
    with pytest.raises(ValueError, match=r"'7' takes \d+ tokens with images and completion.* 40"):
        layout.canvas([replace(prompt, images=images * 2)])
    with pytest.raises(ValueError, match=r"'7' has 1 images and 2 <\|image_pad\|> in its text"):
        layout.canvas([replace(prompt, text="<|image_pad|>")])


def test_limits_of_pixels_are_kept_and_saved(tmp_path: Path) -> None:
    write(tmp_path)
    policy = load_policy(tmp_path, max_pixels=4 * 64)
    policy.save(tmp_path / "saved")
    prompt = Prompt(id="0", task="image_to_text", text="so?", images=[Image.new("RGB", (64, 64))])
    for each in (policy, load_policy(tmp_path / "saved")):
        canvas: Any = each.canvas([prompt])
        assert int((canvas.features.at >= 0).sum()) == 4


def test_a_dry_run_counts_the_tokens_of_images_and_prints_the_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    task, peaks = TASK.replace("FOLDER", str(tmp_path)), []
    for limit in (2 * 64, 900 * 64):  # tokens of pixels
        limits = [f"model.min_pixels={limit}", f"model.max_pixels={limit}", "model.vq=null"]
        words = [f"model.path={tmp_path}", task, *limits, "bf16=false", "dry_run=true"]
        assert rl.main([*words, f"output_dir={tmp_path / 'out'}"]) == 0
        said = capsys.readouterr().out
        assert "ask (image_to_text)" in said and "autoregressive, 256 steps" in said
        peaks.append(float(re.findall(r"([\d.]+) MiB at the peak", said)[0]))
    assert peaks[1] > 1.5 * peaks[0]
