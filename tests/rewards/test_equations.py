"""The equations reward: steps of a calculation, right or wrong."""

import time

import pytest

from mmrl.rewards import build_reward
from mmrl.types import Chunk, Sample

TWO_STEPS = "<reasoning>9*6=54\n54*5=380</reasoning><answer>380</answer>"


OTHER = ["", "3", "3=3", "x=3", "2+3", "=4", "1+2=3.5", "1+2=3,500", "1,234+1=1"]
OTHER += ["2+3=5+1", "2 + 3 = 5 + 1", "2 + 3 = 6 + 1 = 7", "2+3=6+1=7", "2^3+1=9", "2 ^ 3 + 1 = 9"]
OTHER += ["10 - 2.5 * 2 + 3 = 8", "3.5 + 2*2=7", "x + 2 * 3 = 10", "2x + 3*4 = 20", "x-2*3=10"]


def score(completion: str) -> object:
    return build_reward({"name": "equations"})([Sample("q", completion)])[0]


@pytest.mark.parametrize(
    ("completion", "wanted"),
    [
        ("9*6=54", 1.0),
        ("54*5=380", -1.0),
        (TWO_STEPS, 0.0),
        ("so 2 + 2 = 4, and (1+2)*3=9.", 1.0),
        (r"\(8 \times 2 = 16\)", 1.0),
        ("(2+3=5)", 1.0),
        ("12/8=3", -1.0),
        ("1/0=3", -1.0),
        ("-3+5=2 and 2*-3=-6", 1.0),
        ("1 2+3=15", -1.0),
        ("9*6=54 (ok)", 1.0),
        ("9*6=54 - next", 1.0),
        ("- 9 * 6 = 54", 1.0),
        ("9*6=54, 2*2=4", 1.0),
    ],
)
def test_every_equation_counts_as_right_or_wrong(completion: str, wanted: float) -> None:
    assert score(completion) == wanted


@pytest.mark.parametrize("completion", OTHER)
def test_what_is_no_equation_counts_as_nothing(completion: str) -> None:
    assert score(completion) == 0.0


def test_a_process_reward_has_a_score_for_each_line() -> None:
    first, rest = TWO_STEPS.split("\n")
    chunks = (Chunk(5, "", first + "\n"), Chunk(20, first + "\n", rest))
    reward = build_reward({"name": "equations", "per_line": True})
    samples = [Sample("q", TWO_STEPS, chunks=chunks), Sample("q", TWO_STEPS)]
    assert reward(samples) == [[1.0, -1.0], 0.0]


@pytest.mark.parametrize("piece", ["1", "(", "1+", "1 ", " ", "1=", "-", "(1+1)="])
def test_no_text_takes_long(piece: str) -> None:
    start = time.monotonic()
    score(piece * 20_000 + "=1")
    assert time.monotonic() - start < 2
