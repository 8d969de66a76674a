"""The log of a run, whatever libraries do to the root logger."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmrl.run.run_directory import RunDirectory
from mmrl.run.run_log import log_run

own, library = logging.getLogger("mmrl.anything"), logging.getLogger("some_library")


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, afterwards as it was."""
    logger = logging.getLogger()
    before = logger.handlers[:]
    yield logger
    logger.handlers = before


def say_all() -> None:
    own.info("step done")
    own.warning("careful")
    library.info("chatter")
    library.warning("deprecated")


@pytest.mark.parametrize("moment", ["never", "before", "meanwhile", "by force"])
def test_every_line_stands_once_in_the_log_and_on_the_console(
    moment: str, root: logging.Logger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if moment == "before":
        root.addHandler(logging.StreamHandler(sys.stderr))
    with log_run(RunDirectory(tmp_path)):
        if moment == "meanwhile":
            root.addHandler(logging.StreamHandler(sys.stderr))
        if moment == "by force":
            logging.basicConfig(force=True)
        say_all()
    shown, log = capsys.readouterr().err, (tmp_path / "train.log").read_text()
    own_lines = ("INFO mmrl.anything: step done", "WARNING mmrl.anything: careful")
    assert [shown.count(line) for line in own_lines] == [1, 1]
    assert [log.count(line) for line in own_lines] == [1, 1]
    assert shown.count("deprecated") == 1 and "chatter" not in shown + log
    assert log.count("deprecated") == (moment != "by force")


def test_loggers_are_afterwards_as_they_were(root: logging.Logger, tmp_path: Path) -> None:
    loggers = [root, *map(logging.getLogger, ("mmrl", "models", "rewards", "eval", "__main__"))]
    before = [(logger.level, logger.propagate, logger.handlers[:]) for logger in loggers]
    with log_run(RunDirectory(tmp_path)):
        assert before != [(logger.level, logger.propagate, logger.handlers) for logger in loggers]
    assert before == [(logger.level, logger.propagate, logger.handlers) for logger in loggers]
    say_all()
    assert (tmp_path / "train.log").read_text() == ""
