"""Mathematical equivalence in one long-lived process that is killed and replaced when it hangs.

sympy can spend hours on an answer such as `9^{9^{9^9}}` in C code that neither signal handlers nor
threads can interrupt, so the comparison runs in a process (`rewards/parsing/math_worker.py`).
"""

import json
import logging
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)

WORKER = Path(__file__).with_name("math_worker.py")
START_SECONDS = 120.0


class VerifierError(RuntimeError):
    """The verifying process failed for a reason that is not the answer."""


class Verifier:
    """Compares answers with references by math-verify; a comparison has `timeout` seconds of
    processor time."""

    def __init__(self, timeout: float = 5.0) -> None:
        self.timeout = timeout
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def equal(self, gold: str, answer: str) -> bool | None:
        """Whether both say the same; None when the comparison used up its time. Raises
        VerifierError: the process ended or went silent without using up its time."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self.close()
                self._process = _start(self.timeout)
            print(json.dumps([gold, answer]), file=self._process.stdin, flush=True)
            # The clock is a backstop for a machine in trouble; the limit is processor time.
            reply = _line(self._process, 20 * self.timeout + 60)
            if reply:
                return json.loads(reply)
            code = self.close()
        if code != -signal.SIGPROF:
            raise VerifierError(
                f"math-verify ended with exit status {code} on the answer {answer[:80]!r} to "
                f"{gold[:80]!r}, and not by its time limit; its last words are on stderr."
            )
        text = "math-verify gave up after %g s of processor time on the answer %r to %r"
        logger.warning(text, self.timeout, answer[:80], gold[:80])

    def close(self) -> int | None:
        """End the process and return its status; the next comparison starts another."""
        process, self._process = self._process, None
        return process and _end(process)


def _start(timeout: float) -> subprocess.Popen[str]:
    # Isolated mode keeps this folder, whose file names shadow the standard library, off the path.
    process = subprocess.Popen(
        [sys.executable, "-I", str(WORKER), str(timeout)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )
    if not _line(process, START_SECONDS):
        raise VerifierError(
            f"The math-verify process did not start (exit status {_end(process)}); its message is "
            "on stderr. Where math-verify is missing: pip install 'mmrl[math]'."
        )
    return process


def _line(process: subprocess.Popen[str], seconds: float) -> str:
    """The next line the process writes; empty if it ends or the time passes first."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    return process.stdout.readline() if ready else ""


def _end(process: subprocess.Popen[str]) -> int:
    with process:  # closes its pipes and waits for it
        # It closes its pipe a moment before it can be waited for; only a live one is killed.
        with suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=0.5)
        process.kill()
    return process.returncode
