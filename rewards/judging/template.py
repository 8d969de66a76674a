"""How a judge is asked: a YAML with the words of the question and the form of the reply.

`configs/judge/` holds the shipped ones. A template's fields are {prompt}, {completion}, {answer},
and for the chunks of a completion {before} and {chunk}. What a dataset or a model wrote is put
between tags that contain its hash, so that it cannot close them; markers of special tokens in it
are broken, and long texts lose their middle. A judge may still believe such a text: inspect what is
rewarded.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter
from typing import Any, Literal

from mmrl.config import ConfigError, Settings, check, merge
from mmrl.config.yaml_file import configs, read_yaml
from mmrl.types import Chunk, Sample, Video

FIELDS = ("prompt", "completion", "answer", "before", "chunk")


@dataclass(kw_only=True)
class Template(Settings):
    """A question and the reply it asks for."""

    text: str = ""
    """Words of the question, behind the images."""
    system: str = ""
    """Message of the system; empty for none."""
    source: bool = False
    """Whether a prompt must have an image, as that of an edit."""
    reply: Literal["json", "labels", "probability"] = "json"
    """`json`: an object of `reason` and `score`; `labels`: a line such as "Style Score (1-5): 3.5"
    for each of `labels`, whose mean is the score (UnifiedReward); `probability`: the score is that
    of yes as the first word."""
    labels: list[str] = field(default_factory=list)
    """First words of those lines."""
    weights: list[float] = field(default_factory=list)
    """Of the labels in the mean; empty for equal ones."""
    groups: list[int] = field(default_factory=list)
    """Sizes of groups of labels, in order; the score is then the geometric mean over groups of the
    lowest label of each, as in VIEScore and EditScore. Empty for the mean."""
    lowest: float = 1.0
    """Lowest score."""
    highest: float = 5.0
    """Highest score."""
    whole: bool = True
    """Whether scores are whole numbers (reply: json)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.text.strip() != "", "text", self.text, "the words of a question")
        check(self.lowest < self.highest, "lowest", self.lowest, f"below {self.highest:g}")
        labelled = bool(self.labels) == (self.reply == "labels")
        check(labelled, "labels", self.labels, "given with reply: labels, and only then")
        weighed = len(self.weights) in (0, len(self.labels))
        above = sum(self.weights) > 0 or not self.weights
        allowed = "empty, or one for each of labels, with a sum above 0"
        check(weighed and above, "weights", self.weights, allowed)
        grouped = not self.groups or sum(self.groups) == len(self.labels) and min(self.groups) > 0
        apart = not (self.groups and (self.weights or self.lowest < 0))
        allowed = "empty, or sizes above 0 of all labels, without weights and negative scores"
        check(grouped and apart, "groups", self.groups, allowed)
        unknown = sorted(self.fields - set(FIELDS))
        names, advice = ", ".join(FIELDS), "Write a brace that is meant twice."
        check(not unknown, "a field in braces", unknown, f"one of {names}", advice)

    @property
    def fields(self) -> set[str]:
        """Names of what is filled in."""
        parsed = Formatter().parse(self.system + self.text)
        return {name for _, name, _, _ in parsed if name is not None}

    def schema(self, longest: int) -> dict[str, Any]:
        """JSON schema of the reply (reply: json), with a reason of at most so many characters."""
        score: dict[str, Any] = {"type": "number", "minimum": self.lowest, "maximum": self.highest}
        if self.whole:
            allowed = range(round(self.lowest), round(self.highest) + 1)
            score = {"type": "integer", "enum": list(allowed)}
        return {
            "type": "object",
            "properties": {"reason": {"type": "string", "maxLength": longest}, "score": score},
            "required": ["reason", "score"],
            "additionalProperties": False,
        }

    def words(self, sample: Sample, chunk: Chunk | None, longest: int) -> tuple[str, str]:
        """The message of the system and the question about a sample, or about a chunk of it; of
        each text at most `longest` characters are shown."""
        texts = {"prompt": sample.prompt}
        if "answer" in self.fields:
            texts["answer"] = str(sample.metadata["answer"])
        if chunk is not None:
            texts |= {"before": chunk.before, "chunk": chunk.text}
        if isinstance(sample.completion, str):
            texts["completion"] = sample.completion
        shown = {name: fence(name, text, longest) for name, text in texts.items()}
        is_video = isinstance(sample.completion, Video)
        made = "(the last images, frames of a video in order)" if is_video else "(the last image)"
        shown.setdefault("completion", made)
        return self.system.format_map(shown).strip(), self.text.format_map(shown).strip()


def load_template(name: str, where: str = "judge.template") -> Template:
    """The template of a shipped name, or in a YAML file. Raises ConfigError: it does not exist or
    is not valid; the message begins with `where`."""
    folder = configs() / "judge"
    shipped = folder / f"{name}.yaml"
    path = shipped if shipped.is_file() else Path(name).expanduser()
    if not path.is_file():
        names = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
        raise ConfigError(f"{where} is {name!r}; allowed: {names}, or the path of a YAML file.")
    try:
        return merge(Template, read_yaml(str(path)))
    except ConfigError as error:
        raise ConfigError(f"{where} {path} is no template: {error}") from error


def fence(name: str, text: str, longest: int) -> str:
    """An untrusted text between tags that it cannot close."""
    text = shorten(text, longest).replace("<|", "< |").replace("|>", "| >")
    mark = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
    return f"<{name} {mark}>\n{text}\n</{name} {mark}>"


def shorten(text: str, longest: int) -> str:
    """A text of at most about `longest` characters, with a note where its middle was."""
    if len(text) <= longest:
        return text
    head, tail = text[: longest - longest // 2], text[len(text) - longest // 2 :]
    return f"{head}\n[{len(text) - longest} characters left out]\n{tail}"
