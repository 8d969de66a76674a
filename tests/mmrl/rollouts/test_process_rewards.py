"""Rewards of chunks in the loop: where they land, what carries them, and judges that give them."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from mmrl.algorithms import group_advantages
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.samplers.denoise import find_scored
from mmrl.rl import train
from mmrl.rl_config import RLConfig
from mmrl.rollouts.chunks import cut
from mmrl.rollouts.credit import assign_credit, place_rewards
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.rollouts.tasks import Task
from mmrl.training.trainer import Trainer
from mmrl.types import Chunk, Cutting, Sample
from tests.mmrl.runs import World, metrics, rollouts, trainer_of, vowels
from tests.mmrl.test_text_rl import text_config
from tests.mmrl.training.test_value_model import method
from tests.rewards.judge_server import counts, judge_server


class Vowels:
    """Vowels less other letters of every chunk."""

    cutting = Cutting(2)

    def __init__(self) -> None:
        self.seen: list[Sample] = []

    def __call__(self, samples: list[Sample]) -> list[Any]:
        self.seen += samples
        return [[_vowels(chunk.text) for chunk in sample.chunks or ()] for sample in samples]


def _vowels(text: str) -> float:
    return float(sum(1 if c in "aeiou" else -0.5 for c in text))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with judge_server() as address:
        yield address


def process_config(world: World, folder: Path, valued: bool = True, **task: Any) -> RLConfig:
    """Texts of eight tokens in chunks of two, and whatever the task changes."""
    rewards = [{"name": "chunks", "reward": Vowels(), "weight": 2.0}]
    config = text_config(world, folder, **{"rewards": rewards, **task})
    config.tasks["shapes"].algorithm = method(valued)
    config.model.max_prompt_length = 100
    return config


def first_step(config: RLConfig) -> tuple[Trainer, Task, RolloutBatch]:
    trainer = trainer_of(config)
    [(task, batch)] = rollouts(config, trainer).values()
    return trainer, task, batch


def expected_columns(rows: list[list[float]]) -> list[list[float]]:
    """Of one group: centred column by column, over the root of the summed sample variances."""
    columns = [[row[n] for row in rows if n < len(row)] for n in range(max(map(len, rows)))]
    means = [sum(column) / len(column) for column in columns]
    squares = [
        sum((value - mean) ** 2 for value in column) / (len(column) - 1) if column[1:] else 0.0
        for column, mean in zip(columns, means, strict=True)
    ]
    size = math.sqrt(sum(squares)) + 1e-4
    return [[(value - means[n]) / size for n, value in enumerate(row)] for row in rows]


def test_rewards_land_on_the_last_token_of_their_chunk_and_nowhere_else(
    world: World, tmp_path: Path
) -> None:
    rewards = [{"name": "chunks", "reward": Vowels(), "weight": 2.0}]
    rewards += [{"name": "whole", "reward": vowels}]
    config = process_config(world, tmp_path, rewards=rewards)
    _, task, batch = first_step(config)
    canvas, earned = batch.rollout.canvas, batch.token_rewards
    samples = task.scorer.terms[0].reward.seen  # type: ignore[attr-defined]
    assert earned is not None and earned.shape == canvas.tokens.shape
    width = canvas.tokens.shape[1]
    for first in (0, 4):
        rows = [
            [vowels([sample])[0], *(2 * _vowels(chunk.text) for chunk in sample.chunks)]
            for sample in samples[first : first + 4]
        ]
        for n, (row, sample) in enumerate(
            zip(expected_columns(rows), samples[first : first + 4], strict=True), start=first
        ):
            wanted = torch.zeros(width)
            wanted[-1] = row[0]
            for value, chunk in zip(row[1:], sample.chunks, strict=True):
                wanted[chunk.end] += value
                assert bool(canvas.counted[n, chunk.end])
            torch.testing.assert_close(earned[n], wanted, atol=1e-5, rtol=1e-5)
            assert "".join(chunk.text for chunk in sample.chunks) == sample.completion
            assert sample.chunks[-1].end + width == int(canvas.counted[n].nonzero()[-1])
    totals = [2 * sum(map(_vowels, [c.text for c in s.chunks])) + vowels([s])[0] for s in samples]
    assert batch.rewards.tolist() == pytest.approx(totals)
    torch.testing.assert_close(batch.advantages, group_advantages(batch.rewards, 4, "group"))


def test_groups_whose_chunks_differ_are_kept_where_their_sums_are_equal(
    world: World, tmp_path: Path
) -> None:
    class Opposed(Vowels):
        def __call__(self, samples: list[Sample]) -> list[Any]:
            return [
                [0.0] * len(s.chunks or ())
                if len(s.chunks or ()) < 2
                else [1.0 - n % 2 * 2, n % 2 * 2 - 1.0, *[0.0] * (len(s.chunks or ()) - 2)]
                for n, s in enumerate(samples)
            ]

    for valued, kept in ((True, True), (False, False)):
        rewards = [{"name": "chunks", "reward": Opposed()}]
        config = process_config(world, tmp_path, valued, rewards=rewards, skip_zero_std_groups=True)
        _, _, batch = first_step(config)
        assert batch.left_out is not None and bool(batch.left_out.any()) != kept
        assert batch.metrics["frac_reward_zero_std"] == 1


def test_a_run_with_a_judge_of_chunks_trains(world: World, tmp_path: Path, url: str) -> None:
    entry: dict[str, Any] = {"name": "judge", "model": "right", "urls": [url]}
    entry |= {"chunk_size": 3, "chunk_at": "lines", "cache_dir": str(tmp_path / "judged")}
    before = counts(url)["asked"].get("right", 0)
    run = train(process_config(world, tmp_path, rewards=[entry]))
    lines = [line for line in metrics(run) if "loss" in line]
    assert len(lines) == 2 and all(line["grad_norm"] > 0 for line in lines)
    for line in lines:
        assert -1 <= line["rewards/judge/mean"] <= 1 and line["reward_std"] > 0
        assert line["rewards/judge/failures"] == 0 and "loss/value_avg" in line
    assert counts(url)["asked"]["right"] > before
    assert any("eval/shapes/judge" in line for line in metrics(run))


def test_texts_that_end_at_once_lack_chunks_and_teach_nothing(world: World, tmp_path: Path) -> None:
    task = Task("words", process_config(world, tmp_path).tasks["shapes"])
    texts = ["", "aa", "", "bb", "aab", "a", "ab", "b"]
    cut = [tuple(Chunk(n, "", c) for n, c in enumerate(text)) for text in texts]
    samples = [Sample("p", text, chunks=own) for text, own in zip(texts, cut, strict=True)]
    earned = assign_credit(task, task.scorer.score(samples), 0, 0, 0, 1)
    assert earned.rewards.isnan().tolist() == [not text for text in texts]
    assert earned.advantages[[0, 2]].tolist() == [0, 0] and earned.advantages[1] > 0
    assert earned.columns is not None
    rewards = place_rewards(earned.columns, cut, 5)
    assert not bool(rewards[[0, 2]].any())
    size = math.sqrt(4.5 + 4.5) + 1e-4  # of the scores 2 and -1 at two places
    expected = [[1.5 / size] * 2, [-1.5 / size] * 2]
    torch.testing.assert_close(rewards[[1, 3], :2], torch.tensor(expected))
    assert not bool(rewards[:, 3:].any()), "there is no reward of the whole"


ROOT = Path(__file__).resolve().parents[3]
BYTES = PreTrainedTokenizerFast.from_pretrained(ROOT / "datasets/text/checkpoints/llada")
EOS, EOT = "<|endoftext|>", "<|eot_id|>"


def canvas(*texts: str, length: int = 12) -> MaskedCanvas:
    """Finished rows: a prompt of two tokens, texts with a token per byte, then ends."""
    eos, eot = (int(BYTES.convert_tokens_to_ids(token)) for token in (EOS, EOT))
    rows = [BYTES(text, add_special_tokens=False)["input_ids"] for text in texts]
    tokens = torch.tensor([[5, 5, *row, *[eos] * (length - len(row))] for row in rows])
    response = torch.arange(length + 2).expand_as(tokens) >= 2
    found = MaskedCanvas(tokens, response, None, (0, len(BYTES)), 0, stop_ids=(eos, eot))
    found.valid = find_scored(found)
    return found


def from_left(row: MaskedCanvas, cutting: Cutting) -> list[tuple[Chunk, ...]]:
    """The chunks with their last columns, counted from the left."""
    width = row.tokens.shape[1]
    return [
        tuple(chunk._replace(end=chunk.end + width) for chunk in own)
        for own in cut(BYTES, row, cutting)
    ]


def test_chunks_end_behind_so_many_tokens_and_the_end_belongs_to_the_last() -> None:
    found = from_left(canvas("abcdefgh", "abc", "abcdefghijkl"), Cutting(3))
    assert found == [
        (Chunk(4, "", "abc"), Chunk(7, "abc", "def"), Chunk(10, "abcdef", "gh")),
        (Chunk(5, "", "abc"),),
        (Chunk(4, "", "abc"), Chunk(7, "abc", "def"), Chunk(10, "abcdef", "ghi"))
        + (Chunk(13, "abcdefghi", "jkl"),),
    ]


def test_one_chunk_holds_what_is_shorter_and_without_words_there_is_none() -> None:
    texts = ["ab", "", "   ", "a" + EOT + "bcd", EOT]
    whole, *rest = from_left(canvas(*texts), Cutting(64))
    assert whole == (Chunk(4, "", "ab"),)
    assert rest == [(), (), (Chunk(3, "", "a"),), ()], "nothing behind the first end has a part"


def test_lines_end_chunks_once_they_are_long_enough() -> None:
    text = "a\nbb\n\n\nc\nddddd"
    found = cut(BYTES, canvas(text, length=40), Cutting(1, "lines"))[0]
    assert [chunk.text for chunk in found] == ["a\n", "bb\n", "\n\nc\n", "ddddd"]
    found = cut(BYTES, canvas(text, length=40), Cutting(4, "lines"))[0]
    assert [chunk.text for chunk in found] == ["a\nbb\n", "\n\nc\n", "ddddd"]
    blank = cut(BYTES, canvas("abc\n\n\n", length=40), Cutting(4))[0]
    assert [chunk.text for chunk in blank] == ["abc\n\n\n"], "blanks are no chunk of their own"


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.text(st.sampled_from("ab \n7é"), max_size=20),
    st.integers(1, 9),
    st.sampled_from(["tokens", "lines"]),
)
def test_chunks_are_the_whole_text_and_end_where_tokens_do(text: str, size: int, at: str) -> None:
    row = canvas(text, length=60)
    [chunks] = from_left(row, Cutting(size, at))  # type: ignore[arg-type]
    if not text.strip():
        assert chunks == ()
        return
    assert "".join(chunk.text for chunk in chunks) == text
    assert [chunk.before for chunk in chunks] == [
        "".join(chunk.text for chunk in chunks[:n]) for n in range(len(chunks))
    ]
    ends = [1, *(chunk.end for chunk in chunks)]
    lengths = [end - start for start, end in zip(ends, ends[1:], strict=False)]
    assert all(length >= size for length in lengths[:-1]) and lengths[-1] >= 1
    assert ends[-1] == int(row.counted[0].nonzero()[-1]), "the last one ends with the response"


def test_padding_on_the_left_moves_nothing() -> None:
    row = canvas("abcdefgh")
    padded = MaskedCanvas(
        torch.nn.functional.pad(row.tokens, (4, 0)),
        torch.nn.functional.pad(row.response, (4, 0)),
        None,
        row.columns,
        0,
        stop_ids=row.stop_ids,
        valid=torch.nn.functional.pad(row.counted, (4, 0)),
    )
    assert cut(BYTES, padded, Cutting(3)) == cut(BYTES, row, Cutting(3))
