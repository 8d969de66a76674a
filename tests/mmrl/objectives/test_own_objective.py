"""The example of the documents, an objective in a file: checked, trained, recorded, resumed."""

import re
from pathlib import Path

import pytest
import torch
import yaml

from mmrl.sft import main
from tests.mmrl.runs import metrics

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how_to" / "supervised.md").read_text(encoding="utf-8")
ENTRIES = """
from mmrl.objectives import ObjectiveEntry

LINE = ObjectiveEntry(Line.Config, "mine.lines:Line")
BROKEN = ObjectiveEntry(Line.Config, "mine.lines:function")


def function():
    pass
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with the example of the documents in a file, and entries of it."""
    [code] = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "lines.py").write_text(code + ENTRIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def words(name: str, *changes: str) -> list[str]:
    fixed = ["optimizer=sgd", "momentum=0", "learning_rate=0.1", "lr_scheduler_type=constant"]
    usual = ["output_dir=run", "max_steps=4", "save_steps=2", "eval_steps=2", "logging_steps=1"]
    usual += ["bf16=false"]  # the expected numbers are those of float32
    return [f"objective.name={name}", *fixed, *usual, "max_grad_norm=0", *changes]


@pytest.mark.parametrize("name", ["mine/lines.py:Line", "mine.lines:LINE"])
def test_it_is_planned_trained_recorded_and_resumed(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(name, "objective.slope=3", "dry_run=true")) == 0
    said = capsys.readouterr().out
    assert f"objective   {name}: points of slope 3.0" in said and "1 parameters" in said
    assert not (folder / "run").exists()
    assert main(words(name, "objective.slope=3", "max_steps=2")) == 0
    recorded = yaml.safe_load((folder / "run" / "config.yaml").read_text())["objective"]
    assert recorded == {"name": name, "slope": 3}
    again = ["config=run/config.yaml", "max_steps=4", "resume_from_checkpoint=auto"]
    assert main(again) == 0
    weights = [3 * (1 - 0.8**step) for step in range(5)]  # w ← w + 0.2 (3 - w), exactly
    errors = [line["error"] for line in metrics(folder / "run") if "error" in line]
    assert errors == pytest.approx([(3 - w) ** 2 for w in weights[:4]], rel=1e-5)
    slopes = [line["eval/slope"] for line in metrics(folder / "run") if "eval/slope" in line]
    assert slopes == pytest.approx([weights[2], weights[4]], rel=1e-5)
    saved = torch.load(folder / "run" / "final" / "line.pt")
    assert float(saved["weight"]) == pytest.approx(weights[4], rel=1e-5)
    other = [*again, "max_steps=6", "objective.slope=4"]
    assert main(other) == 1 and "objective.slope was 3 and is 4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["lines"], "objective.name is 'lines'; allowed: flow, masked, text."),
        (["mine/lines.py:function"], "it must be the name of an ObjectiveEntry, or of an"),
        (["mine/lines.py:BROKEN"], "it must be a class with outline, batch, loss, save, evaluate"),
        (["mine/lines.py:Line", "objective.slop=1"], "Did you mean 'slope'? Allowed here: slope"),
    ],
)
def test_a_wrong_name_or_option_is_one_clear_line_and_nothing_is_written(
    changed: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for plan in ("true", "false"):
        assert main(words(*changed, f"dry_run={plan}")) == 1
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert error.startswith("error: objective.") and said in error
    assert not (folder / "run").exists()
