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

RL = [rl.main, "config=configs/rl/text_arithmetic.yaml"]
SFT = [sft.main, "config=TMP/sft.yaml"]
IMAGES = [rl.main, "config=configs/rl/quickstart.yaml"]
EVAL = [evaluate.main, "config=configs/eval/text_arithmetic.yaml"]
CAUSAL = [rl.main, "config=configs/rl/text_qwen3.yaml", "model.path=TMP/causal"]
QWEN3 = [rl.main, "config=configs/rl/qwen3_grpo_gsm8k.yaml"]
QWEN_VL = [rl.main, "config=configs/rl/qwen_vl_grpo_count.yaml"]
THEIRS = "model.path is 'Qwen/Qwen3-1.7B'"
REFUSE, LONG = "model.long_prompts=refuse", "model.long_prompts is 'refuse'; it must be "
METHOD = "tasks.arithmetic.algorithm"
GSM = "tasks.gsm8k.eval_sampler={name: static, steps: 8}"
VALUED = [f"{METHOD}.completion_value={{slices: 4}}", f"{METHOD}.scale_rewards=none"]
STATIC = "tasks.arithmetic.eval_sampler={name: static, steps: 8}"
GRPO = f"{METHOD}.name=grpo"
ONE_BY_ONE = "tasks.arithmetic.sampler={name: autoregressive}"
PROMPTS = "tasks.arithmetic.prompts"
SCORES = "tasks.shapes.rewards"
OWN = "def labelled(samples):\n    return [float(each.metadata['label']) for each in samples]\n"


@pytest.fixture
def refused(
    images: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., list[str]]:
    """The messages with which the dry run and the run of a command are refused."""
    monkeypatch.chdir(ROOT)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "sft.yaml").write_text(to_yaml(config(images, tmp_path / "out")))
    whole = ROOT / "datasets/text/checkpoints/llada"
    for file in ("model.safetensors", "config.json"):
        shutil.copytree(whole, tmp_path / file)
        damaged = tmp_path / file / file
        damaged.write_bytes(damaged.read_bytes()[:-5])
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "metrics.jsonl").touch()

    def try_both(main: Callable[[Sequence[str]], int], *words: str) -> list[str]:
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
    ("words", "named"),
    [
        ([*RL, "model.max_prompt_length=2"], "longer than model.max_prompt_length"),
        ([*RL, "model.path=no/such"], "'no/such' is neither an existing directory nor"),
        ([*RL, "model.path=TMP/model.safetensors"], "model.safetensors"),
        ([*RL, f"{PROMPTS}=nowhere.jsonl"], "'nowhere.jsonl' is not a file"),
        ([*RL, "per_device_train_batch_size=7"], "per_device_train_batch_size is 7"),
        ([*RL, "resume_from_checkpoint=nowhere"], "resume_from_checkpoint is 'nowhere'"),
        ([*RL, "output_dir=TMP/held"], "already holds a run"),
        ([*IMAGES, "model.image_size=30"], "a multiple of 4"),
        ([*IMAGES, f"{SCORES}=[{{name: clip, model: ViT-L-41}}]"], "clip.model is 'ViT-L-41'"),
        ([*SFT, "objective.vq=no/such"], "'no/such' is neither an existing directory nor"),
        ([*SFT, "objective.data=nowhere.parquet"], "nowhere.parquet"),
        ([*EVAL, "model.max_prompt_length=2"], "longer than model.max_prompt_length"),
    ],
)
def test_a_dry_run_refuses_what_the_run_refuses_with_the_same_message(
    words: list, named: str, refused: Callable
) -> None:
    dry, real = refused(*words)
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
    ("words", "named"),
    [
        ([*CAUSAL, STATIC], "eval_sampler.name is 'static'"),
        ([*CAUSAL, f"{METHOD}.name=diffu_grpo"], "strategy is 'full'; it must be causal"),
        ([*RL, GRPO], "algorithm.strategy is 'causal'; it must be "),
        ([*RL, GRPO, ONE_BY_ONE], "sampler.name is 'autoregressive'; it must be "),
        ([*EVAL, "model.path=TMP/causal"], "sampler.name is 'static'; it must be auto"),
        ([*CAUSAL, "model.path=TMP/endless"], "has an end of text (eos_token_id)"),
        ([*CAUSAL, "tasks.arithmetic.num_generations=1"], "num_generations is 1; "),
        ([*CAUSAL, f"{METHOD}.cfg_scale=1"], f"{METHOD}.cfg_scale is 1.0; it must be 0"),
        ([*CAUSAL, f"{METHOD}.cond_dropout_prob=0.1"], "cond_dropout_prob is 0.1"),
        ([*CAUSAL, *VALUED], f"{METHOD}.completion_value is 'given'; it must be null"),
        (
            [*QWEN3, GSM],
            "it must be autoregressive or sglang or vllm, as Qwen/Qwen3-1.7B is causal",
        ),
        ([*QWEN_VL, "model.path=Qwen/Qwen3-1.7B"], f"{THEIRS}; it must be a checkpoint of type"),
        ([*CAUSAL, "model.max_prompt_length=3", REFUSE], LONG),
        ([*EVAL, "model.max_prompt_length=8", REFUSE], LONG),
    ],
)
@pytest.mark.usefixtures("causal")
def test_what_another_kind_of_generation_lacks_is_refused_before_weights_load(
    words: list, named: str, refused: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "read_network", lambda *_: pytest.fail("weights were loaded"))
    dry, real = refused(*words)
    assert dry == real and named in dry


def test_a_column_that_only_the_reward_finds_missing_is_refused_by_both(refused: Callable) -> None:
    reward = "tasks.arithmetic.rewards=[{name: TMP/own.py:labelled}]"
    rest = ["max_steps=1", "tasks.arithmetic.eval_prompts=''", "eval_steps=0"]
    for said in refused(*RL, reward, *rest):
        assert "reward 'labelled' failed on" in said and "KeyError('label')" in said
