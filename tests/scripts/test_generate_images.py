from pathlib import Path

import pytest
from PIL import Image

from mmrl.run.image_grid import EDGE, GAP, GREY
from tests.by_path import load

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "generate_images.py"
demo = load(SCRIPT.parent, SCRIPT.stem)


def test_the_demo_writes_a_grid_and_an_animation_of_every_step(tmp_path: Path) -> None:
    words = ["prompt=a red circle|two green diamonds", "num_images=2", "steps=4", "cell=64"]
    assert demo.main([*words, f"out={tmp_path}"]) == 0
    with Image.open(tmp_path / "denoising.gif") as animation:
        assert animation.n_frames == 5
        shares = []
        for frame in range(5):
            animation.seek(frame)
            colors = animation.convert("RGB").getcolors(maxcolors=100_000)
            masked = sum(n for n, color in colors if color in (GREY, EDGE))
            shares.append(masked / sum(n for n, _ in colors))
    assert shares[0] > 0.5 and shares[-1] < 0.1
    assert shares == sorted(shares, reverse=True)
    with Image.open(tmp_path / "grid.png") as grid:
        assert grid.width == 2 * (64 + GAP) + GAP
    with Image.open(tmp_path / "denoising.png") as still:
        assert still.width == 5 * (64 + GAP) + GAP


def test_latents_are_decoded_after_each_step(tmp_path: Path) -> None:
    flow = SCRIPT.parents[1] / "datasets" / "shapes" / "checkpoints" / "flow"
    words = [f"model={flow}", "name=ode", "prompt=a red circle|a blue ring", "num_images=2"]
    assert demo.main([*words, "steps=3", "cell=64", f"out={tmp_path}"]) == 0
    with Image.open(tmp_path / "denoising.gif") as film, Image.open(tmp_path / "grid.png") as grid:
        assert film.n_frames == 4 and grid.width == 2 * (64 + GAP) + GAP
        shown = []
        for frame in range(4):
            film.seek(frame)
            shown.append(film.convert("RGB").tobytes())
    assert len(set(shown)) == 4


def test_pictures_depend_on_the_seed_and_not_on_the_batch_size(tmp_path: Path) -> None:
    words = ["prompt=a red circle", "num_images=3", "steps=3"]
    for name, word in {"a": "seed=1", "b": "batch_size=2", "c": "seed=0"}.items():
        assert demo.main([*words, word, f"out={tmp_path / name}"]) == 0
    a, b, c = ((tmp_path / name / "grid.png").read_bytes() for name in "abc")
    assert b == c != a


@pytest.mark.parametrize(
    "text", ["a fox: in snow", "12", "yes", "a # b", '"quoted" {x}', "ein Fuß 🦊"]
)
def test_a_prompt_is_taken_literally(text: str) -> None:
    config = demo.load_config(demo.Config, [demo._quoted(f"prompt={text}")])
    assert config.prompt == text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "prompt is ''"),
        (["prompt=x", "name=emerges"], "Did you mean 'emerge'"),
        (["prompt=x", "prompts=nowhere.jsonl"], "or empty when prompts names a file"),
        (["prompts=nowhere.jsonl"], "nowhere.jsonl"),
        (["prompt=x", "model=nowhere"], "nowhere"),
        (["prompt=x", f"out={__file__}"], f"out is '{__file__}'"),
        (["prompt=x", "block_size=7"], "block_size is 7"),
    ],
)
def test_bad_settings_are_refused_by_name(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.main([f"out={tmp_path / 'out'}", *words]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mmrl.models.load_policy", lambda *_, **__: pytest.fail("loaded"))
    words = ["prompt=a red circle|two rings", "batch_size=3", f"out={tmp_path / 'out'}"]
    assert demo.main([*words, "dry_run=true"]) == 0
    said = capsys.readouterr().out
    assert "4 images of each of 2 prompts, in 3 batches of 12 emerge steps" in said
    assert not (tmp_path / "out").exists()
    assert demo.main([*words, "dry_run=true", "model=./nowhere"]) == 1
