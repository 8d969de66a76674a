"""The code reward: does the program in a completion pass its tests?

Code runs only in `mmrl.rewards.sandbox.sandbox`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, ClassVar, Literal

from mmrl.config import Settings, above
from mmrl.rewards.parsing.metadata import read_sample
from mmrl.rewards.parsing.program_tests import read_tests
from mmrl.rewards.parsing.programs import find_program
from mmrl.rewards.registry.interface import complete
from mmrl.rewards.sandbox.jail.parsed_tests import parse_tests
from mmrl.rewards.sandbox.sandbox import Job, JobVerdict, Sandbox
from mmrl.types import Sample

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class CodeReward(Settings):
    """Score programs against the metadata `tests`, `setup` and `entry_point`. Raises
    IsolationError: this machine cannot provide the isolation; the message says why."""

    where: ClassVar[str] = "code"
    needs: ClassVar[tuple[str, ...]] = ("completion", "metadata")

    partial: bool = False
    """Score the share of tests passed instead of all or nothing."""
    isolation: Literal["full", "process"] = "full"
    """`full` or `process`, see `mmrl.rewards.sandbox.sandbox`."""
    timeout: Annotated[float, above(0)] = 10.0
    """Wall-clock seconds for loading the code and for each test."""
    memory_mb: Annotated[int, above(0)] = 1024
    """Address space of one program."""
    workers: Annotated[int, above(0)] = 2
    """Programs that run at the same time."""
    match: Literal["text", "numbers"] = "text"
    """How a program's output is compared: `text`, or `numbers`, where lines of numbers may write
    them differently (0.50 for 0.5) and leading space is ignored (LiveCodeBench)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.read = {"text": _lines, "numbers": _numbers}[self.match]
        limits = self.timeout, self.memory_mb
        self.sandbox = Sandbox(self.isolation, *limits, workers=self.workers)

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """1.0 where all tests pass and else 0.0 (with `partial` the share that passes); None
        without `tests`. Raises PartialFailure: the tests of some samples cannot be run. Raises
        SandboxError: the sandbox failed for a reason that is not the code."""
        rows: dict[int, list[_Case]] = {}
        results: list[float | None | Exception] = [None] * len(samples)
        for n, sample in enumerate(samples):
            try:
                if cases := _cases(sample, self.partial):
                    rows[n] = cases
            except ValueError as error:
                results[n] = error
        passed = dict.fromkeys(rows, 0)
        # Where every case counts all run at once; else one at a time, until one fails.
        most = max(map(len, rows.values()), default=1)
        step = most if self.partial else 1
        for start in range(0, most, step):
            batch = [
                (n, case)
                for n, cases in rows.items()
                if self.partial or passed[n] == start
                for case in cases[start : start + step]
            ]
            verdicts = self.sandbox.run([case.job for _, case in batch])
            for (n, case), verdict in zip(batch, verdicts, strict=True):
                if verdict.broken:
                    results[n] = ValueError(verdict.broken)
                passed[n] += case.holds(verdict, self.read)
                logger.debug("%s: %s", case.job.tests, verdict.reason or "no error")
        for n, cases in rows.items():
            share = passed[n] / len(cases)
            results[n] = results[n] or (share if self.partial else float(share == 1))
        return complete(results)

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where the tests could not be run."""
        for case in _cases(Sample("", "", dict(metadata)), self.partial) or []:
            parse_tests(case.job.setup, case.job.tests, case.job.entry_point)


@dataclass(frozen=True)
class _Case:
    """One job; `expected` is the output of a script."""

    job: Job
    expected: str | None = None

    def holds(self, verdict: JobVerdict, read: Callable[[str], list[Any]]) -> bool:
        """Whether a verdict is the expected one, its output as `read` has it."""
        is_right = self.expected is None or read(verdict.printed) == read(self.expected)
        return verdict.passed and is_right


def _cases(sample: Sample, separately: bool) -> list[_Case] | None:
    content = read_sample(sample, "code", "tests")
    if content is None:
        return None
    completion, (tests,) = content
    setup, entry_point = (sample.metadata.get(key) or "" for key in ("setup", "entry_point"))
    tests, entry_point = read_tests(tests, entry_point, sample.prompt)
    code = find_program(completion)
    if not code.strip():
        code = "raise SystemExit('the completion holds no program')"
    if isinstance(tests[0], dict) and isinstance(tests[0]["input"], str):
        return [_Case(Job(code, setup=setup, stdin=t["input"]), t["output"]) for t in tests]
    parts = [[test] for test in tests] if separately else [tests]
    return [_Case(Job(code, part, setup, entry_point)) for part in parts]


def _lines(text: str) -> list[str]:
    """The lines of an output without trailing space and blank lines at the end."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _numbers(text: str) -> list[str | list[Decimal]]:
    """The lines of an output without space at either end; those of numbers as their values."""
    return [_values(line.strip()) for line in text.strip().splitlines()]


def _values(line: str) -> str | list[Decimal]:
    try:
        values = [Decimal(word) for word in line.split()]
    except InvalidOperation:
        return line
    return values if values and all(value.is_finite() for value in values) else line
