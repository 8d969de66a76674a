"""What the tests of completions share."""

from pathlib import Path

import pytest

from tests.mmrl.objectives.completions import write_rows


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six prompts with completions of different lengths."""
    return write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl")
