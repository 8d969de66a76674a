"""Rows of a data set as examples, and those that are none."""

from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError
from tests.mmrl.objectives.completions import ROWS, completions, ids, write_rows


def test_a_conversation_is_learned_as_the_chat_template_writes_it(tmp_path: Path) -> None:
    turns = [
        ("user", "two rings"),
        ("assistant", " a ring \n"),
        ("user", "a"),
        ("assistant", "red"),
    ]
    messages = [{"role": role, "content": content} for role, content in turns]
    path = write_rows(tmp_path / "rows.jsonl", [{"messages": messages}])
    objective = completions(path, turns="all", ends=["eot"])
    template = objective.text.tokenizer.apply_chat_template
    for example, count in zip(objective.source.rows.items, (2, 4), strict=True):
        whole = ids(objective, str(template(messages[:count], tokenize=False)))
        row = [*example.prompt.tolist(), *example.completion.tolist()]
        assert row == whole[: len(row)]
        header = template(messages[: count - 1], tokenize=False, add_generation_prompt=True)
        assert example.prompt.tolist() == ids(objective, str(header))
    [last] = completions(path, ends=["eot"]).source.rows.items
    assert torch.equal(last.completion, objective.source.rows.items[1].completion)


def test_token_ids_are_taken_as_they_are(tmp_path: Path) -> None:
    row = {"prompt": [40, 41], "completion": [60, 61, 62]}
    [example] = completions(write_rows(tmp_path / "rows.jsonl", [row])).source.rows.items
    assert (example.prompt.tolist(), example.completion.tolist()) == ([40, 41], [60, 61, 62])


def test_what_is_too_long_or_empty_leaves_with_its_row_and_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = {"prompt": "ring " * 200, "completion": "a"}
    rows = [long, ROWS[0], {"prompt": "a", "completion": ""}, long, ROWS[1]]
    objective = completions(write_rows(tmp_path / "rows.jsonl", rows))
    for example, row in zip(objective.source.rows.items, ROWS, strict=False):
        assert example.completion.tolist()[:-2] == ids(objective, row["completion"])
        assert row["prompt"] in objective.text.tokenizer.decode(example.prompt)
    assert len(objective.source.rows.items) == 2
    assert "2 examples left out, longer than" in caplog.text
    assert "1 examples left out, the completion is empty" in caplog.text
    with pytest.raises(ConfigError, match="nothing to learn"):
        completions(write_rows(tmp_path / "long.jsonl", [long]))


def test_a_cut_completion_has_no_end(data: Path) -> None:
    objective = completions(data, max_length=16, overlong="cut")
    ends = {objective.text.ids["eot"], objective.text.ids["eos"]}
    cut = [
        e for e in objective.source.rows.items if len(e) == 16 and int(e.completion[-1]) not in ends
    ]
    assert cut and all(len(example) <= 16 for example in objective.source.rows.items)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a"}, "neither 'messages' nor 'completion'"),
        ({"messages": [{"role": "user", "content": "a"}]}, "no message answers"),
        (
            {"prompt": "a", "completion": "b", "image": "data:;base64,AAAA"},
            "has images, and the network",
        ),
        ({"messages": "a"}, "no list of role and content"),
        ({"prompt": "a", "completion": "red <|mdm_mask|>"}, "holds the mask token"),
        ({"prompt": "a", "completion": [10**6]}, "neither text nor a list of token ids"),
        ({"prompt": "a", "completion": [60, 61]}, "'order' must hold one step"),
        ({"prompt": "a", "completion": [60, 61], "order": [1]}, "for each of the 2 tokens"),
    ],
)
def test_rows_that_are_no_examples_are_named_with_their_line(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    good = {"prompt": "a", "completion": [60], "order": [0]}
    path = write_rows(tmp_path / "rows.jsonl", [good, row])
    with pytest.raises(ConfigError, match=f"line 2.*{message}"):
        completions(path, corruption={"name": "trace"})
