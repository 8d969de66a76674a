"""The program of a completion, wherever its block opens and closes."""

import time

import pytest

from mmrl.rewards import build_reward
from mmrl.rewards.parsing.programs import find_program, find_python
from mmrl.types import Sample

CASES = {
    "the last block": ("```python\nb\n```\nand\n```py\na\n```", "a"),
    "not what it prints": ("```python\na\n```\noutput:\n```\n5\n```", "a"),
    "behind words": ("Here it is: ```python\na\n```", "a"),
    "in a list": ("- ```python\n  a\n  ```", "a"),
    "closed behind code": ("```python\ndef f():\n    return 1```", "def f():\n    return 1"),
    "in the answer tag": ("<answer>```python\na\n```</answer>", "a"),
    "closed by code and tag": ("<answer>```python\na```</answer>", "a"),
    "not an example behind the tag": (
        "<answer>\n```python\na\n```\n</answer>\nUse:\n```python\nf(3)\n```",
        "a",
    ),
    "not a draft": ("<think>```python\nb\n```</think>```python\na\n```", "a"),
    "not a later draft": ("```python\na\n```<answer>```python\nb\n```</answer>", "b"),
    "of tildes": ("~~~python\na\n~~~", "a"),
    "longer fence": ("````python\na\n```\nb\n````", "a\n```\nb"),
    "indented": ("1. so\n   ```python\n   if a:\n       b\n   ```", "if a:\n    b"),
    "in bold": ("**Answer:** ```python\na\n```**", "a"),
    "in a quotation": ("> ```python\n> a\n> ```", "a"),
    "capitals, a title": ("```Python title='x'\na\n```", "a"),
    "Pandoc's": ("```{.python}\na\n```", "a"),
    "Windows' lines": ("```python\r\na\r\n```\r\n", "a"),
    "a fence in a string": ('```python\ns = "```"\nt = 1\n```', 's = "```"\nt = 1'),
    "words about fences": ("Put it in ```\nand so:\n```python\na\n```", "a"),
    "a block left open before": ("```python\nb\n```python\na\n```", "a"),
    "two on a line": ("```python\nb\n``` and ```python\na\n```", "a"),
    "the next one truncated": ("```python\na\n```\nbetter:\n```python\nb", "a"),
}
WITHOUT_LANGUAGE = {
    "no language": ("```\na\n```\n", "a"),
    "rather than another": ("```\na\n```\nprints\n```text\n5\n```", "a"),
    "tag without a block": ("<answer>\n    a\n    b\n</answer>", "a\nb"),
    "text alone": ("a = 1", "a = 1"),
    "behind a draft": ("<think>```python\nb\n```</think>\na = 1", "a = 1"),
    "truncated": ("```python\na\n", ""),
    "truncated of tildes": ("~~~python\na\n", ""),
    "truncated thought": ("<think>```python\na\n```", ""),
    "nothing": ("", ""),
}


@pytest.mark.parametrize("name", CASES)
def test_code_and_format_find_the_same_python_block(name: str) -> None:
    completion, expected = CASES[name]
    assert find_program(completion) == find_python(completion) == expected
    [score] = build_reward({"name": "format", "mode": "code_block"})([Sample("p", completion)])
    assert score == (0.5 if "````" in completion else 1.0)


@pytest.mark.parametrize("name", WITHOUT_LANGUAGE)
def test_without_a_python_block_the_format_is_missed(name: str) -> None:
    completion, expected = WITHOUT_LANGUAGE[name]
    assert find_program(completion) == expected and find_python(completion) is None


@pytest.mark.parametrize(
    "text",
    ["`" * 60_000, "```python\n(\n" * 5_000, "```python\nx = (1\n```\n" * 3_000]
    + ["```" + "a" * 60_000 + "`", "```" + " " * 60_000 + "`", "x ``` " * 10_000 + "\n"]
    + ["<answer>" * 8_000, " \n" * 30_000 + "x"]
    + ["".join("\n" + "`" * n + "python\n" for n in range(300, 2, -1))],
    ids=lambda text: repr(text[:12]),
)
def test_finding_takes_a_moment_whatever_is_written(text: str) -> None:
    start = time.process_time()
    find_program(text)
    find_python(text)
    assert time.process_time() - start < 2
