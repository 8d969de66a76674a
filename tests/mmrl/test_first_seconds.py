"""What a command does before its work begins."""

import subprocess
import sys

COMMAND = "import sys; sys.argv = ['-m']; import mmrl"
"""Imports the package as `python -m mmrl.…` does before anything else."""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_sigusr1_ends_no_command_from_its_first_import_on_and_is_not_inherited() -> None:
    shown = "subprocess.run(['sh', '-c', 'trap \"echo trapped\" USR1; kill -USR1 $$'])"
    code = f"{COMMAND}, os, signal, subprocess; os.kill(os.getpid(), signal.SIGUSR1); {shown}"
    done = run(code)
    assert (done.returncode, done.stdout) == (0, "trapped\n"), done.stderr


def test_no_library_writes_before_a_command_does() -> None:
    done = run(f"{COMMAND}; import peft; from mmrl.models import load_policy")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
