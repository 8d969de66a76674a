"""Diversity of completions: closed forms, what is left out, settings that are refused."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mmrl.config import ConfigError
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.rollouts.diversity import Completions, Diversity, check_metrics, list_tokens, measure
from mmrl.rollouts.held_out import Evaluation
from mmrl.types import Prompt
from tests import by_path

SHAPES = Path(__file__).resolve().parents[3] / "datasets" / "shapes"
render = partial(by_path.load, SHAPES)("render").render


def found(name: str, completions: list[Any], size: int) -> Diversity:
    return measure([name], Completions(completions, [[0]] * len(completions)), size)


def of_tokens(rows: list[list[int]], size: int) -> dict[str, float]:
    return measure(["tokens"], Completions([""] * len(rows), rows), size).metrics()


def scene(background: str, *objects: tuple[int, int, int]) -> Image.Image:
    drawn = [
        {"class": "square", "color": "red", "size": size, "column": column, "row": row}
        for size, column, row in objects
    ]
    return render({"background": background, "objects": drawn})


def test_equal_rollouts_have_no_diversity_and_rollouts_without_a_common_token_have_all() -> None:
    assert of_tokens([[1, 2, 3]] * 4, 4) == {"diversity/tokens": 0.0}
    assert of_tokens([[n] * 5 for n in range(4)], 4) == {"diversity/tokens": 1.0}
    assert of_tokens([[1], [2]], 1) == {}, "single completions have no pairs"


def test_diversity_is_the_mean_over_pairs_and_then_over_prompts() -> None:
    # pairs of the first group differ in 1, 2 and 1 of two tokens; the second group is one text
    rows = [[1, 1], [1, 2], [2, 2], *[[7, 7]] * 3]
    assert of_tokens(rows, 3)["diversity/tokens"] == pytest.approx((4 / 6 + 0) / 2)


def test_what_a_longer_text_has_beyond_a_shorter_one_counts_as_different() -> None:
    assert of_tokens([[1, 2, 3, 4], [1, 2]], 2)["diversity/tokens"] == 0.5


def test_the_expected_diversity_does_not_depend_on_the_size_of_the_group() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 4, (4096, 3)).tolist()
    for size in (2, 8, 16):
        assert of_tokens(rows, size)["diversity/tokens"] == pytest.approx(3 / 4, abs=0.02)


def test_backgrounds_positions_and_sizes_are_read_from_the_pixels() -> None:
    same = scene("grey", (2, 1, 1))
    for other, differs in (
        (scene("teal", (2, 1, 1)), "background"),
        (scene("grey", (2, 5, 4)), "position"),
        (scene("grey", (3, 1, 1)), "size"),
    ):
        values = found("shapes", [same, other], 2).metrics()
        for name in ("background", "position", "size"):
            assert values[f"diversity/{name}"] == float(name == differs)
    moved = [scene("grey", (2, 0, 0), (2, 5, 5)), scene("grey", (2, 0, 0), (2, 0, 5))]
    assert found("shapes", moved, 2).metrics()["diversity/position"] == 0.5


def test_broken_images_are_left_out_and_not_counted_as_diverse() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    images = [scene("grey", (2, 1, 1)), scene("grey", (2, 1, 1)), Image.fromarray(noise)]
    measured = found("shapes", images, 3)
    assert measured.metrics() == {
        f"diversity/{name}": 0.0 for name in ("background", "position", "size")
    }


def test_distinct_texts_are_counted_apart_from_white_space() -> None:
    assert found("text", ["a b", "a  b\n", "c"], 3).metrics()["diversity/text"] == 2 / 3


def test_tokens_of_a_text_end_with_its_first_end_token() -> None:
    tokens = torch.tensor([[9, 1, 0, 0], [9, 1, 2, 3]])
    response = torch.tensor([[False, True, True, True]] * 2)
    valid = torch.tensor([[False, True, True, False], [False, True, True, True]])
    canvas = MaskedCanvas(tokens, response, None, (0, 8), 8, stop_ids=(0,), valid=valid)
    assert list_tokens(canvas) == [[1, 0], [1, 2, 3]]


def test_tables_have_a_row_per_tag_and_only_what_is_known() -> None:
    prompts = [
        Prompt(str(n), "text", "x", metadata={"tag": tag})
        for n, tag in enumerate("ab")
        for _ in "12"
    ]
    measured = Diversity({"tokens": [0.25, 0.75], "other": [math.nan] * 2})
    tables = Evaluation(prompts, [""] * 4, {}, diversity=measured).diversity_tables()
    assert list(tables) == ["diversity/tokens"]
    assert tables["diversity/tokens"]["b"]["mean"] == 0.75
    assert tables["diversity/tokens"]["mean over prompts"]["mean"] == 0.5


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["token"], "Did you mean 'tokens'"),
        (["text"], "of shapes, tokens. The task text_to_image makes images"),
        (["tokens", "tokens"], "where is 'tokens'.*named once"),
    ],
)
def test_metrics_that_cannot_be_are_refused_by_name(names: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_metrics(names, "text_to_image", "where")
