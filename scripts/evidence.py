"""A table of learning claims, by a protocol that this script keeps.

    python scripts/evidence.py config=configs/evidence/shapes_t2i.yaml dry_run=true
    python scripts/evidence.py config=configs/evidence/shapes_t2i.yaml
    python scripts/evidence.py config=configs/evidence/text.yaml only="trace_rl 0, spg 0" until=runs

Four stages: the best sampler of the starting weights, on validation prompts; the choices of each
method, by short runs on validation prompts; the runs, over all seeds, with controls whose
advantages are shuffled; and one reading of the test prompts per finished run and sampler. What is
done is not repeated and interrupted runs go on, so the script may be stopped and called again.

Every result is a line of `results`, written once. The page is made of these lines. A run that has
read test prompts, a choice that was not made on validation, and settings that changed after test
was read are refused.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmrl.config import load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402
from scripts.claims.table_config import Config  # noqa: E402

if TYPE_CHECKING:
    from scripts.claims.table import Table

USAGE = Usage("python scripts/evidence.py", __doc__, Config, "evidence")


def describe(table: Table) -> str:
    """What the table consists of, and what of it is done."""
    records, lines = table.records, []
    for task, options in table.config.tasks.items():
        done = records.get("sampler", task=task)
        state = (
            "none to try"
            if not options.samplers
            else f"chosen: {done['chosen']}"
            if done
            else "to do"
        )
        lines.append(f"{task} sampler: {state}")
        for method in table.config.methods:
            chosen, tried = table.chosen(task, method), len(table.candidates(task, method))
            state = "to do" if chosen is None else f"chosen: {chosen}" if tried else "none to make"
            lines.append(f"{task} {method} choice ({tried} short runs): {state}")
    for task, method, seed in table.wanted:
        run = table.run(task, method, seed)
        state = "not chosen yet" if run is None else f"{run.steps} of {run.config.max_steps} steps"
        if records.get("run", task=task, method=method, seed=seed):
            state = "finished"
        tests = [
            records.get("test", task=task, method=method, seed=seed, sampler=sampler)
            for sampler in table.samplers(task, method)
        ]
        read = sum(test is not None for test in tests)
        lines.append(
            f"{task} {method} seed {seed}: {state}, test read under {read} of {len(tests)} samplers"
        )
    return "\n".join(lines) + "\n"


def work(config: Config, command: str) -> None:
    """Do what is left of a table, and write its page."""
    from mmrl.run.run_lock import lock_directory
    from scripts.claims.jobs import execute_all
    from scripts.claims.page import write_page
    from scripts.claims.stages import stages
    from scripts.claims.table import Table

    if config.dry_run:
        sys.stdout.write(describe(Table(config)))
        return
    with lock_directory(Path(config.output_dir)):
        table = Table(config)
        for _, jobs in stages(table):
            execute_all(jobs, config.workers)
        if any(kind == "test" for kind, _ in table.records.found):
            print(write_page(table, command).read_text(encoding="utf-8"), end="")


def main(arguments: Sequence[str]) -> int:
    """Make the table that the command line names; return the exit status."""
    words = [word for word in arguments if word.startswith("config=")]
    command = " ".join([USAGE.command, *words])
    return run_command(
        USAGE, arguments, lambda: work(load_config(Config, arguments), command), RuntimeError
    )


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(main(sys.argv[1:]))
