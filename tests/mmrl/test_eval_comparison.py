"""Several checkpoints behind one command: the same prompts and seeds, and what differs."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mmrl import eval as text
from mmrl.models import load_policy
from tests.mmrl.test_eval import numbers, words

TEXTS = ["a red circle", "two green squares", "a purple ring", "a blue cross"]
EVEN = "rewards=[{name: tests/mmrl/test_eval.py:even, key: parity}]"


@pytest.fixture(scope="module")
def models(world: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the policy, and one with other weights."""
    folder = tmp_path_factory.mktemp("models")
    policy = load_policy(world.policy, vq=None)
    policy.save(folder / "same" / "final")
    generator = torch.Generator().manual_seed(1)
    for weight in policy.model.parameters():
        weight.data.normal_(std=0.05, generator=generator)
    policy.save(folder / "other" / "final")
    return folder


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    rows = [{"prompt": each, "id": f"p{n}", "answer": "1"} for n, each in enumerate(TEXTS)]
    (tmp_path / "text.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(tmp_path / "text.jsonl")


def compare(world: SimpleNamespace, prompts: str, out: Path, models: Path) -> list[str]:
    others = [models / "same" / "final", models / "other" / "final"]
    command = [*words(world, prompts, out), EVEN, "settings=[{label: long}]"]
    return [*command, f"compare_to={json.dumps([*map(str, others)])}"]


def test_checkpoints_are_compared_on_the_same_draws(
    world: SimpleNamespace,
    prompts: str,
    models: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, alone = tmp_path / "out", tmp_path / "alone"
    assert text.main(compare(world, prompts, out, models)) == 0
    said = capsys.readouterr().out
    content = json.loads((out / "comparison.json").read_text())
    first = content["first"]
    assert set(content["checkpoints"]) == {first, "same-final", "other-final"}
    assert text.main([*compare(world, prompts, alone, models), "compare_to=[]"]) == 0
    assert numbers(out / first) == numbers(out / "same-final") == numbers(alone)
    rows = content["differences"]["same-final"]["long"]["parity"]
    assert (rows["difference"], rows["stderr"], rows["n"]) == (0, 0, 4)
    rows = content["differences"]["other-final"]["long"]["parity"]
    means = [scores(out / each, "long") for each in (first, "other-final")]
    assert numbers(out / first)["samples"] != numbers(out / "other-final")["samples"]
    assert rows["difference"] == pytest.approx(means[0] - means[1])
    assert f"first: {first}, second: other-final" in said and "95 % interval" in said
    assert said.startswith((out / "comparison.txt").read_text())


def scores(folder: Path, setting: str) -> float:
    found = [sample["scores"]["parity"] for sample in numbers(folder)["samples"][setting]]
    return sum(found) / len(found)
