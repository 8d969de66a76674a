"""Settings every test runs under."""

import functools
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

# Set before any Hugging Face package is imported: a test that reaches for a file it does not
# carry has to fail at once instead of waiting for a connection. `network` tests override it.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# The networks of the tests are too small to gain from a second thread; one process per core runs
# them. Set before torch is imported; processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell lets what it starts in the background ignore Ctrl-C, and so all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def cases(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Numbers of public code, from the folder of fixtures that a module names by `CASES_OF`."""
    from safetensors.torch import load_file

    return load_file(ROOT / "tests/fixtures" / request.module.CASES_OF / "cases.safetensors")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling:
    """Give each process whole files, and one of them all files with launched pairs."""
    return ByFile(config, log)


class ByFile(LoadFileScheduling):
    """Files whose tests share a pair (`tests.mmrl.pair`) stay together: it takes longer to start
    than all that they ask of it."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "pairs" if launches(self.config.rootpath / file) else file


@functools.cache
def launches(file: Path) -> bool:
    """Whether tests of a file use launched pairs."""
    return "import Pair\n" in file.read_text()
