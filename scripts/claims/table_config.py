"""Settings of a table: its tasks, its methods, what is chosen, and on which prompts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mmrl.config import ConfigError, check, check_choice

SHUFFLED = "_shuffled"
"""What the name of a control adds to that of its method."""
STAGES = ("samplers", "choices", "runs", "tests")
"""In their order."""


@dataclass(kw_only=True)
class ClaimTask:
    """A task of the table."""

    run: str = ""
    """RL configuration whose single task has the name of this section."""
    validation: str = ""
    """Prompts of every choice, and of evaluations during runs."""
    test: str = ""
    """Prompts that are read once per finished run."""
    samplers: dict[str, Any] = field(default_factory=dict)
    """Grid of samplers for the starting weights, such as `{steps: [12, 20]}`, laid over the sampler
    of `run`. The best on validation is one of the two that test is read under; empty for none."""
    metric: str = ""
    """Key of the reward that the table reports; empty for the first of evaluations."""


@dataclass(kw_only=True)
class Method:
    """A row of the table."""

    run: str = ""
    """RL configuration that replaces that of the task, in a table of one task; its weights at the
    start must be the same."""
    algorithm: dict[str, Any] = field(default_factory=dict)
    """Columns laid over those of the task."""
    settings: list[str] = field(default_factory=list)
    """Words added to its runs, such as learning_rate=1e-4; `task.` is that of its task."""
    grid: dict[str, Any] | None = None
    """Settings to choose on validation, such as `{learning_rate: [1e-4, 3e-4]}`; null for that of
    the table, `{}` for none."""


@dataclass(kw_only=True)
class Selection:
    """The short runs that the choices of a method are made by."""

    seed: int = 1000
    """Of these runs; none of `seeds`."""
    max_steps: int = 20
    """Of these runs."""
    settings: list[str] = field(default_factory=list)
    """Words added to these runs."""


@dataclass(kw_only=True)
class Config:
    """What a table claims, and how it is measured."""

    choices: ClassVar = {"until": STAGES}

    output_dir: str = "runs/evidence"
    """Where the runs go: `<task>/<method>/<seed>`. It may be removed when the table is complete."""
    results: str = ""
    """JSON lines that the table is made of, to be kept; empty for `<output_dir>/results.jsonl`."""
    page: str = ""
    """Markdown that the table is written into, between two comments; empty for
    `<output_dir>/table.md`. The curves are SVG files in `images/` beside the folder of the page."""
    title: str = "Evidence"
    """Title of a new page."""
    tasks: dict[str, ClaimTask] = field(default_factory=dict)
    """By name."""
    methods: dict[str, Method] = field(default_factory=dict)
    """Rows, by name."""
    grid: dict[str, Any] = field(default_factory=dict)
    """Choices of all methods that have none of their own."""
    selection: Selection = field(default_factory=Selection)
    """How they are made."""
    controls: list[str] = field(default_factory=list)
    """Methods that are also run with shuffled advantages, under the same choice and seeds. A method
    without its own is compared with the first."""
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    """Of the runs."""
    control_seeds: list[int] | None = None
    """Of the controls, where a table has more of them because their spread is most of the error of
    a comparison; null for `seeds`."""
    settings: list[str] = field(default_factory=list)
    """Words added to every run."""
    max_steps: int | None = None
    """Steps of a run; null for those of its configuration."""
    max_hours: float | None = None
    """Hours of a run, after which it ends where it is; null for no limit."""
    samples: int = 1
    """Completions per prompt wherever a sampler is chosen or test is read."""
    workers: int = 2
    """Processes at the same time, one thread each."""
    until: str = "tests"
    """The last stage of this sitting: samplers, choices, runs or tests."""
    only: str = ""
    """Runs of this sitting: names of tasks, methods and seeds separated by spaces, such as
    "trace_rl 0"; several selections are separated by commas. Empty for all."""
    dry_run: bool = False
    """List what there is to do, and what is done, and exit."""

    def __post_init__(self) -> None:
        for key in ("tasks", "methods", "seeds"):
            check(bool(getattr(self, key)), key, getattr(self, key), "one or more")
        for key in ("workers", "samples"):
            check(getattr(self, key) >= 1, key, getattr(self, key), "at least 1")
        check_choice("until", self.until, STAGES)
        for key in ("seeds", "control_seeds"):
            seeds = getattr(self, key) or []
            check(len(set(seeds)) == len(seeds), key, seeds, "different numbers")
        missing = set(self.seeds) - set(self.all_seeds)
        check(not missing, "control_seeds", self.control_seeds, f"all of seeds, {self.seeds}")
        for name in self.controls:
            check_choice("controls", name, self.methods)
        self._check_tasks()
        self._check_methods()
        self._check_only()

    def _check_tasks(self) -> None:
        for name, task in self.tasks.items():
            for key in ("run", "validation", "test"):
                value = getattr(task, key)
                check(value != "", f"tasks.{name}.{key}", value, "a file")
            check_grid(task.samplers, f"tasks.{name}.samplers")

    def _check_methods(self) -> None:
        check_grid(self.grid, "grid")
        for name, method in self.methods.items():
            where = f"methods.{name}"
            allowed = (
                f"a name without spaces, commas and slashes, that does not end with {SHUFFLED}"
            )
            fits = not set(name) & set(" ,/") and not name.endswith(SHUFFLED)
            check(fits and name not in (START, ""), "methods", name, allowed)
            allowed = "empty in a table of several tasks"
            check(not method.run or len(self.tasks) == 1, f"{where}.run", method.run, allowed)
            check_grid(self.grid_of(name), f"{where}.grid")
        seed, allowed = self.selection.seed, "a seed that no run of the table has"
        check(seed not in self.all_seeds, "selection.seed", seed, allowed)
        steps = self.selection.max_steps
        check(steps >= 1, "selection.max_steps", steps, "at least 1")

    def _check_only(self) -> None:
        known = [*self.tasks, *self.rows(), *map(str, self.all_seeds)]
        for word in self.only.replace(",", " ").split():
            check_choice("only", word, known)

    def grid_of(self, method: str) -> dict[str, Any]:
        """The grid of a method, or of that of which a row is the control."""
        grid = self.methods[method.removesuffix(SHUFFLED)].grid
        return self.grid if grid is None else grid

    def rows(self) -> list[str]:
        """Methods, each followed by its control."""
        each = [
            [name, name + SHUFFLED] if name in self.controls else [name] for name in self.methods
        ]
        return list(itertools.chain(*each))

    @property
    def all_seeds(self) -> list[int]:
        """Seeds of the controls, which are those of the methods and perhaps more."""
        return self.seeds if self.control_seeds is None else self.control_seeds

    def seeds_of(self, row: str) -> list[int]:
        """Seeds of a method, or of a control."""
        return self.all_seeds if row.endswith(SHUFFLED) else self.seeds

    def control_of(self, method: str) -> str | None:
        """The control that a method is compared with."""
        own = method if method in self.controls else next(iter(self.controls), None)
        return None if own is None else own + SHUFFLED

    def selects(self, *names: str) -> bool:
        """Whether `only` selects the run with these names of task, method and seed."""
        selections = [set(part.split()) for part in self.only.split(",") if part.strip()]
        return not selections or any(each <= set(names) for each in selections)


START = "start"
"""The row of the weights at the start."""


def check_grid(grid: Mapping[str, Any], where: str) -> None:
    """Raise a `ConfigError` unless every setting of a grid has a list of values."""
    for key, values in grid.items():
        fits = isinstance(values, list) and len(values) > 0
        check(fits, f"{where}.{key}", values, "a list of values to try")


def points(grid: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of the values of a grid, in its order."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def words_of(settings: Mapping[str, Any], task: str) -> list[str]:
    """Settings as words of a command line; `task.` becomes `tasks.<task>.`."""
    return [
        expand(f"{key}={value if isinstance(value, str) else json.dumps(value)}", task)
        for key, value in settings.items()
    ]


def expand(word: str, task: str) -> str:
    """A word whose key may begin with `task.`, which is `tasks.<task>.`."""
    return f"tasks.{task}.{word.removeprefix('task.')}" if word.startswith("task.") else word


def one_task(found: Mapping[str, Any], name: str, path: str) -> None:
    """Raise a `ConfigError` unless a run has a single task of this name."""
    if list(found) != [name]:
        raise ConfigError(
            f"tasks.{name}: the tasks of {path} are {', '.join(found)}; it must be a run of"
            f" a single task, and the section of the table must have its name."
        )
