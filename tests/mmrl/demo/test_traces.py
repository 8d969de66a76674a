"""What the page samples and colours, without the page."""

from pathlib import Path

import pytest
from PIL import Image

from mmrl.demo.trace_view import MASKED, describe, draw_frame, position_color, show_traces
from mmrl.demo.traces import Trace, read_sampler, sample_trace
from mmrl.models import Policy, load_policy
from mmrl.run.image_grid import EDGE, GREY
from mmrl.types import Prompt

DATASETS = Path(__file__).resolve().parents[3] / "datasets"


@pytest.fixture(scope="module")
def painter() -> Policy:
    checkpoints = DATASETS / "shapes" / "checkpoints"
    return load_policy(checkpoints / "mmada", vq=checkpoints / "magvit", max_prompt_length=24)


@pytest.fixture(scope="module")
def writer() -> Policy:
    return load_policy(DATASETS / "text" / "checkpoints" / "llada", vq=None, max_prompt_length=32)


def drawn(written_at: list[int], logprobs: list[float]) -> Trace:
    """A red image of four cells."""
    image = Image.new("RGB", (8, 8), (255, 0, 0))
    return Trace(image, written_at, logprobs, [], max(written_at) + 1, (2, 2))


def cell(image: Image.Image, n: int) -> tuple[int, ...]:
    """The colour in the middle of a cell of four."""
    half = image.width // 2
    found = image.getpixel((n % 2 * half + half // 2, n // 2 * half + half // 2))
    assert isinstance(found, tuple)
    return found


def test_a_frame_shows_what_is_written_after_a_step_and_the_rest_in_grey() -> None:
    trace = drawn([0, 2, 1, 1], [0.0] * 4)
    for after, open_ in ((0, {0, 1, 2, 3}), (1, {1, 2, 3}), (2, {1}), (3, set())):
        frame = draw_frame(trace, after)
        assert frame.size == (384, 384)
        colors = [cell(frame, n) for n in range(4)]
        assert [color == GREY for color in colors] == [n in open_ for n in range(4)]
        assert {color for color in colors if color != GREY} <= {(255, 0, 0)}
    assert draw_frame(trace, 0).getpixel((0, 0)) == EDGE


def test_cells_have_the_color_of_their_step_or_log_prob() -> None:
    trace = drawn([0, 2, 1, 1], [0.0, -9.0, -1.5, -0.1])
    frame = draw_frame(trace, 3, "step")
    assert [cell(frame, n) for n in range(4)] == [
        position_color(trace, n, "step") for n in range(4)
    ]
    frame = draw_frame(trace, 2, "log-prob")
    sure = [position_color(trace, n, "log-prob") for n in range(4)]
    assert [cell(frame, n) for n in range(4)] == [sure[0], GREY, sure[2], sure[3]]
    assert len(set(sure)) == 4
    assert position_color(drawn([0], [-3.0]), 0, "log-prob") == sure[1], "colours end at -3"


TEXT = Trace("a<b>", [2, 0, 1], [0.0, -1.0, -9.0], ["a", "<b>", "\n"], 3, blocks=(0, 0, 1))


def test_tokens_appear_with_their_step_and_what_a_model_wrote_is_escaped() -> None:
    assert show_traces({"one": TEXT}, 0, "step").count(MASKED) == 3
    page = show_traces({"<one>": TEXT}, 1, "step")
    assert page.count(MASKED) == 2 and "&lt;b&gt;" in page and "<b>" not in page
    assert 'title="position 2, block 1: step 1, probability 0.368"' in page
    assert "&lt;one&gt;" in page and show_traces({}, 0, "step") == ""
    page = show_traces({"one": TEXT, "other": TEXT}, 3, "log-prob")
    assert MASKED not in page and "⏎" in page and page.count("<i></i>") == 2


def test_an_image_is_drawn_as_the_sampler_wrote_it(painter: Policy) -> None:
    config = read_sampler({"name": "emerge", "steps": 6, "temperature": 0.5})
    prompt = Prompt("0", "text_to_image", "a red circle")
    trace = sample_trace(painter, prompt, config, seed=3)
    assert isinstance(trace.completion, Image.Image) and trace.grid == (8, 8)
    assert len(trace.written_at) == len(trace.logprobs) == 64 and trace.steps == 6
    assert set(trace.written_at) <= set(range(6)) and max(trace.logprobs) <= 0
    again = sample_trace(painter, prompt, config, seed=3)
    assert (again.written_at, again.logprobs) == (trace.written_at, trace.logprobs)
    assert sample_trace(painter, prompt, config, seed=4).logprobs != trace.logprobs
    assert "64 positions in 6 steps, 6 forward passes" in describe(trace)


def test_a_latent_is_drawn_as_it_is_decoded_after_each_step() -> None:
    folder = DATASETS / "shapes" / "checkpoints" / "flow"
    policy = load_policy(folder, max_prompt_length=16)
    prompt = Prompt("0", "text_to_image", "a red circle")
    trace = sample_trace(policy, prompt, read_sampler({"name": "flow", "steps": 3}), seed=3)
    assert isinstance(trace.completion, Image.Image) and len(trace.frames) == 4
    seen = [draw_frame(trace, after).tobytes() for after in range(4)]
    assert len(set(seen)) == 4 and trace.frames[3].tobytes() == trace.completion.tobytes()
    assert len(trace.logprobs) == 2 and "3 steps, 3 forward passes" in describe(trace)


def test_a_text_is_traced_token_by_token_up_to_its_end(writer: Policy) -> None:
    settings = {"name": "static", "steps": 12, "temperature": 0.0}
    prompt = Prompt("0", "text", "compute 4*4")
    trace = sample_trace(writer, prompt, read_sampler(settings, "block_size=8"), 0, length=24)
    assert isinstance(trace.completion, str) and trace.grid is None
    assert trace.completion in "".join(trace.tokens)
    assert len(trace.tokens) == len(trace.written_at) == len(trace.blocks) <= 24
    assert list(trace.blocks) == [n // 8 for n in range(len(trace.tokens))]
    last = [max(s for s, b in zip(trace.written_at, trace.blocks, strict=True) if b == block)
            for block in sorted(set(trace.blocks))]  # fmt: skip
    assert last == sorted(last)
