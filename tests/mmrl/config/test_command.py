import pytest

from mmrl.config import ConfigError
from mmrl.config.command import exit_status
from mmrl.rewards.scoring.failures import RewardError


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
