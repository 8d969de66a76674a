"""Videos in files and on pages: animated WebP."""

import base64
import io
import re
from pathlib import Path

import numpy as np
from PIL import Image

from mmrl.demo.trace_view import show_traces
from mmrl.demo.traces import Trace
from mmrl.rollouts.held_out import Evaluation
from mmrl.rollouts.held_out_grid import draw_grid, write_grid
from mmrl.run.sample_files import embed_stored
from mmrl.types import Prompt, Video


def moving(frames: int = 5, side: int = 32) -> Video:
    """A white square that moves to the right on black."""
    pixels = np.zeros((frames, side, side, 3), np.uint8)
    for n in range(frames):
        pixels[n, 8:16, 4 * n : 4 * n + 8] = 255
    return Video(pixels, 8)


def opened(html: str) -> Image.Image:
    found = re.search(r"data:image/webp;base64,([^\"]+)", html)
    assert found is not None
    return Image.open(io.BytesIO(base64.b64decode(found[1])))


def test_a_clip_is_smaller_than_its_frames_and_shows_them_at_their_rate() -> None:
    video = moving()
    data = video.clip()
    with Image.open(io.BytesIO(data)) as clip:
        assert (clip.size, getattr(clip, "n_frames", 1)) == ((32, 32), 5)
        for n in range(5):
            clip.seek(n)
            shown = np.asarray(clip.convert("RGB")).astype(int)
            assert abs(shown - video.frames[n]).mean() < 8 and clip.info["duration"] == 125
    assert len(data) < video.frames.nbytes / 5


def test_a_stored_clip_is_shown_as_one_with_its_rate() -> None:
    still = np.concatenate([moving().frames[:1].repeat(3, 0), moving().frames[1:2]])
    for video, number in ((moving(side=640), 5), (Video(still, 10), 2)):
        html = embed_stored({"bytes": video.clip(), "path": None})
        with opened(html) as shown:
            assert max(shown.size) <= 160 and getattr(shown, "n_frames", 1) == number
    assert embed_stored({"bytes": b"no", "path": None}) == "(no image)"


def test_a_grid_of_videos_moves_and_a_tracker_gets_its_middle(tmp_path: Path) -> None:
    prompts = [Prompt(str(n), "text_to_video", f"video {n}") for n in range(3)]
    result = Evaluation(prompts, [moving(), moving(9), moving()], {"motion": [1.0, 0.5, 0.0]})
    path = write_grid(result, tmp_path / "eval_a_000001.png", count=3)
    assert path == tmp_path / "eval_a_000001.webp"
    with Image.open(path) as grid:
        assert getattr(grid, "n_frames", 1) == 9
    middle = draw_grid(result, 3)
    assert middle is not None and middle.size[0] > 3 * 128
    assert write_grid(Evaluation(prompts, ["", "", ""], {}), tmp_path / "none.png", 3) is None


def test_the_demo_shows_the_video_of_each_step() -> None:
    trace = Trace(moving(), [0, 1], [], [], 2, frames=(moving(1), moving(3), moving()))
    for after, number in ((0, 1), (1, 3), (2, 5)):
        with opened(show_traces({"a": trace}, after, "result")) as shown:
            assert getattr(shown, "n_frames", 1) == number
