"""Scores and cost of texts, in all and by group of prompts.

With k samples of a prompt, avg@k is the mean of their scores, averaged over prompts. pass@k is the
probability that one of k samples is right, estimated from n >= k samples of which c are right (Chen
et al. 2021, arXiv 2107.03374):

    pass@k = mean over prompts of 1 - C(n - c, k) / C(n, k)

Groups are prompts that share a value of their metadata. Benchmarks of questions about images report
them: SEED-Bench (arXiv 2307.16125) by kind of question, MMMU (2311.16502) by subject and
discipline, MathVista (2310.02255) by task and skill.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from mmrl.config import ConfigError
from mmrl.rollouts.means import mean_over_prompts
from mmrl.types import Prompt

Row = dict[str, float]
"""Column -> value."""
Groups = dict[str, dict[str, Row]]
"""Key of the metadata -> its value -> scores."""
USUAL_KEYS = ("tag", "form")
"""What prompts are grouped by where no other keys are set."""


def score_row(
    prompts: Sequence[Prompt], scores: Mapping[str, Sequence[float]], num_samples: int
) -> Row:
    """Scores of one setting, of a prompt per score and `num_samples` completions of each, by reward
    key: the first is the accuracy; NaN, where a reward did not apply or failed, is left out.

    Returns `accuracy`, `stderr`, the number `n` of scored samples, `avg@<num_samples>`; where all
    scores are 0 or 1 `pass@k` for powers of two and `num_samples`; of the other rewards
    `rewards/<key>/mean` and `/stderr`. Without any score only `n`."""
    main, *others = scores
    known = _known(prompts, scores[main])
    if not known:
        return {"n": 0.0}
    total = mean_over_prompts(known)
    row = {"accuracy": total["mean"], "stderr": total["stderr"], "n": total["n"]}
    row |= _repeated(known, num_samples)
    for key in others:
        if pairs := _known(prompts, scores[key]):
            cell = mean_over_prompts(pairs)
            row |= {f"rewards/{key}/{name}": cell[name] for name in ("mean", "stderr")}
    return row


def _known(prompts: Sequence[Prompt], scores: Sequence[float]) -> list[tuple[str, float]]:
    """(prompt id, score) of the samples that have one."""
    pairs = zip(prompts, scores, strict=True)
    return [(prompt.id, score) for prompt, score in pairs if not math.isnan(score)]


def _repeated(known: Sequence[tuple[str, float]], num_samples: int) -> Row:
    """avg@k and pass@k of the samples that share a prompt."""
    groups: dict[str, list[float]] = defaultdict(list)
    for name, score in known:
        groups[name].append(score)
    row = {f"avg@{num_samples}": statistics.fmean(map(statistics.fmean, groups.values()))}
    powers = {2**n for n in range(num_samples.bit_length())} | {num_samples}
    for k in sorted(powers) if all(score in (0, 1) for _, score in known) else ():
        full = [group for group in groups.values() if len(group) >= k]
        if full:
            row[f"pass@{k}"] = statistics.fmean(pass_at(k, len(g), int(sum(g))) for g in full)
    return row


def pass_at(k: int, n: int, c: int) -> float:
    """Probability that one of k <= n samples is right, where c of n were."""
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def group_places(
    prompts: Sequence[Prompt], keys: Sequence[str] | None = None
) -> dict[str, dict[str, list[int]]]:
    """Places of the prompts that share a value of their metadata, by key and value; a prompt whose
    value is a list belongs to each of its members. Without keys those of `USUAL_KEYS` are taken in
    which prompts differ. Raises ConfigError: no prompt has such a key."""
    groups = {key: _places(prompts, key) for key in (USUAL_KEYS if keys is None else keys)}
    if keys is None:
        return {key: places for key, places in groups.items() if len(places) > 1}
    for key, places in groups.items():
        if prompts and not places:
            known = sorted({name for prompt in prompts for name in prompt.metadata})
            raise ConfigError(f"group_by names {key!r}, and no prompt has it; they have {known}.")
    return groups


def _places(prompts: Sequence[Prompt], key: str) -> dict[str, list[int]]:
    places: dict[str, list[int]] = defaultdict(list)
    for n, prompt in enumerate(prompts):
        value = prompt.metadata.get(key)
        values = value if isinstance(value, list) else [] if value is None else [value]
        for each in dict.fromkeys(map(str, values)):
            places[each].append(n)
    return dict(places)


def score_groups(
    prompts: Sequence[Prompt],
    scores: Mapping[str, Sequence[float]],
    num_samples: int,
    keys: Sequence[str] | None = None,
) -> Groups:
    """Scores of one setting for every value of the metadata; see `score_row`, `group_places`."""

    def row(places: Sequence[int]) -> Row:
        some = {name: [each[n] for n in places] for name, each in scores.items()}
        return score_row([prompts[n] for n in places], some, num_samples)

    groups = group_places(prompts, keys)
    return {key: {v: row(places) for v, places in group.items()} for key, group in groups.items()}
