"""A dry run refuses what the run refuses, with the same message."""

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mmrl import eval as evaluate
from mmrl import rl, sft
from mmrl.config import to_yaml
from tests.mmrl.runs import ROOT
from tests.mmrl.supervised_runs import config

RL = "config=configs/rl/text_arithmetic.yaml"
SFT = "config=TMP/sft.yaml"
IMAGES = "config=configs/rl/quickstart.yaml"
EVAL = "config=configs/eval/text_arithmetic.yaml"
PROMPTS = "tasks.arithmetic.prompts"
TEMPLATE = "{{ raise_exception('System role not supported') }}"
OWN = "def labelled(samples):\n    return [float(each.metadata['label']) for each in samples]\n"


@pytest.fixture
def refused(
    images: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[Sequence[str]], int], Sequence[str]], list[str]]:
    """The messages with which the dry run and the run of a command are refused."""
    monkeypatch.chdir(ROOT)
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "sft.yaml").write_text(to_yaml(config(images, tmp_path / "out")))
    whole = ROOT / "datasets/text/checkpoints/llada"
    for file in ("model.safetensors", "config.json"):
        shutil.copytree(whole, tmp_path / file)
        damaged = tmp_path / file / file
        damaged.write_bytes(damaged.read_bytes()[:-5])
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "metrics.jsonl").touch()

    def try_both(main: Callable[[Sequence[str]], int], words: Sequence[str]) -> list[str]:
        said = []
        for more in (["dry_run=true"], []):
            given = [word.replace("TMP", str(tmp_path)) for word in words]
            capsys.readouterr()
            try:
                assert main([f"output_dir={tmp_path / 'out'}", *given, *more]) == 1
                error = capsys.readouterr().err
                said += re.findall(r"^error: (.*)", error, re.MULTILINE)[:1]
            except Exception as error:
                said.append(str(error))
        return said

    return try_both


@pytest.mark.parametrize(
    ("main", "words", "named"),
    [
        (rl.main, [RL, "model.max_prompt_length=2"], "longer than model.max_prompt_length"),
        (rl.main, [RL, "model.path=no/such"], "'no/such' is neither an existing directory nor"),
        (rl.main, [RL, "model.path=TMP/model.safetensors"], "model.safetensors"),
        (rl.main, [RL, f"{PROMPTS}=nowhere.jsonl"], "'nowhere.jsonl' is not a file"),
        (rl.main, [RL, "per_device_train_batch_size=7"], "per_device_train_batch_size is 7"),
        (rl.main, [RL, "resume_from_checkpoint=nowhere"], "resume_from_checkpoint is 'nowhere'"),
        (rl.main, [RL, "output_dir=TMP/held"], "already holds a run"),
        (rl.main, [IMAGES, "model.image_size=30"], "a multiple of 4"),
        (
            rl.main,
            [IMAGES, "tasks.shapes.rewards=[{name: clip, model: ViT-L-41}]"],
            "clip.model is 'ViT-L-41'",
        ),
        (sft.main, [SFT, "objective.vq=no/such"], "'no/such' is neither an existing directory nor"),
        (sft.main, [SFT, "objective.data=nowhere.parquet"], "nowhere.parquet"),
        (evaluate.main, [EVAL, "model.max_prompt_length=2"], "longer than model.max_prompt_length"),
    ],
)
def test_a_dry_run_refuses_what_the_run_refuses_with_the_same_message(
    main: Callable, words: list[str], named: str, refused: Callable
) -> None:
    dry, real = refused(main, words)
    assert dry == real and named in dry


def test_a_column_that_only_the_reward_finds_missing_is_refused_by_both(refused: Callable) -> None:
    reward = "tasks.arithmetic.rewards=[{name: TMP/own.py:labelled}]"
    rest = ["max_steps=1", "tasks.arithmetic.eval_prompts=''", "eval_steps=0"]
    for said in refused(rl.main, [RL, reward, *rest]):
        assert "reward 'labelled' failed on" in said and "KeyError('label')" in said
