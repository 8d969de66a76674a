"""A dry run refuses what the run refuses, with the same message."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mmrl import eval as evaluate
from mmrl import rl, sft
from mmrl.config import to_yaml
from mmrl.models import policy
from tests.mmrl.runs import ROOT
from tests.mmrl.supervised_runs import config
from tests.models.causal import write_causal

RL = "config=configs/rl/text_arithmetic.yaml"
SFT = "config=TMP/sft.yaml"
IMAGES = "config=configs/rl/quickstart.yaml"
EVAL = "config=configs/eval/text_arithmetic.yaml"
CAUSAL = ["config=configs/rl/text_qwen3.yaml", "model.path=TMP/causal"]
METHOD = "tasks.arithmetic.algorithm"
STATIC = "eval_sampler={name: static, steps: 8}"
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


@pytest.fixture
def causal(tmp_path: Path) -> None:
    """A causal checkpoint of random weights, and the same without an end of text."""
    folder, shipped = tmp_path / "causal", ROOT / "datasets/text/checkpoints/qwen3"
    raw = json.loads((shipped / "config.json").read_text())
    write_causal(folder, **raw)
    for file in shipped.glob("*token*"):
        shutil.copy(file, folder)
    shutil.copytree(folder, tmp_path / "endless")
    for name, key in (("config", "eos_token_id"), ("tokenizer_config", "eos_token")):
        file = tmp_path / "endless" / f"{name}.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), key: None}))


@pytest.mark.parametrize(
    ("main", "words", "named"),
    [
        (rl.main, [*CAUSAL, f"tasks.arithmetic.{STATIC}"], "eval_sampler.name is 'static'"),
        (rl.main, [*CAUSAL, f"{METHOD}.name=diffu_grpo"], "strategy is 'full'; it must be causal"),
        (rl.main, [RL, f"{METHOD}.name=grpo"], "algorithm.strategy is 'causal'; it must be "),
        (
            rl.main,
            [RL, f"{METHOD}.name=grpo", "tasks.arithmetic.sampler={name: autoregressive}"],
            "sampler.name is 'autoregressive'; it must be ",
        ),
        (
            evaluate.main,
            [EVAL, "model.path=TMP/causal"],
            "sampler.name is 'static'; it must be auto",
        ),
        (rl.main, [*CAUSAL, "model.path=TMP/endless"], "has an end of text (eos_token_id)"),
        (rl.main, [*CAUSAL, "tasks.arithmetic.num_generations=1"], "num_generations is 1; "),
        (rl.main, [*CAUSAL, f"{METHOD}.cfg_scale=1"], f"{METHOD}.cfg_scale is 1.0; it must be 0"),
        (rl.main, [*CAUSAL, f"{METHOD}.cond_dropout_prob=0.1"], "cond_dropout_prob is 0.1"),
        (
            rl.main,
            [*CAUSAL, f"{METHOD}.completion_value={{slices: 4}}", f"{METHOD}.scale_rewards=none"],
            f"{METHOD}.completion_value is 'given'; it must be null",
        ),
        (
            rl.main,
            ["config=configs/rl/qwen3_grpo_gsm8k.yaml", f"tasks.gsm8k.{STATIC}"],
            "it must be autoregressive, as Qwen/Qwen3-1.7B is causal",
        ),
        (
            rl.main,
            ["config=configs/rl/qwen_vl_grpo_count.yaml", "model.path=Qwen/Qwen3-1.7B"],
            "model.path is 'Qwen/Qwen3-1.7B'; it must be a checkpoint of type",
        ),
        (
            rl.main,
            [*CAUSAL, "model.max_prompt_length=3", "model.long_prompts=refuse"],
            "model.long_prompts is 'refuse'; it must be ",
        ),
        (
            evaluate.main,
            [EVAL, "model.max_prompt_length=8", "model.long_prompts=refuse"],
            "model.long_prompts is 'refuse'; it must be ",
        ),
    ],
)
@pytest.mark.usefixtures("causal")
def test_what_another_kind_of_generation_lacks_is_refused_before_weights_load(
    main: Callable, words: list[str], named: str, refused: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "read_network", lambda *_: pytest.fail("weights were loaded"))
    dry, real = refused(main, words)
    assert dry == real and named in dry


def test_a_column_that_only_the_reward_finds_missing_is_refused_by_both(refused: Callable) -> None:
    reward = "tasks.arithmetic.rewards=[{name: TMP/own.py:labelled}]"
    rest = ["max_steps=1", "tasks.arithmetic.eval_prompts=''", "eval_steps=0"]
    for said in refused(rl.main, [RL, reward, *rest]):
        assert "reward 'labelled' failed on" in said and "KeyError('label')" in said
