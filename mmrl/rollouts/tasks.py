"""A task of a run: its prompts, sampler, rewards and algorithm."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from mmrl.algorithms import AlgorithmConfig, load_algorithm
from mmrl.config import ConfigError, NotHereError, check, merge
from mmrl.data.data_config import DataConfig
from mmrl.data.prompts import drop_long, load_prompts, prefill
from mmrl.data.stream import stream_rows
from mmrl.models.layouts.layout_config import MAX_COMPLETION_LENGTH
from mmrl.models.task_names import completions_of, writes_images
from mmrl.pretrained.known import Known
from mmrl.randomness import stable_seed
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.rewards.scoring.terms import Term
from mmrl.rollouts.pairing import find_differences
from mmrl.rollouts.policy_queries import bind_policy
from mmrl.rollouts.task_config import TaskConfig
from mmrl.runtime.activity import activity, advance
from mmrl.samplers import SamplerConfig
from mmrl.types import Cutting, Prompt

if TYPE_CHECKING:
    from mmrl.models import Policy

logger = logging.getLogger(__name__)


def completion_length(task: TaskConfig, known: Known) -> int:
    """Response positions of a task's rollouts, before the policy is loaded."""
    if writes_images(task.task):
        return known.count_image_tokens()
    return task.max_completion_length or MAX_COMPLETION_LENGTH


def check_chunks(cutting: Cutting | None, task: str, where: str) -> None:
    """Raise a ConfigError where rewards at the dotted key `where` score the chunks of a text, or
    None, and completions are images."""
    if cutting is not None and writes_images(task):
        raise ConfigError(
            f"{where} judge chunks of a text (chunk_size is {cutting.size}), and the task {task}"
            " makes pixels; set chunk_size to null."
        )


