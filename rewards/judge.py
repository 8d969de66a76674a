"""A judge: a vision-language model that grades completions, or their chunks one after the other.

    {name: judge, model: Qwen/Qwen3-VL-8B-Instruct, urls: ["http://127.0.0.1:8000/v1"]}

It answers behind OpenAI's chat completions (`backend: openai`), or in this process (`backend:
transformers`, the Qwen-VL family). Text and images, of prompts and completions, are shown as they
are, a video as images of `num_frames` of its frames, which every server takes; the answer of a
prompt only where a template says {answer}. With `chunk_size` the chunks of a text are judged, each
with the text before it (process reward); that judge never sees the answer. The score is the raw one
of the template's scale. A reply without one is a failure of that sample, after `reasks` more
requests, and so is a server that gives none before the deadline.

With `num_votes` a request is drawn several times at `temperature`, each time with another seed, and
`votes` says what the scores become. dLLM-RL's process reward is `votes: firm_agreement` (text:
`agreement`) with `fallback: outcome`; there a reply without a score is a 0, here it is asked for
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from PIL import Image

from mmrl.config import above, at_least, check
from mmrl.config.constraints import check_settings
from mmrl.rewards import build_reward
from mmrl.rewards.http.service import Deadline, ServiceOptions, Unreadable
from mmrl.rewards.judging.cache import hash_request, keep_reply, read_reply
from mmrl.rewards.judging.endpoint import Endpoint
from mmrl.rewards.judging.reply import CutReply, ReplyError, read_score
from mmrl.rewards.judging.template import Template, load_template
from mmrl.rewards.parsing.images import Files, data_url, video_of
from mmrl.rewards.registry.interface import complete
from mmrl.types import Chunk, Cutting, Sample, Video
from mmrl.types.video import spread_frames

if TYPE_CHECKING:
    from mmrl.rewards.judging.local import LocalJudge

AGAIN = (ReplyError, Unreadable)
"""Errors after which the judge is asked again; others were retried, or are final."""

LONGEST_REASON = 1000
"""Characters of the reason in a reply (structured), so that a judge does not fill `max_tokens`."""


@dataclass(kw_only=True, eq=False)
class JudgeReward(ServiceOptions):
    """Scores completions as a judge does. Raises ConfigError: an option that cannot be, a template,
    key or package that is missing."""

    needs: ClassVar[tuple[str, ...]] = ("prompt", "completion", "images", "video")

    model: str
    """Name under which the server has it, or directory or hub id (backend: transformers)."""
    urls: list[str] | None = None
    """Addresses that `/chat/completions` is appended to; several take turns."""
    backend: Literal["openai", "transformers"] = "openai"
    """A server, or a model in this process."""
    template: str | None = None
    """Name in `configs/judge/` or path of a YAML; null takes `general`, for chunks `process`."""
    chunk_size: Annotated[int | None, above(0)] = None
    """Judge chunks of so many tokens; null judges the whole."""
    chunk_at: Literal["tokens", "lines"] = "tokens"
    """Whether chunks end there, or with the line."""
    api_key_env: str = ""
    """Environment variable that holds the server's key; empty for none."""
    max_tokens: Annotated[int, above(0)] = 512
    """Longest reply."""
    temperature: Annotated[float, at_least(0)] = 0.0
    """Of the reply; 0 is greedy, and all that `backend: transformers` has."""
    top_p: Annotated[float, above(0, up_to=1)] = 1.0
    """Smallest probability of the tokens that a reply is drawn from."""
    num_votes: Annotated[int, at_least(1)] = 1
    """Replies to each request, with the seeds 0, 1, …; several need a temperature."""
    votes: Literal["mean", "agreement", "firm_agreement"] = "mean"
    """What their scores become: the mean, or the score that all have. For `firm_agreement` a common
    0 is none."""
    fallback: Literal["zero", "outcome"] = "zero"
    """The score without agreement: 0, or that of the completion by the reward `answer`, as -1 or
    1."""
    structured: bool = True
    """Send the JSON schema of the reply along, which servers that know it then keep to."""
    extra_body: dict[str, Any] | None = None
    """Further fields of requests, such as {chat_template_kwargs: {enable_thinking: false}}."""
    deadline_s: Annotated[float, above(0)] = 600.0
    reasks: Annotated[int, at_least(0)] = 1
    """Further requests after a reply without a score."""
    cache_dir: str = ""
    """Folder for replies, by everything that was asked; empty keeps none."""
    max_pixels: Annotated[int, above(0)] = 1048576
    """Larger images are scaled down to this."""
    num_frames: Annotated[int, at_least(1)] = 8
    """Most frames of a video that are shown, evenly spaced, the first and the last among them."""
    max_characters: Annotated[int, above(0)] = 20000
    """Longer texts lose their middle."""
    device: str = "auto"
    """Of the model (backend: transformers)."""
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """Of its weights."""
    batch_size: Annotated[int, above(0)] = 4
    """Requests it answers at once (backend: transformers)."""

    def __post_init__(self) -> None:
        check_settings(self, "judge")
        size = self.chunk_size
        own = {"model", "messages", "stream", *(("seed", "n") if self.temperature else ())}
        fixed = sorted(own & set(self.extra_body or {}))
        check(not fixed, "judge.extra_body", fixed, "of other fields, these are set here")
        self._check_votes()
        self._encode = partial(data_url, max_pixels=self.max_pixels)
        self.cutting = None if size is None else Cutting(size, self.chunk_at)
        self._template = self._checked_template()
        self._cache = Path(self.cache_dir).expanduser() if self.cache_dir else None
        if self._cache is not None:
            self._cache.mkdir(parents=True, exist_ok=True)
        self._backend = self._build_backend()

    def __call__(self, samples: list[Sample]) -> list[float | list[float] | None]:
        """A raw score per sample; with `chunk_size` one per chunk, and a sample without chunks is
        judged as a single one. None where a template shows the answer and there is none, and where
        a completion has no chunks."""
        files = Files(self._encode)
        asked = [
            [self._draws(request) for request in self._requests(sample, files)]
            for sample in samples
        ]
        scores = self._scores({k: r for own in asked for draws in own for k, r in draws.items()})
        results = [
            _result(
                [self._decide([scores[key] for key in draws], sample) for draws in own],
                self.cutting is not None and sample.chunks is not None,
            )
            for own, sample in zip(asked, samples, strict=True)
        ]
        return complete(results)

    def ready(self) -> str:
        """Why it could not score now; empty if it could."""
        return self._backend.ready(self.model)

    def _scores(self, requests: Mapping[str, dict[str, Any]]) -> dict[str, float | Exception]:
        """A score for each request, from the cache or the judge."""
        cache = self._cache
        found = {key: self._parse(cache and read_reply(cache, key)) for key in requests}
        deadline = Deadline(self.deadline_s)
        for time in range(1 + self.reasks):
            wanted = [key for key, score in found.items() if isinstance(score, AGAIN)]
            if not wanted:
                break
            again = [self._reseed(requests[key], time) for key in wanted]
            replies = self._backend.ask(again, deadline)
            for key, reply in zip(wanted, replies, strict=True):
                found[key] = self._parse(reply)
                if cache and isinstance(reply, str) and isinstance(found[key], float):
                    keep_reply(cache, key, reply)
        return found

    def _parse(self, reply: str | Exception | None) -> float | Exception:
        if reply is None:
            return ReplyError("was never given")
        if isinstance(reply, Exception):
            return reply
        try:
            return read_score(reply, self._template)
        except ReplyError as error:
            cut = f"ended at judge.max_tokens={self.max_tokens} before its score; raise that"
            said = cut if isinstance(reply, CutReply) else error
            return ReplyError(f"the reply of {self.model} {said}")

    def _requests(self, sample: Sample, files: Files[str]) -> list[dict[str, Any]]:
        """What is asked about a sample: nothing, one request, or one for each chunk."""
        if "answer" in self._template.fields and sample.metadata.get("answer") is None:
            return []
        self._check_shown(sample)
        chunks: Sequence[Chunk | None] = [None]
        if self.cutting is not None:
            whole = [Chunk(-1, "", str(sample.completion))]
            chunks = whole if sample.chunks is None else sample.chunks
        return [self._request(sample, chunk, files) for chunk in chunks]

    def _request(self, sample: Sample, chunk: Chunk | None, files: Files[str]) -> dict[str, Any]:
        system, question = self._template.words(sample, chunk, self.max_characters)
        shown = [*files.of_sample(sample), *map(self._encode, self._frames(sample))]
        content = [{"type": "image_url", "image_url": {"url": url}} for url in shown]
        messages = [{"role": "user", "content": [*content, {"type": "text", "text": question}]}]
        if system:
            messages.insert(0, {"role": "system", "content": system})
        request = {
            "model": self.model,
            "messages": messages,
            "temperature": self.temperature or 0,
            "max_tokens": self.max_tokens,
            **({"top_p": self.top_p} if self.top_p < 1 else {}),
            **(self.extra_body or {}),
        }
        if self._template.reply == "probability":
            request |= {"max_tokens": 1, "logprobs": True, "top_logprobs": 20}
        if self.structured and self._template.reply == "json":
            schema = self._template.schema(min(LONGEST_REASON, 2 * self.max_tokens))
            form = {"name": "grade", "strict": True, "schema": schema}
            request["response_format"] = {"type": "json_schema", "json_schema": form}
        return request

    def _draws(self, request: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """The requests of all votes, by the keys of their replies."""
        seeds = range(self.num_votes) if self.temperature else [None]
        drawn = [request if seed is None else {**request, "seed": seed} for seed in seeds]
        return {hash_request(each): each for each in drawn}

    def _reseed(self, request: dict[str, Any], time: int) -> dict[str, Any]:
        """A request that is asked again: another seed, because the same would get the same."""
        if not self.temperature:
            return request
        return {**request, "seed": request["seed"] + time * self.num_votes}

    def _check_votes(self) -> None:
        drawn = self.temperature > 0 and self.backend == "transformers"
        check(not drawn, "judge.temperature", self.temperature, "0 with backend: transformers")
        same = self.num_votes > 1 and self.temperature == 0
        advice = "Greedy replies are all the same: set judge.temperature, for instance to 0.6."
        check(not same, "judge.num_votes", self.num_votes, "1 with temperature 0", advice)
        self._outcome = build_reward("answer") if self.fallback == "outcome" else None

    def _decide(self, votes: Sequence[float | Exception], sample: Sample) -> float | Exception:
        """The score of a completion, or of a chunk of it; the first error among the votes, or of
        the outcome."""
        errors = [vote for vote in votes if isinstance(vote, Exception)]
        if errors:
            return errors[0]
        score = count_votes(self.votes, [vote for vote in votes if isinstance(vote, float)])
        if score is not None or self._outcome is None:
            return score or 0.0
        try:
            [found] = self._outcome([sample])
        except ValueError as error:
            return error
        if not isinstance(found, float):
            return ValueError(
                f"the answer reward has no score of {sample.prompt[:80]!r}, about which the votes"
                " disagree; set judge.fallback to zero where prompts have no answer."
            )
        return 2.0 * found - 1.0

    def _frames(self, sample: Sample) -> list[Image.Image]:
        """Those of a video that are shown; none of other completions."""
        if not isinstance(sample.completion, Video):
            return []
        video = video_of(sample, "judge")
        shown = spread_frames(len(video), min(len(video), self.num_frames))
        return [video.image(n) for n in shown]

    def _check_shown(self, sample: Sample) -> None:
        is_text = isinstance(sample.completion, str)
        if self.cutting is not None and not is_text:
            raise ValueError(
                f"judge.chunk_size is {self.chunk_size}, and the completion of"
                f" {sample.prompt[:80]!r} is no text and has no chunks; set it to null."
            )
        if self._template.source and not sample.images:
            raise ValueError(
                f"judge.template {self.template} compares an edit with its source, and the prompt"
                f" {sample.prompt[:80]!r} has no image."
            )
        if is_text and not self._template.fields & {"completion", "chunk"}:
            raise ValueError(
                f"judge.template {self.template} shows images alone, and the completion of"
                f" {sample.prompt[:80]!r} is a text; use one with {{completion}}."
            )

    def _checked_template(self) -> Template:
        whole = self.cutting is None
        self.template = self.template or ("general" if whole else "process")
        template = load_template(self.template)
        wanted = set() if whole else {"chunk"}
        barred = {"before", "chunk"} if whole else {"answer", "completion"}
        check(
            wanted <= template.fields and not barred & template.fields,
            f"judge.chunk_size is {self.chunk_size}, and what judge.template {self.template} shows",
            sorted(template.fields),
            "without before and chunk" if whole else "with chunk, without answer and completion",
            "A chunk is judged by the text before it alone: set judge.chunk_size for templates such"
            " as process, and leave it null for others.",
        )
        return template

    def _build_backend(self) -> Endpoint | LocalJudge:
        if self.backend == "transformers":
            from mmrl.rewards.judging.local import LocalJudge

            return LocalJudge(self.model, self.device, self.dtype, self.batch_size)
        advice = "For instance [http://127.0.0.1:8000/v1]."
        check(bool(self.urls), "judge.urls", self.urls, "a list of addresses", advice)
        keys = ("judge.urls", "judge.api_key_env")
        return Endpoint(self.open_service(self.urls or [], self.api_key_env, keys))


def count_votes(rule: str, votes: Sequence[float]) -> float | None:
    """The score that votes become by a rule of `JudgeReward.votes`; None where they do not agree
    (for `firm_agreement`, or agree on 0)."""
    if rule == "mean":
        return fmean(votes)
    common = votes[0] if len(set(votes)) == 1 else None
    return common or None if rule == "firm_agreement" else common


def _result(
    scores: Sequence[float | Exception], in_chunks: bool
) -> float | list[float] | None | Exception:
    """What is returned for a sample."""
    errors = [score for score in scores if isinstance(score, Exception)]
    known = [score for score in scores if isinstance(score, float)]
    if errors or not known:
        return errors[0] if errors else None
    return known if in_chunks else known[0]
