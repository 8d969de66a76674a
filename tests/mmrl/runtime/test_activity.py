"""What a command shows of its work: on a terminal, in a file, from loops and without them."""

import io
import re
import sys
import time

import pytest

from mmrl.runtime import activity as shown
from mmrl.runtime.activity import Display, activity, advance, write


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds as hundredths of them."""
    monkeypatch.setattr(shown, "SILENCE", 0.1)
    monkeypatch.setattr(shown, "REFRESH", 0.01)


def test_a_call_of_any_length_is_accompanied_by_lines_of_what_is_true(
    hurried: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with Display(), activity("step", 40, 20) as steps, activity("rollouts", 128):
        advance(32)
        time.sleep(0.25)
        steps.reach(21)
        steps.remark = "reward 0.250"
        time.sleep(0.25)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 2 and re.fullmatch(r"step: +50% 20/40 \[.*, rollouts 32/128\]", lines[0])
    assert re.fullmatch(r"step: +52% 21/40 \[.*step/s, reward 0.250, rollouts 32/128\]", lines[-1])


def test_rate_and_time_left_come_from_what_this_process_has_done() -> None:
    going_on = shown.Activity("step", 40, 20)
    going_on.started = going_on.moved = time.monotonic() - 30
    assert "?step/s" in going_on.bar("", 0)
    going_on.reach(30)
    assert re.fullmatch(r"step: +75% 30/40 \[00:30<00:(30|29), +3\.00s/step\]", going_on.bar("", 0))


def test_a_terminal_has_one_bar_that_moves_below_the_lines(
    hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Display(), activity("step", 40) as steps:
        for step in range(1, 20):
            with activity("update", 4):
                time.sleep(0.02)
            steps.reach(step)
            if step == 10:
                write("a line")
    said = terminal.getvalue()
    assert "\ra line\n" in said
    places = [int(n) for n in re.findall(r"(\d+)/40 \[", said)]
    assert places == sorted(places) and len(set(places)) > 10 and "update 0/4" in said
    assert re.search(r"\r +\r$", said), "the bar is left standing"


def test_only_the_first_of_several_processes_shows_anything(
    hurried: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    with Display(), activity("loading"):
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_a_reader_that_left_stops_no_work(hurried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())
    with Display(), activity("rollouts", 2):
        time.sleep(0.2)
        advance()
