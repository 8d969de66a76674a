"""The code reward: does the program in a completion pass its tests?

Code runs only in `mmrl.rewards.sandbox.sandbox` or, with a `url`, in
`mmrl.rewards.sandbox.remote_sandbox`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, ClassVar, Literal

from mmrl.config import Settings, above
from mmrl.rewards import PartialFailure
from mmrl.rewards.parsing.metadata import read_sample
from mmrl.rewards.parsing.program_tests import read_tests
from mmrl.rewards.parsing.programs import find_program
from mmrl.rewards.sandbox.jail.runnable_tests import parse_tests
from mmrl.rewards.sandbox.remote_sandbox import RemoteSandbox
from mmrl.rewards.sandbox.sandbox import Job, JobVerdict, Sandbox
from mmrl.types import Sample

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class CodeReward(Settings):
    """Score programs against the metadata `tests`, `setup` and `entry_point`.

    Raises:
        IsolationError: this machine cannot provide the isolation; the message says why.
        ValueError: a limit that is not above 0, or a URL that is not valid.
    """

    where: ClassVar[str] = "code"
    scale: ClassVar[str] = "0 to 1"
    needs: ClassVar[tuple[str, ...]] = ("completion", "metadata")
    limits_itself: ClassVar[bool] = True

    partial: bool = False
    """Score the share of tests passed instead of all or nothing."""
    isolation: Literal["full", "process"] = "full"
    """`full` or `process`, see `mmrl.rewards.sandbox.sandbox`; for the local sandbox."""
    url: str = ""
    """Address of a remote sandbox; empty runs the code on this machine."""
    timeout: Annotated[float, above(0)] = 10.0
    """Wall-clock seconds for loading the code and for each test."""
    cpu_seconds: Annotated[int, above(0)] = 10
    """Processor time of one program."""
    memory_mb: Annotated[int, above(0)] = 1024
    """Address space of one program."""
    workers: Annotated[int, above(0)] = 2
    """Programs that run at the same time, on this machine."""
    match: Literal["text", "numbers"] = "text"
    """How a program's output is compared: `text`, or `numbers`, where lines of numbers may write
    them differently (0.50 for 0.5) and leading space is ignored (LiveCodeBench)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.same = {"text": _lines, "numbers": _numbers}[self.match]
        limits = self.timeout, self.cpu_seconds, self.memory_mb
        self.sandbox: Sandbox | RemoteSandbox
        if self.url:
            self.sandbox = RemoteSandbox(self.url, *limits)
        else:
            self.sandbox = Sandbox(self.isolation, *limits, workers=self.workers)

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """1.0 where all tests pass and else 0.0 (with `partial` the share that passes); None
        without `tests`.

        Raises:
            SandboxError: the sandbox failed for a reason that is not the code.
        """
        cases = [self._cases(sample) for sample in samples]
        problems: dict[int, Exception] = {
            n: own for n, own in enumerate(cases) if isinstance(own, Exception)
        }
        passed = self._run_tests([own if isinstance(own, list) else [] for own in cases], problems)
        scores = [
            self._score(results, len(own)) if isinstance(own, list) else None
            for own, results in zip(cases, passed, strict=True)
        ]
        if problems:
            raise PartialFailure([problems.get(n, score) for n, score in enumerate(scores)])
        return scores

    def _cases(self, sample: Sample) -> list[_Case] | None | ValueError:
        try:
            return _cases(sample, self.partial)
        except ValueError as error:
            return error

    def _run_tests(
        self, cases: Sequence[list[_Case]], problems: dict[int, Exception]
    ) -> list[list[bool]]:
        """Which cases of each sample hold; samples whose tests are broken join the problems."""
        most = max(map(len, cases), default=0)
        passed: list[list[bool]] = [[] for _ in cases]
        # Where every case counts all run at once; else one at a time, until one fails.
        step = most if self.partial else 1
        for start in range(0, most, step or 1):
            batch = [
                (n, case)
                for n, own in enumerate(cases)
                for case in own[start : start + step]
                if n not in problems and (self.partial or all(passed[n]))
            ]
            verdicts = self.sandbox.run([case.job for _, case in batch])
            for (n, case), verdict in zip(batch, verdicts, strict=True):
                if verdict.broken:
                    problems[n] = ValueError(verdict.broken)
                passed[n].append(case.holds(verdict, self.same))
                logger.debug("%s: %s", case.job.tests, verdict.reason or "no error")
        return passed

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where the tests could not be run."""
        for case in _cases(Sample("", "", dict(metadata)), self.partial) or []:
            parse_tests(case.job.setup, case.job.tests, case.job.entry_point)

    def _score(self, passed: list[bool], count: int) -> float:
        return sum(passed) / count if self.partial else float(passed == [True] * count)


@dataclass(frozen=True)
class _Case:
    """One job; `expected` is the output of a script."""

    job: Job
    expected: str | None = None

    def holds(self, verdict: JobVerdict, read: Callable[[str], list[Any]]) -> bool:
        """Whether a verdict is the expected one, its output as `read` has it."""
        if self.expected is None:
            return all(verdict.passed)
        return not verdict.reason and read(verdict.printed) == read(self.expected)


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
        job = Job(code, setup=setup, kind="script")
        return [_Case(replace(job, stdin=test["input"]), test["output"]) for test in tests]
    job = Job(code, tests, setup, entry_point)
    return [_Case(replace(job, tests=[t])) for t in tests] if separately else [_Case(job)]


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
