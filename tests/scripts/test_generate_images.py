import subprocess
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]


def _generate(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "generate_images.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_the_demo_writes_a_grid_and_a_film_of_every_step(tmp_path: Path) -> None:
    words = ("prompt=a red circle|two green diamonds", "num_images=2", "steps=4", "cell=64")
    done = _generate(*words, f"out={tmp_path}")
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == 5
        film.seek(0)
        first = film.convert("RGB").getcolors(maxcolors=100_000)
    greys = sum(n for n, color in first if max(color) - min(color) < 8 and 160 < color[0] < 190)
    assert greys > 0.7 * sum(n for n, _ in first)
    with Image.open(tmp_path / "grid.png") as grid:
        assert grid.width == 2 * (64 + 4) + 4


def test_equal_seeds_give_equal_pictures(tmp_path: Path) -> None:
    for name in ("a", "b"):
        _generate("prompt=a red circle", "num_images=1", "steps=3", f"out={tmp_path / name}")
    assert (tmp_path / "a/grid.png").read_bytes() == (tmp_path / "b/grid.png").read_bytes()


def test_a_missing_prompt_and_an_unknown_sampler_are_refused(tmp_path: Path) -> None:
    assert "prompt is ''" in _generate(f"out={tmp_path}").stderr
    unknown = _generate("prompt=x", "name=emerges", f"out={tmp_path}")
    assert unknown.returncode == 1 and "Did you mean 'emerge'" in unknown.stderr
