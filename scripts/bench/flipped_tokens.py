"""Share of the tokens of a step's rollouts that depend on the number of processes.

    python scripts/bench/flipped_tokens.py processes=[2,4]
    python scripts/bench/flipped_tokens.py run=configs/rl/text_arithmetic.yaml ways=[zero3_cpu2]

Processes share the prompts of a step, and so sample other batches. In float64 their tokens are
equal (a test); in float32 the sums of a larger batch may round differently, and where two tokens
are about as likely as the number that draws between them, another one is drawn. Everything that the
model writes after it may differ too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from mmrl.config.command import Usage, read_settings  # noqa: E402


@dataclass(kw_only=True)
class Setting:
    """What is compared; `key=value` on the command line changes it."""

    run: str = "configs/rl/shapes_t2i.yaml"
    """RL configuration of one task."""
    ways: list[str] = field(default_factory=lambda: ["cpu2", "fsdp2_cpu2", "zero3_cpu2"])
    """Files of configs/accelerate, compared with one process."""
    processes: list[int] = field(default_factory=lambda: [2, 4])
    """Their numbers of processes."""
    options: list[str] = field(
        default_factory=lambda: ["bf16=false", "per_device_train_batch_size=8"]
    )
    """Further settings of the run, `key=value` each."""


USAGE = Usage("python scripts/bench/flipped_tokens.py", __doc__, Setting)


def sample_step(s: Setting, output: Path, *launcher: str) -> list[dict[str, Any]]:
    """The rollouts of the first step of a run."""
    import pyarrow.parquet as pq

    words = [f"config={s.run}", f"output_dir={output}", "max_steps=1", "save_steps=1"]
    words += ["eval_steps=0", "resume_from_checkpoint=null", *s.options]
    command = [sys.executable, "-m", *launcher, "mmrl.rl", *words]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: {' '.join(command)}\n{done.stderr[-3000:]}")
    [path] = (output / "samples").glob("completions_*.parquet")
    return pq.read_table(path).to_pylist()


def compare(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> dict[str, float]:
    """Shares of tokens, and of completions with any, that differ between the rollouts of a step."""
    assert [row["id"] for row in one] == [row["id"] for row in other]
    pairs = [(left["tokens"], right["tokens"]) for left, right in zip(one, other, strict=True)]
    flips = [sum(a != b for a, b in zip(*pair, strict=True)) for pair in pairs]
    total = sum(len(tokens) for tokens, _ in pairs)
    return {
        "completions": len(one),
        "tokens": total,
        "different_tokens": sum(flips) / total,
        "different_completions": sum(flip > 0 for flip in flips) / len(one),
    }


def main() -> None:
    s = read_settings(USAGE, sys.argv[1:])
    from launch_form import write_launch_form
    from results import circumstances, report

    with TemporaryDirectory() as place:
        folder = Path(place)
        alone = sample_step(s, folder / "one")
        for way in s.ways:
            for processes in s.processes:
                launch = write_launch_form(f"{way}.yaml", processes, folder)
                launcher = ["accelerate.commands.launch", "--config_file", str(launch), "-m"]
                rows = sample_step(s, folder / f"{way}-{processes}", *launcher)
                named = {"bench": "flipped_tokens", "run": Path(s.run).stem, "way": way}
                line = {**named, "processes": processes, **compare(alone, rows)}
                report({**line, **circumstances()})


if __name__ == "__main__":
    main()