class Task:
    """A task of a run with its prompts; its rewards are built when first needed. If `dry`, prompts
    that are only on the hub may be missing, and there are then none. `exact_cache`: the policy
    samples the same with a cache.

    Raises ConfigError: a setting that cannot run, or a prompt file that cannot be read."""

    policy: Policy

    def __init__(
        self, name: str, config: TaskConfig, dry: bool = False, exact_cache: bool = False
    ) -> None:
        where = f"tasks.{name}"
        self.name, self.config, self.dry = name, config, dry
        self.has_reward = False  # whether a reward has applied to any rollout yet
        self.upstream: Task | None = None  # whose completions are the prompts
        self.downstream: list[Task] = []
        self.last_step = -1  # up to which an engine may be asked ahead
        self.acting: Callable[[], AbstractContextManager[None]] = nullcontext  # what samples
        config.check(where)
        self.algorithm: AlgorithmConfig = load_algorithm(config.algorithm, f"{where}.algorithm")
        for difference in find_differences(self.algorithm, config.sampler, exact_cache):
            text = "%s: the scored policy is not the one that samples: %s"
            logger.warning(text, where, difference)
        check(config.prompts != "", f"{where}.prompts", config.prompts, "a file or a hub id")
        self.prompts = prefill(self._load(config.prompts, config.data), config.assistant_prefill)
        self.eval_prompts: list[Prompt] = []
        if config.eval_prompts:
            held_out = merge(
                DataConfig, asdict(config.data), config.eval_data, where=f"{where}.eval_data"
            )
            loaded = self._load(config.eval_prompts, held_out, config.eval_limit)
            text = config.eval_assistant_prefill
            self.eval_prompts = prefill(loaded, config.assistant_prefill if text is None else text)

    def _load(self, source: str, data: DataConfig, limit: int | None = None) -> list[Prompt]:
        try:
            return load_prompts(source, self.config.task, data, limit)
        except NotHereError:
            if not self.dry:
                raise
            return []

    @cached_property
    def known(self) -> list[dict[str, Prompt]]:
        """The prompts to train on by their places in their file, and the held-out ones."""
        return [{p.place or p.id: p for p in file} for file in (self.prompts, self.eval_prompts)]

    @property
    def eval_sampler(self) -> SamplerConfig:
        """Sampler of evaluations."""
        return self.config.eval_sampler or self.config.sampler

    @property
    def eval_length(self) -> int | None:
        """Response positions of evaluations; None for the policy's own number."""
        return self.config.eval_max_completion_length or self.config.max_completion_length

    def leave_out_long_prompts(self, policy: Policy) -> None:
        """Keep the prompts that the policy can take, by `model.long_prompts`; the log counts the
        others. Raises ConfigError: a file without any such prompt, or a prompt of impossible
        layout."""
        config = self.config
        fits = partial(policy.fits, length=config.max_completion_length)
        more = {"cuts": policy.cuts, "rule": policy.long_prompts}
        self.prompts = drop_long(self.prompts, fits, config.prompts, **more)
        fits = partial(policy.fits, length=self.eval_length)
        self.eval_prompts = drop_long(self.eval_prompts, fits, config.eval_prompts, **more)

    @cached_property
    def scorer(self) -> Scorer:
        """The rewards of training."""
        return Scorer(self.config.rewards, self.config.max_failures)

    @cached_property
    def eval_scorer(self) -> Scorer:
        """The rewards of evaluations."""
        if not self.config.eval_rewards:
            return self.scorer
        return Scorer(self.config.eval_rewards, self.config.max_failures)

    @cached_property
    def accuracy_terms(self) -> list[Term]:
        """The rewards of training that say whether a completion is correct."""
        return [term for term in self.scorer.terms if term.key in self.config.accuracy_keys]

    def build_rewards(self) -> tuple[Scorer, Scorer]:
        """Build all rewards and check the prompts with them, before the policy loads. Raises
        ConfigError, FileNotFoundError, ValueError: a reward that cannot be built, or a prompt that
        one cannot score."""
        for scorer, shown in ((self.scorer, self.prompts), (self.eval_scorer, self.eval_prompts)):
            scorer.check(shown, completions_of(self.config.task))
        self._check_chunks()
        return self.scorer, self.eval_scorer

    def encode_prompts(self, policy: Policy) -> None:
        """Encode all prompts, with their empty branches, and free the text encoders, where the
        settings say so."""
        layout: Any = policy.layouts[self.config.task]
        if not getattr(layout, "unloads", False):
            return
        prompts = *self.prompts, *self.eval_prompts
        with activity("encoding prompts", len(prompts)):
            for prompt in prompts:
                layout.canvas([prompt])
                advance()
        layout.parts.unload()

    def bind_policies(self, policies: Mapping[str, Policy], seed: int) -> None:
        """Take the policy that writes the completions, leave out and encode prompts for it, and
        give the rewards that query a policy of the run access to it."""
        self.policy = policies[self.config.policy]
        self.leave_out_long_prompts(self.policy)
        self.encode_prompts(self.policy)
        for scorer in (self.scorer, self.eval_scorer):
            bind_policy(scorer, {**policies, "": self.policy}, seed)

    def _check_chunks(self) -> None:
        """Check that there are chunks to score, and that accuracy is of whole completions; warn
        where no value model credits chunks."""
        where = f"tasks.{self.name}"
        if self.config.accuracy_band or self.config.strict_len_check:
            for term in self.accuracy_terms:
                whole = getattr(term.reward, "cutting", None) is None
                allowed = "those of rewards of whole completions"
                check(whole, f"{where}.accuracy_rewards", term.key, allowed)
        for key, scorer in (("rewards", self.scorer), ("eval_rewards", self.eval_scorer)):
            check_chunks(scorer.cutting, self.config.task, f"{where}.{key}")
        if self.scorer.cutting is not None and self.algorithm.completion_value is not None:
            raise ConfigError(
                f"{where}.algorithm.completion_value is set, and the rewards judge chunks, which an"
                " unfinished text does not have; set it to null, or chunk_size to null."
            )
        if self.scorer.cutting is not None and self.algorithm.value is None:
            logger.warning(
                "%s: the scores of a completion's chunks are summed to one reward, because"
                " algorithm.value is null; trace_rl_value credits each chunk",
                where,
            )

    @property
    def rollouts_per_step(self) -> int:
        """Rollouts of a step over all processes."""
        return self.config.num_prompts * self.config.num_generations

    def step_prompts(self, step: int, seed: int, batch: int = 0) -> list[Prompt]:
        """The prompts of a step: the next ones of a stream that is reshuffled every epoch; of its
        further batches, from 1, those of a stream beside it."""
        further = self.config.max_num_gen_batches - 1
        first = (step * further + batch - 1 if batch else step) * self.config.num_prompts
        places = range(first, first + self.config.num_prompts)
        seed = stable_seed(seed, "further") if batch else seed
        return [self.prompts[row] for row in stream_rows(seed, places, len(self.prompts))]

    def places(self, rank: int, world_size: int) -> list[tuple[int, int]]:
        """(prompt, sample) of each rollout of a process, group by group."""
        share = self.config.num_prompts // world_size
        mine = range(rank * share, (rank + 1) * share)
        return [(p, g) for p in mine for g in range(self.config.num_generations)]
