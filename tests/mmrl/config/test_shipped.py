"""Shipped configurations are found wherever one stands, in a checkout and installed."""

import shutil
from pathlib import Path

import pytest

from mmrl.algorithms import load_algorithm
from mmrl.config import ConfigError, load_config
from mmrl.config.command import exit_status
from mmrl.config.yaml_file import configs
from mmrl.rewards.judging.template import load_template
from mmrl.rewards.scoring.failures import RewardError
from mmrl.rl_config import RLConfig

ROOT = Path(__file__).resolve().parents[3]
RUN = "configs/rl/quickstart.yaml"


@pytest.fixture(params=["checkout", "installed"])
def elsewhere(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder without configurations, beside an installed package or with the checkout."""
    if request.param == "installed":
        package = tmp_path / "site" / "mmrl"
        shutil.copytree(ROOT / "configs", package / "configs")
        monkeypatch.setattr(
            "mmrl.config.yaml_file.__file__", str(package / "config" / "yaml_file.py")
        )
        assert configs() == package / "configs"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "elsewhere"


def test_presets_judges_and_runs_are_found_from_anywhere(elsewhere: Path) -> None:
    assert load_algorithm({"name": "mask_grpo"}).name == "mask_grpo"
    assert "prompt" in load_template("general").fields
    assert load_config(RLConfig, [f"config={RUN}"]).output_dir == "runs/quickstart"


def test_a_name_that_nothing_has_lists_what_is_shipped(elsewhere: Path) -> None:
    with pytest.raises(ConfigError, match="configs/rl/quickstart.yaml") as error:
        load_config(RLConfig, ["config=configs/rl/quickstrat.yaml"])
    assert str(ROOT) not in str(error.value) and "site" not in str(error.value)


def fails(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "error", [ConfigError("a key"), FileNotFoundError("a file"), RewardError("a reward")]
)
def test_what_the_user_can_correct_is_one_line(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(lambda: fails(error), RewardError) == 1
    assert capsys.readouterr().err == f"error: {error}\n"


def test_an_interruption_has_its_own_status_and_a_defect_its_traceback() -> None:
    assert exit_status(lambda: fails(KeyboardInterrupt())) == 130
    assert (exit_status(lambda: None), exit_status(lambda: 3)) == (0, 3)
    with pytest.raises(RuntimeError, match="a defect"):
        exit_status(lambda: fails(RuntimeError("a defect")), RewardError)
