"""Two launched processes that do one command after the other.

Starting processes takes far longer than what most tests ask of them, since each imports torch. A
pair is started once by `accelerate launch` and then told, through files in a folder, which `main`
to call with which words.

    accelerate launch --config_file … -m tests.mmrl.pair FOLDER
"""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from mmrl import rl
from tests.mmrl.runs import ACCELERATE, launcher, module_process
from tests.mmrl.same_runs import equal_metrics


class Pair:
    """The two processes, from outside.

    Args:
        folder: where they are told what to do; empty.
        settings: file of `configs/accelerate` they are launched with.
    """

    def __init__(self, folder: Path, settings: str) -> None:
        self.folder, self.jobs, self.said = folder, 0, folder / "said.txt"
        words = launcher(ACCELERATE / settings)
        with self.said.open("w") as said:
            self.running = module_process(
                "tests.mmrl.pair", [str(folder)], *words, stderr=said, stdout=said
            )

    def begin(self, module: str, words: list[str]) -> None:
        """Let both call `main(words)` of a module."""
        _write(self.folder / f"{self.jobs}.json", json.dumps([module, words]))
        self.jobs += 1

    def end(self, timeout_s: float = 240) -> list[str]:
        """Wait until both have returned 0 from the last call; what each has printed.

        Raises:
            AssertionError: one has failed, ended, or not returned in time; with all they said.
        """
        files = [self.folder / f"{self.jobs - 1}.{rank}" for rank in (0, 1)]
        deadline = time.monotonic() + timeout_s
        while not all(file.exists() for file in files):
            alive = self.running.poll() is None and time.monotonic() < deadline
            assert alive, f"no answer from the pair: {self.said.read_text()[-6000:]}"
            time.sleep(0.02)
        answers = [json.loads(file.read_text()) for file in files]
        assert [status for status, _ in answers] == [0, 0], self.said.read_text()[-6000:]
        return [printed for _, printed in answers]

    def same_as_one(self, folder: Path, words: list[str], *alone: str) -> None:
        """Run the words in both, into `two`, and with `alone` here, into `one`; their metrics must
        be equal."""
        one, two = folder / "one", folder / "two"
        self.begin("mmrl.rl", [*words, f"output_dir={two}"])
        assert rl.main([*words, f"output_dir={one}", *alone]) == 0
        self.end()
        equal_metrics(one, two)

    def close(self) -> None:
        """End both."""
        (self.folder / "end").touch()
        try:
            self.running.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.running.kill()


def work(folder: Path) -> None:
    """Do what the folder says, until it says that it is the end or nobody is there to say so."""
    rank, parent = os.environ["RANK"], os.getppid()
    for job in range(sys.maxsize):
        task = folder / f"{job}.json"
        while not task.exists():
            if (folder / "end").exists() or os.getppid() != parent:
                return
            time.sleep(0.02)
        module, words = json.loads(task.read_text())
        with (folder / f"{job}.{rank}.out").open("w+") as out, contextlib.redirect_stdout(out):
            status = importlib.import_module(module).main(words)
            out.seek(0)
            answer = json.dumps([status, out.read()])
        _write(folder / f"{job}.{rank}", answer)


def _write(path: Path, text: str) -> None:
    """Write a file that is whole as soon as it is there."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text)
    partial.rename(path)


if __name__ == "__main__":
    work(Path(sys.argv[1]))
