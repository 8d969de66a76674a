"""What blocks, ends of texts and caches promise, whatever the prompts and the settings."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmrl.config import ConfigError
from mmrl.rollout import concatenate
from mmrl.samplers import RULES, SamplerConfig, check_sampler, guided_logits, sample
from mmrl.samplers.confidence import margin, negative_entropy, probability
from mmrl.samplers.ending import after_end
from mmrl.types import Canvas
from tests.mmrl.canvases import MASK_ID, generators
from tests.models.networks import bare_policy, small_network

POLICY = bare_policy(small_network())
SHALLOW = bare_policy(small_network(num_layers=1))
EOS, EOT = 5, 17
LENGTH = 12
promise = settings(derandomize=True, deadline=None, max_examples=12)


def canvas_of(widths: list[int], seed: int = 0, ends: tuple[int, ...] = (EOS, EOT)) -> Canvas:
    """Random prompts of some widths, padded on the left, and 12 masks; any id may be written."""
    draw = torch.Generator().manual_seed(seed)
    width = max(widths)
    columns = torch.arange(width + LENGTH).expand(len(widths), -1)
    tokens = torch.randint(6, 17, columns.shape, generator=draw)
    # a prompt is the same whatever it is batched with
    for row, own in enumerate(widths):
        named = torch.Generator().manual_seed(1000 * seed + row)
        tokens[row, width - own : width] = torch.randint(6, 17, (own,), generator=named)
    attend = columns >= torch.tensor([[width - own] for own in widths])
    response = columns >= width
    tokens = tokens.masked_fill(response, MASK_ID).masked_fill(~attend, EOS)
    twin = torch.full_like(tokens, MASK_ID)
    keep = None if bool(attend.all()) else attend
    return Canvas(tokens, response, keep, (0, 40), MASK_ID, twin, keep, stop_ids=ends)


def config(**changes: Any) -> SamplerConfig:
    """Settings without the combinations that are refused."""
    dynamic = changes.get("name") == "dynamic"
    if dynamic and changes.get("target") == "random":
        changes["target"] = "confidence"
    if dynamic and changes.get("target") == "neg_entropy":
        changes["threshold"] = -1.0
    if not RULES[changes.get("name", "static")].ranks and changes.get("eos") == "last":
        changes["eos"] = "suppress"
    if changes.get("cache", "none") == "none":
        changes["window"] = None
    return SamplerConfig(**changes)


SAMPLERS = st.builds(
    config,
    name=st.sampled_from(sorted(RULES)),
    steps=st.sampled_from([6, 12]),
    block_size=st.sampled_from([None, 2, 4, 6, 12]),
    cfg_scale=st.sampled_from([0.0, 1.5]),
    temperature=st.sampled_from([0.0, 0.7, 1.0]),
    target=st.sampled_from(["confidence", "margin", "neg_entropy", "random"]),
    threshold=st.sampled_from([0.3, 0.9]),
    eos=st.sampled_from(["free", "suppress", "last", "stop", "fill"]),
    cache=st.sampled_from(["none", "prefix", "dual"]),
    window=st.sampled_from([None, 0, 3]),
)
WIDTHS = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@promise
@given(WIDTHS, SAMPLERS, st.integers(0, 9))
def test_every_mask_is_written_and_the_prompt_is_untouched(
    widths: list[int], sampler: SamplerConfig, seed: int
) -> None:
    canvas = canvas_of(widths, seed)
    done = sample(POLICY, canvas, sampler, generators(len(widths), seed))
    assert bool((canvas.tokens[canvas.response] == MASK_ID).all())
    assert torch.equal(done.canvas.tokens[~canvas.response], canvas.tokens[~canvas.response])
    assert not bool((done.canvas.tokens[canvas.response] == MASK_ID).any())
    assert torch.equal(done.written_at >= 0, canvas.response)
    assert int(done.written_at.max()) < sampler.steps
    assert bool((done.logprobs <= 0).all()) and bool(done.logprobs.isfinite().all())
    assert 0 < done.forwards <= sampler.steps
    assert done.settings["eos"] == sampler.eos


@promise
@given(WIDTHS, SAMPLERS, st.integers(0, 9))
def test_prompts_of_different_lengths_get_together_what_each_gets_alone(
    widths: list[int], sampler: SamplerConfig, seed: int
) -> None:
    canvas = canvas_of(widths, seed)
    together = sample(POLICY, canvas, sampler, generators(len(widths), seed))
    for row, own in enumerate(widths):
        one = canvas[row : row + 1]
        first = one.tokens.shape[1] - own - LENGTH
        short = replace(
            one, attend=None, uncond_attend=None, tokens=one.tokens[:, first:],
            response=one.response[:, first:], uncond_tokens=one.uncond_tokens[:, first:],
        )  # fmt: skip
        draws = generators(len(widths), seed)[row : row + 1]
        alone = sample(POLICY, short, sampler, draws)
        assert torch.equal(alone.canvas.tokens, together.canvas.tokens[row : row + 1, first:])
        assert torch.equal(alone.written_at, together.written_at[row : row + 1, first:])


@promise
@given(WIDTHS, SAMPLERS, st.integers(0, 9))
def test_equal_seeds_give_equal_canvases(
    widths: list[int], sampler: SamplerConfig, seed: int
) -> None:
    one, two = (
        sample(POLICY, canvas_of(widths, seed), sampler, generators(len(widths), seed))
        for _ in range(2)
    )
    assert torch.equal(one.canvas.tokens, two.canvas.tokens)
    assert torch.equal(one.logprobs, two.logprobs)


@promise
@given(SAMPLERS, st.integers(0, 9))
def test_blocks_are_written_one_after_the_other(sampler: SamplerConfig, seed: int) -> None:
    sampler = replace(sampler, block_size=4, steps=12, eos="free")
    done = sample(POLICY, canvas_of([3, 5], seed), sampler, generators(2, seed))
    at = done.written_at[:, -LENGTH:].view(2, 3, 4)
    for block in range(3):
        assert bool((at[:, block] // 4 == block).all())


def test_static_writes_an_even_share_at_each_step_and_the_remainder_first() -> None:
    sampler = SamplerConfig(name="static", steps=6, block_size=6)
    done = sample(POLICY, canvas_of([4, 4]), replace(sampler, steps=8), generators(2))
    for row in done.written_at[:, -LENGTH:]:
        assert [int((row == step).sum()) for step in range(8)] == [2, 2, 1, 1, 2, 2, 1, 1]


def test_left_to_right_writes_in_reading_order() -> None:
    sampler = SamplerConfig(name="left_to_right", steps=6, block_size=4, temperature=0.0)
    with pytest.raises(ConfigError, match=r"sampler\.steps is 8"):
        sample(POLICY, canvas_of([4]), replace(sampler, steps=8), generators(1))
    done = sample(POLICY, canvas_of([4, 2]), sampler, generators(2))
    assert done.written_at[:, -LENGTH:].tolist() == [[n // 2 for n in range(LENGTH)]] * 2


@torch.no_grad()
def test_left_to_right_one_by_one_is_greedy_autoregressive_decoding() -> None:
    canvas = canvas_of([4])
    sampler = SamplerConfig(name="left_to_right", steps=LENGTH, temperature=0.0)
    done = sample(POLICY, canvas, sampler, generators(1))
    for column in range(4, 4 + LENGTH):
        logits = POLICY.model(input_ids=canvas.tokens).logits[0, column].clone()
        logits[MASK_ID] = -torch.inf
        canvas.tokens[0, column] = logits.argmax()
    assert torch.equal(done.canvas.tokens, canvas.tokens)


@pytest.mark.parametrize(
    ("target", "certainty"),
    [("confidence", probability), ("margin", margin), ("neg_entropy", negative_entropy)],
)
@torch.no_grad()
def test_static_writes_the_most_certain_positions_first(target: str, certainty: Any) -> None:
    canvas = canvas_of([6], seed=3)
    sampler = SamplerConfig(name="static", steps=4, temperature=0.0, target=target)
    done = sample(POLICY, canvas, sampler, generators(1))
    probs = guided_logits(POLICY, canvas, canvas.response, 0.0).softmax(-1)
    first = certainty(probs, probs.argmax(-1)).topk(3).indices.sort().values
    assert (done.written_at[0, -LENGTH:] == 0).nonzero().flatten().tolist() == first.tolist()


def test_certainty_is_highest_where_the_model_is_sure() -> None:
    sure, torn, lost = [0.97, 0.01, 0.02], [0.5, 0.49, 0.01], [0.34, 0.33, 0.33]
    probs, tokens = torch.tensor([sure, torn, lost]), torch.zeros(3, dtype=torch.long)
    for certainty in (probability, negative_entropy):
        assert certainty(probs, tokens).argsort(descending=True).tolist() == [0, 1, 2]
    assert margin(probs, tokens).tolist() == pytest.approx([0.95, 0.01, 0.01])
    one_hot = torch.tensor([[1.0, 0.0, 0.0]])
    assert float(negative_entropy(one_hot, tokens[:1])) == 0.0


@torch.no_grad()
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.6])
def test_dynamic_writes_all_that_is_certain_enough_and_at_least_one(threshold: float) -> None:
    canvas = canvas_of([6, 2], seed=1)
    sampler = SamplerConfig(name="dynamic", steps=LENGTH, temperature=0.0, threshold=threshold)
    done = sample(POLICY, canvas, sampler, generators(2))
    best = guided_logits(POLICY, canvas, canvas.response, 0.0).softmax(-1).amax(-1).view(2, -1)
    for row in range(2):
        expected = best[row] >= threshold
        expected[best[row].argmax()] = True
        assert torch.equal(done.written_at[row, -LENGTH:] == 0, expected)
    assert threshold > 0 or done.forwards == 1


def test_dynamic_leaves_no_mask_when_its_steps_run_out() -> None:
    sampler = SamplerConfig(name="dynamic", steps=3, threshold=1.0)
    done = sample(POLICY, canvas_of([6, 2]), sampler, generators(2))
    counts = [(done.written_at == step).sum(1).tolist() for step in range(3)]
    assert counts == [[1, 1], [1, 1], [10, 10]]


def test_the_mask_token_is_never_written_though_it_is_in_the_vocabulary() -> None:
    eager = bare_policy(small_network())
    with torch.no_grad():
        eager.network.head.weight[MASK_ID] *= 30
    canvas = canvas_of([3] * 16)
    for name in sorted(RULES):
        done = sample(eager, canvas, SamplerConfig(name=name, steps=4), generators(16))
        assert not bool((done.canvas.tokens[canvas.response] == MASK_ID).any())


def test_an_end_that_is_suppressed_is_never_written() -> None:
    likely = wants_to_end()
    canvas = canvas_of([3] * 16)
    free, never = (
        sample(likely, canvas, SamplerConfig(name="static", steps=6, eos=eos), generators(16))
        for eos in ("free", "suppress")
    )
    assert int((free.canvas.tokens[canvas.response] == EOS).sum()) > 16
    assert not bool((never.canvas.tokens[canvas.response] == EOS).any())


@torch.no_grad()
def test_an_end_that_comes_last_is_written_only_where_every_open_position_is_one() -> None:
    policy, canvas = wants_to_end(), canvas_of([3] * 16)
    sampler = SamplerConfig(name="static", steps=LENGTH, eos="last", temperature=0.0)
    done = sample(policy, canvas, sampler, generators(16))
    ended = 0
    for row in range(16):
        one = done[row : row + 1]
        ends = (one.canvas.tokens == EOS) | (one.canvas.tokens == EOT)
        for step in one.written_at[ends & one.canvas.response].tolist():
            open_ = one.written_at >= step
            before = replace(one.canvas, tokens=one.canvas.tokens.masked_fill(open_, MASK_ID))
            best = guided_logits(policy, before, open_, 0.0).argmax(-1)
            assert set(best.tolist()) <= {EOS, EOT}
            ended += 1
    assert ended > 8


def test_stop_denoises_no_block_after_the_end_and_fills_it_in() -> None:
    canvas = canvas_of([3] * 8)
    sampler = SamplerConfig(name="static", steps=LENGTH, block_size=3, eos="stop")
    done = sample(wants_to_end(), canvas, sampler, generators(8))
    free = sample(wants_to_end(), canvas, replace(sampler, eos="free"), generators(8))
    tokens, at = done.canvas.tokens[:, -LENGTH:], done.written_at[:, -LENGTH:]
    stopped = 0
    for row in range(8):
        ends = [n for n, token in enumerate(tokens[row].tolist()) if token in (EOS, EOT)]
        rest = (ends[0] // 3 + 1) * 3 if ends else LENGTH
        stopped += rest < LENGTH
        assert torch.equal(tokens[row, :rest], free.canvas.tokens[row, -LENGTH:][:rest])
        assert bool((tokens[row, rest:] == EOS).all())
        assert bool((at[row, rest:] == rest - 1).all())
        assert bool((done.logprobs[row, -LENGTH:][rest:] == 0).all())
    assert stopped >= 4


def test_rows_that_have_ended_are_not_computed_any_more() -> None:
    counts = []
    policy = wants_to_end()
    policy.network.register_forward_pre_hook(
        lambda _, __, inputs: counts.append(len(inputs["input_ids"])), with_kwargs=True
    )
    sampler = SamplerConfig(name="static", steps=LENGTH, block_size=3, eos="stop", cache="prefix")
    done = sample(policy, canvas_of([3] * 8), sampler, generators(8))
    assert counts[:3] == [8, 8, 8] and counts[-1] < 8
    assert done.forwards == len(counts)


def test_fill_writes_what_is_open_after_an_end_at_once() -> None:
    canvas = canvas_of([3] * 8)
    sampler = SamplerConfig(name="static", steps=LENGTH, eos="fill")
    done = sample(wants_to_end(), canvas, sampler, generators(8))
    filled = 0
    for tokens, at, logprobs in zip(
        done.canvas.tokens[:, -LENGTH:], done.written_at[:, -LENGTH:], done.logprobs[:, -LENGTH:],
        strict=True,
    ):  # fmt: skip
        ends = [n for n in range(LENGTH) if int(tokens[n]) in (EOS, EOT)]
        later = [n for end in ends for n in range(end + 1, LENGTH) if at[n] >= at[end]]
        assert all(int(tokens[n]) == EOS and float(logprobs[n]) == 0 for n in later)
        filled += len(later)
    assert filled >= 8


@promise
@given(WIDTHS, SAMPLERS, st.integers(0, 9))
def test_what_counts_goes_up_to_the_first_end_and_includes_it(
    widths: list[int], sampler: SamplerConfig, seed: int
) -> None:
    done = sample(wants_to_end(), canvas_of(widths, seed), sampler, generators(len(widths), seed))
    assert done.valid is not None
    for tokens, counts in zip(
        done.canvas.tokens[:, -LENGTH:].tolist(), done.valid[:, -LENGTH:].tolist(), strict=True
    ):
        ends = [n for n, token in enumerate(tokens) if token in (EOS, EOT)]
        length = ends[0] + 1 if ends else LENGTH
        assert counts == [True] * length + [False] * (LENGTH - length)
    assert not bool(done.valid[~done.canvas.response].any())
    assert torch.equal(after_end(done.canvas), done.canvas.response & ~done.valid)


def test_everything_counts_where_completions_have_no_end() -> None:
    canvas = canvas_of([3], ends=())
    assert sample(POLICY, canvas, SamplerConfig(steps=2), generators(1)).valid is None
    with pytest.raises(ConfigError, match=r"sampler\.eos is 'stop' .* no end token"):
        sample(POLICY, canvas, SamplerConfig(steps=2, eos="stop"), generators(1))


def test_rollouts_of_several_batches_keep_what_counts_and_what_is_padding() -> None:
    sampler = SamplerConfig(name="static", steps=4)
    parts = [
        sample(wants_to_end(), canvas_of(widths), sampler, generators(2))
        for widths in ([3, 3], [5, 2], [5, 5])
    ]
    whole = concatenate(parts)
    assert whole.valid is not None and whole.canvas.attend is not None
    assert whole.canvas.tokens.shape == whole.valid.shape == whole.canvas.attend.shape == (6, 17)
    assert whole.canvas.attend.sum(1).tolist() == [15, 15, 17, 14, 17, 17]
    assert whole.forwards == 12
    for n, part in enumerate(parts):
        assert part.valid is not None
        assert torch.equal(whole[2 * n : 2 * n + 2].valid[:, -LENGTH:], part.valid[:, -LENGTH:])


@promise
@given(WIDTHS, SAMPLERS, st.integers(0, 9), st.sampled_from(["prefix", "dual"]))
def test_a_cache_is_exact_where_keys_do_not_depend_on_what_is_written(
    widths: list[int], sampler: SamplerConfig, seed: int, cache: Any
) -> None:
    """In the first layer keys and values of a position follow from its own token, so a network of
    one layer has nothing stale: a cache without a window changes no token."""
    sampler = replace(sampler, cache="none", window=None)
    plain, cached = (
        sample(SHALLOW, canvas_of(widths, seed), kept, generators(len(widths), seed))
        for kept in (sampler, replace(sampler, cache=cache))
    )
    assert torch.equal(plain.canvas.tokens, cached.canvas.tokens)
    torch.testing.assert_close(plain.logprobs, cached.logprobs, atol=1e-5, rtol=0)


@promise
@given(WIDTHS, SAMPLERS, st.integers(0, 9), st.sampled_from(["prefix", "dual"]))
def test_a_cache_that_is_renewed_at_every_step_changes_nothing(
    widths: list[int], sampler: SamplerConfig, seed: int, cache: Any
) -> None:
    sampler = replace(sampler, cache="none", window=None, block_size=2, steps=6)
    plain, cached = (
        sample(POLICY, canvas_of(widths, seed), kept, generators(len(widths), seed))
        for kept in (sampler, replace(sampler, cache=cache, window=1))
    )
    assert torch.equal(plain.canvas.tokens, cached.canvas.tokens)
    torch.testing.assert_close(plain.logprobs, cached.logprobs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_the_first_step_of_a_block_is_exact_and_later_ones_are_not(cache: Any) -> None:
    sampler = SamplerConfig(name="static", steps=LENGTH, block_size=6, temperature=0.0)
    plain, cached = (
        sample(POLICY, canvas_of([6], seed=2), kept, generators(1))
        for kept in (sampler, replace(sampler, cache=cache))
    )
    first = plain.written_at[0] == 0
    assert torch.equal(first, cached.written_at[0] == 0)
    assert torch.equal(plain.canvas.tokens[0, first], cached.canvas.tokens[0, first])
    assert not torch.equal(plain.canvas.tokens, cached.canvas.tokens)


@pytest.mark.parametrize(
    ("cache", "window", "later"),
    [("prefix", None, 15), ("prefix", 2, 8), ("prefix", 99, 15), ("dual", None, 6), ("dual", 2, 8)],
)
def test_a_window_decides_how_many_columns_later_steps_compute(
    cache: Any, window: int | None, later: int
) -> None:
    widths = []
    policy = bare_policy(small_network())
    policy.network.register_forward_pre_hook(
        lambda _, __, inputs: widths.append(inputs["input_ids"].shape[1]), with_kwargs=True
    )
    canvas = canvas_of([4])
    canvas.tokens = torch.nn.functional.pad(canvas.tokens, (0, 3), value=7)
    canvas.response = torch.nn.functional.pad(canvas.response, (0, 3), value=False)
    sampler = SamplerConfig(name="static", steps=6, block_size=6, cache=cache, window=window)
    sample(policy, canvas, sampler, generators(1))
    assert widths[:3] == [19, later, later] and widths[3] == 19


def test_a_cache_needs_the_same_response_columns_in_every_row() -> None:
    canvas = canvas_of([4, 4])
    canvas.response[1, 6] = False
    canvas.tokens[1, 6] = 7
    with pytest.raises(ValueError, match="same response columns in every row"):
        sample(POLICY, canvas, SamplerConfig(steps=2, cache="prefix"), generators(2))
    with pytest.raises(ValueError, match=r"\[11, 12\] response positions"):
        sample(POLICY, canvas, SamplerConfig(steps=2, block_size=1), generators(2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_size": 0}, r"sampler\.block_size is 0"),
        ({"target": "certainty"}, r"sampler\.target is 'certainty'; allowed: confidence, margin"),
        ({"eos": "ignore"}, r"sampler\.eos is 'ignore'; allowed: fill, free, last"),
        ({"cache": "both"}, r"sampler\.cache is 'both'; allowed: dual, none, prefix"),
        ({"cache": "dual", "window": -1}, r"sampler\.window is -1"),
        ({"window": 8}, r"sampler\.window is 8.*Set sampler\.cache to prefix or dual"),
        ({"name": "dynamic", "threshold": 1.5}, r"sampler\.threshold is 1\.5.*\[0, 1\]"),
        ({"name": "dynamic", "target": "neg_entropy"}, "at most 0 for neg_entropy"),
        ({"name": "dynamic", "target": "random"}, "Chance has no threshold"),
        ({"reference_dtype": "float16"}, r"sampler\.reference_dtype is 'float16'"),
    ],
)
def test_settings_that_mean_nothing_are_refused_by_name(changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SamplerConfig(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_size": 5}, r"s\.block_size is 5; it must be a divisor of the 12 response"),
        ({"block_size": 3, "steps": 3}, r"s\.steps is 3; it must be a multiple of the 4 blocks"),
        ({"block_size": 6, "steps": 5}, r"s\.steps is 5; it must be a multiple of the 2 blocks"),
        ({"name": "emerge", "eos": "last"}, r"s\.eos is 'last'.*Only dynamic and static rank"),
        ({"name": "stattic"}, r"s\.name is 'stattic'.*Did you mean 'static'"),
    ],
)
def test_combinations_that_cannot_run_are_refused_without_a_model(
    changes: dict, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_sampler(SamplerConfig(**{"name": "static", "steps": 12, **changes}), "s", LENGTH)


def wants_to_end() -> Any:
    """A policy that likes to end texts."""
    policy = bare_policy(small_network())
    with torch.no_grad():
        policy.network.head.weight[EOS] *= 1.3
        policy.network.head.weight[EOT] *= 1.3
    return policy
