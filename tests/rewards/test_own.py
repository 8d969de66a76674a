"""Rewards of the user's own: functions, classes and callables, their options, what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
import torch
from PIL import Image
from torch import Tensor

from mmrl.config import ConfigError
from mmrl.rewards import build_reward, check_reward
from mmrl.rewards.judging.policy_query import read_query
from mmrl.rewards.scoring.failures import RewardError
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.rewards.scoring.terms import check_entries
from mmrl.types import Sample

if TYPE_CHECKING:
    from nowhere import Unknown

SAMPLES = [Sample("p", "a" * n, {"limit": n}) for n in range(3)]
HERE = __name__


def length(samples: list[Sample], factor: float = 1.0, *, odd: bool = True) -> list[float | None]:
    """The number of characters; None for none."""
    wanted = [len(str(sample.completion)) for sample in samples]
    return [None if n == 0 or (n % 2 and not odd) else factor * n for n in wanted]


def plain(samples, options=None, **more):  # noqa: ANN001, ANN003, ANN201
    return [float(len(more)) + (options or {}).get("add", 0) for _ in samples]


def foreign(samples: "list[Unknown]", choice: Literal["a", "b"] = "a", f: Any = len) -> list[float]:
    return [float(choice == "b") for _ in samples]


def trl(prompts: list[str], completions: list[str], **kwargs: Any) -> list[float]:
    return [0.0 for _ in completions]


def verl(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
    return 0.0


async def later(samples: list[Sample]) -> list[float]:
    return []


def yielding(samples: list[Sample]) -> Any:
    yield 1.0


class Vowels:
    """How many of the letters."""

    def __init__(self, letters: str = "aeiou", per: float = 1.0) -> None:
        self.letters, self.per = letters, per

    def __call__(self, samples: list[Sample]) -> list[float]:
        return [sum(str(s.completion).count(x) for x in self.letters) / self.per for s in samples]


class NoReward:
    def score(self, samples: list[Sample]) -> list[float]:
        return []


def entry(name: str, **options: Any) -> dict[str, Any]:
    return {"name": f"{HERE}:{name}", **options}


def test_functions_and_classes_take_their_options_from_the_entry() -> None:
    for options, scores in (
        (entry("length"), [None, 1.0, 2.0]),
        (entry("length", factor="2", odd="false"), [None, None, 4.0]),
        (entry("plain"), [0, 0, 0]),
        (entry("plain", options={"add": 2}, more=1), [3, 3, 3]),
        (entry("foreign", choice="b"), [1, 1, 1]),
        (entry("Vowels"), [0, 1, 2]),
        (entry("Vowels", letters="a", per=2), [0, 0.5, 1.0]),
    ):
        assert build_reward(options)(SAMPLES) == scores, options
    assert check_reward(entry("length", factor="2")) == {"factor": 2.0}


def test_callables_from_python_are_entries_with_and_without_options() -> None:
    rewards: list[Any] = [length, {"name": "twice", "reward": length, "factor": 2, "weight": 0.5}]
    rewards += [{"name": "vowels", "reward": Vowels, "per": 2}, Vowels("a")]
    rewards += [lambda samples: [1.0 for _ in samples]]
    scores = Scorer(rewards).score(SAMPLES)
    assert list(scores.components) == ["length", "twice", "vowels", "Vowels", "<lambda>"]
    assert scores.total == [0 + 0 + 1, 1 + 1 + 0.5 + 1 + 1, 2 + 2 + 1 + 2 + 1]


REFUSED = {
    "trl": "takes no list of samples.*prompts, completions.*def mine\\(samples\\)",
    "verl": "missing a required argument: 'solution_str'.*called with a list of samples alone",
    "later": "is async or yields",
    "yielding": "is async or yields",
    "NoReward": "the class NoReward has no __call__",
    "SAMPLES": "must be a function or a class",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_called_with_samples_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"rewards\[0\].*{REFUSED[name]}"):
        check_entries([entry(name)])
    if name != "SAMPLES":
        with pytest.raises(ConfigError, match=REFUSED[name]):
            check_entries([{"name": "x", "reward": globals()[name]}])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"factr": 1},
            r"rewards\[0\].*:length.*unexpected keyword argument 'factr'. Did you mean 'factor'",
        ),
        ({"factor": "two"}, r"rewards\[0\].factor: Value .two.*Float"),
        ({"odd": "perhaps"}, r"rewards\[0\].odd: Value .perhaps."),
        ({"weight": "x"}, r"rewards\[0\].weight is 'x'; it must be a finite number"),
    ],
)
def test_options_are_checked_against_the_signature(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_entries([entry("length", **options)])


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda samples: 1.0, "returned a float for 3 samples; it must be a list with a number"),
        (lambda samples: [1.0], "returned 1 scores for 3 samples; it must be a list"),
        (lambda samples: [True] * 3, "returned True, which is not a number; write float"),
        (lambda samples: ["1"] * 3, "returned '1', which is not a number"),
        (lambda samples: 1 / 0, r"raised ZeroDivisionError.*, called with 3 samples"),
    ],
)
def test_what_is_no_list_of_scores_is_named(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(RewardError, match=said):
        Scorer([function]).score(SAMPLES)


def test_a_reward_of_ones_own_may_ask_the_policy_only_if_it_says_so(tmp_path: Path) -> None:
    assert read_query(entry("length"), "rewards[0]") is None
    assert read_query({"name": "x", "reward": Vowels}, "rewards[0]") is None
    (tmp_path / "asks.py").write_text(
        "from mmrl.rewards.judging.policy_query import PolicyQuery\n"
        "class Asks:\n    in_step = True\n"
        "    def query(self):\n"
        "        return PolicyQuery(task='image_to_text', length=1, sampler={}, batch_size=1)\n"
        "    def bind(self, answer): self.answer = answer\n"
        "    def __call__(self, samples): return [0.0 for _ in samples]\n"
    )
    query = read_query({"name": f"{tmp_path}/asks.py:Asks"}, "rewards[0]")
    assert query is not None and query.task == "image_to_text"


def test_the_adapters_of_the_page_call_functions_written_for_others() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/how_to/rewards.md").read_text("utf-8")
    (code,) = [part for part in page.split("```python\n") if part.startswith("def from_trl")]
    scope: dict[str, Any] = {
        "theirs": lambda prompts, completions, limit, **_: [
            float(len(text) <= most) for text, most in zip(completions, limit, strict=True)
        ],
        "compute_score": lambda source, solution, truth, extra: solution == truth,
    }
    exec(code.split("```")[0], scope)
    samples = [Sample("p", "ab", {"limit": n, "answer": "a" * n}) for n in (1, 2)]
    assert Scorer([scope["from_trl"]]).score(samples).total == [0.0, 1.0]
    samples = [Sample("p", "ab", {"answer": answer}) for answer in ("ab", "b")]
    assert Scorer([scope["from_verl"]]).score(samples).total == [1.0, 0.0]


def glow(samples: list[Sample], pixels: list[Tensor], factor: float = 1.0) -> Tensor:
    return factor * torch.stack([image.square().mean() for image in pixels])


def test_a_function_of_pixels_is_called_with_images_and_has_a_gradient() -> None:
    entry = {"name": f"{HERE}:glow", "factor": 2.0}
    images = [Image.new("RGB", (3, 2), color) for color in ("white", "black")]
    reward: Any = build_reward(entry)
    samples = [Sample("p", image) for image in images]
    assert reward(samples) == [2.0, 0.0] and reward([]) == []
    pixels = [torch.full((3, 2, 2), 0.5, requires_grad=True)]
    Scorer([{**entry, "weight": 3.0, "scale": 2.0, "offset": 1.0}]).differentiate(
        pixels, samples[:1]
    ).sum().backward()
    torch.testing.assert_close(pixels[0].grad, torch.full((3, 2, 2), 12 * 2 * 0.5 / 12))
    with pytest.raises(ConfigError, match="limit"):
        check_reward({"name": f"{HERE}:glow", "limit": 1})
