"""A dry run refuses what the run refuses, with the same message; a plan is one screen."""

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mmrl import eval as evaluate
from mmrl import eval_v, rl, sft
from mmrl.config import to_yaml
from mmrl.preflight.plan_page import LINES
from tests.mmrl.runs import ROOT
from tests.mmrl.supervised_runs import config

RL = "config=configs/rl/text_arithmetic.yaml"
SFT = "config=TMP/sft.yaml"
IMAGES = "config=configs/rl/quickstart.yaml"
EVAL = "config=configs/eval/text_arithmetic.yaml"
PROMPTS = "tasks.arithmetic.prompts"
TEMPLATE = "{{ raise_exception('System role not supported') }}"
OWN = "def labelled(samples):\n    return [float(each.metadata['label']) for each in samples]\n"


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture
def refused(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[Callable[[Sequence[str]], int], Sequence[str]], list[str]]:
    """The messages with which the dry run and the run of a command are refused."""
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "sft.yaml").write_text(to_yaml(config(images, tmp_path / "out")))

    def try_both(main: Callable[[Sequence[str]], int], words: Sequence[str]) -> list[str]:
        said = []
        for more in (["dry_run=true"], []):
            given = [word.replace("TMP", str(tmp_path)) for word in words]
            capsys.readouterr()
            try:
                assert main([f"output_dir={tmp_path / 'out'}", *given, *more]) == 1
                said += re.findall(r"^error: (.*)", capsys.readouterr().err, re.MULTILINE)[:1]
            except Exception as error:
                said.append(str(error))
        return said

    return try_both


@pytest.mark.parametrize(
    ("main", "words", "named"),
    [
        (rl.main, [RL, "model.max_prompt_length=2"], "longer than model.max_prompt_length"),
        (rl.main, [RL, "model.path=no/such"], "'no/such' is neither an existing directory nor"),
        (
            rl.main,
            [RL, "model.chat_template=TMP/template.jinja", "tasks.arithmetic.data.system=Be brief"],
            "System role not supported",
        ),
        (rl.main, [RL, f"{PROMPTS}=nowhere.jsonl"], "'nowhere.jsonl' is not a file"),
        (rl.main, [RL, "per_device_train_batch_size=7"], "per_device_train_batch_size is 7"),
        (rl.main, [RL, "resume_from_checkpoint=nowhere"], "resume_from_checkpoint is 'nowhere'"),
        (rl.main, [RL, "output_dir=README.md"], "output_dir is 'README.md'"),
        (
            rl.main,
            ["config=configs/rl/quickstart.yaml", "model.vq=no/such"],
            "'no/such' is neither",
        ),
        (sft.main, [SFT, "objective.vq=no/such"], "'no/such' is neither an existing directory nor"),
        (sft.main, [SFT, "learning_rate_scales={decodr: 2.0}"], "'decodr'"),
        (evaluate.main, [EVAL, "model.path=no/such"], "'no/such' is neither an existing directory"),
        (evaluate.main, [EVAL, "model.max_prompt_length=2"], "longer than model.max_prompt_length"),
        (evaluate.main, [EVAL, "prompts=nowhere.jsonl"], "'nowhere.jsonl' is not a file"),
    ],
)
def test_a_dry_run_refuses_what_the_run_refuses_with_the_same_message(
    main: Callable, words: list[str], named: str, refused: Callable
) -> None:
    dry, real = refused(main, words)
    assert dry == real and named in dry


def test_a_column_that_only_the_reward_finds_missing_is_refused_by_both(refused: Callable) -> None:
    reward = "tasks.arithmetic.rewards=[{name: TMP/own.py:labelled}]"
    for said in refused(
        rl.main, [RL, reward, "max_steps=1", "tasks.arithmetic.eval_prompts=''", "eval_steps=0"]
    ):
        assert "reward 'labelled' failed on" in said and "KeyError('label')" in said


@pytest.mark.parametrize(("main", "words"), [(rl.main, [RL]), (sft.main, [SFT])])
def test_a_disk_that_is_too_small_is_refused_by_both(
    main: Callable, words: list[str], refused: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil._ntuple_diskusage(2**30, 2**30, 2**10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    dry, real = refused(main, words)
    assert dry == real and "is too small" in dry and "choose another output_dir" in dry


def test_a_plan_says_whether_a_run_fits_the_devices_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["config=configs/sft/llada_8b.yaml", "dry_run=true"]
    fsdp = "launch_config=configs/accelerate/fsdp2.yaml"
    for more, status, verdict in (
        (["devices=8xA100-80GB", fsdp], 0, "of 78.40 GiB of A100-80GB: "),
        (["devices=8xA100-80GB"], 1, "of 78.40 GiB of A100-80GB: DOES NOT FIT"),
        (["devices=4x24GB", fsdp], 1, "of 23.52 GiB of 24GB: DOES NOT FIT"),
    ):
        assert sft.main([*words, *more]) == status
        said, error = capsys.readouterr()
        said = " ".join(said.split())
        assert verdict in said and "AVX512" not in said and "computes it natively" in said
        assert ("is estimated to take" in error) == bool(status)
    assert sft.main([*words, "devices=9xH9"]) == 1
    assert "devices is 'H9'" in capsys.readouterr().err


def test_the_settings_are_printed_with_verbose_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert rl.main([RL, "dry_run=true"]) == 0
    assert "adam_epsilon" not in capsys.readouterr().out
    for word in ("verbose=true", "--verbose"):
        assert rl.main([RL, "dry_run=true", word]) == 0
        assert "adam_epsilon: 1.0e-08" in capsys.readouterr().out
    assert rl.main([RL, "verbose=true"]) == 1
    assert "verbose is True; it must be false without dry_run" in capsys.readouterr().err


def recipes() -> list[str]:
    return sorted(
        str(path.relative_to(ROOT))
        for kind in ("rl", "sft", "eval")
        for path in (ROOT / "configs" / kind).glob("*.yaml")
    )


@pytest.mark.slow
@pytest.mark.parametrize("path", recipes())
def test_the_plan_of_every_recipe_is_one_screen(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil._ntuple_diskusage(2**50, 0, 2**50)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    words = [f"config={path}", f"output_dir={tmp_path / 'out'}", "dry_run=true"]
    mains = {"rl": [rl.main], "sft": [sft.main], "eval": [evaluate.main, eval_v.main]}
    for main in mains[path.split("/")[1]]:
        status = main(words)
        said, error = capsys.readouterr()
        if status == 0:  # else of the other command of benchmarks
            break
    if status:  # of inputs that other recipes write, or that users bring
        assert "Write it first" in error or "is not a file" in error, error
        return
    lines = said.splitlines()
    assert 10 < len(lines) <= LINES and all(len(line) <= 140 for line in lines), said
    assert "settings that differ from their defaults" in said
