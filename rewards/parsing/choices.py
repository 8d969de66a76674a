"""Which of several choices a text states, by its letter or by its words.

A statement counts before what explains it: "The answer is B", else a letter that labels a line or
the text ("B. There is no dog.") or ends it ("…, so B."), else the words of a choice alone. Without
one the text must name a single choice and deny nothing. A letter is a label before it is the text
of a choice.
"""

import re
from collections.abc import Sequence
from string import ascii_uppercase

from mmrl.rewards.parsing.extraction import find_stated
from mmrl.rewards.parsing.wording import denies, find_mentions, split_words, yes_or_no

_LISTED = re.compile(r"^[ \t]*\(?([A-Z])[).:][ \t]*(\S.*)$", re.MULTILINE)
_ALONE = re.compile(r"\W*([A-Za-z])\W*")
_QUOTE = r"[\"'“”‘’(\[]*"
_STATED = re.compile(
    r"\b(?i:(?:answer|choice|option)(?:\s+(?:is|would\s+be|must\s+be|should\s+be)\b|\s*[:=])+\s*"
    r"|(?:choose|pick|select|go\s+with)\s+)(?i:the\s+)?(?i:(?:option|choice|answer)\s+)?"
    rf"{_QUOTE}(?:([A-Z])|([a-z])(?=[)\]\"'”’]*\s*(?:[.,;:]|$)))(?![\w'’])"
    rf"|(?<![\w'’-])([A-Z])\)?\s+is\s+(?:the\s+)?(?:correct|right|best|answer)\b"
)
_LABEL = re.compile(
    r"^[^\w\n(]*(?i:(?:option|choice)\s+)?"
    r"(?:\(([A-Za-z])\)|([A-Z])[).:]|([a-z])[).:](?!\w)|([A-Z])(?=,|\s+[-–—]|\s*$))",
    re.MULTILINE,
)
_LAST = re.compile(
    r"\b(?i:so|thus|hence|therefore),?\s+(?i:it(?:'s|’s|\s+is|\s+must\s+be)\s+)?\(?([A-Z])\W*$"
)
_ANY = re.compile(r"(?<![\w'’.-])([A-Z])(?![\w'’-])|\(([a-z])\)")
_ARTICLE = re.compile(r"\s+(?!(?:and|or|nor|is|because|since|as)\b)[a-z]")
"""What follows an A that is an article."""
_ANOTHER = re.compile(r"\)?\s*(?:,|/|&|\bor\b|\band\b)\s*(?:or\s+|and\s+)?\(?[A-Z]\b\)?")
_JUDGED = re.compile(
    r"\W*(?:is|was|can|does|looks|seems|isn|wasn|wrong|incorrect|false)\b[^.!?\n]*"
)
"""What follows a letter that is spoken about."""
_FIRST = re.compile(
    r"(?!.*\banswer\s+is(?:n['’]t|\s+not)\b)(.+?)(?:[.!](?=\s|$)|,?\s(?:because|since)\b|$)"
)
_NEAR = 200
"""Characters behind a letter, beside those of the longest choice, that may contradict it."""


def read_choices(prompt: str) -> list[str] | None:
    """The choices at the end of a prompt, lettered from A, a line each; None for fewer than two."""
    choices: list[str] = []
    for letter, text in _LISTED.findall(prompt):
        choices = [] if letter == "A" else choices
        if letter == ascii_uppercase[len(choices) % 26]:
            choices.append(text.rstrip())
    return choices if len(choices) > 1 else None


def find_reference(answer: str, choices: Sequence[str] | None) -> int | None:
    """The index of the right choice; None if there are no choices. Raises ValueError: the answer is
    empty, or neither the letter nor the text of a choice."""
    if not answer.strip():
        raise ValueError("answer is empty; give the right answer.")
    if choices is None:
        return None
    texts = [split_words(choice) for choice in choices]
    if answer.strip() in list(ascii_uppercase[: len(choices)]):
        return ascii_uppercase.index(answer.strip())
    if texts.count(split_words(answer)) != 1:
        raise ValueError(
            f"answer={answer!r} is neither a letter up to {ascii_uppercase[len(choices) - 1]} nor"
            f" one of the choices {list(choices)!r}."
        )
    return texts.index(split_words(answer))


def find_choice(said: str, choices: Sequence[str]) -> int | None:
    """Which of the choices an answer states; None for none or several."""
    words, texts = split_words(said), [split_words(choice) for choice in choices]
    alone = _ALONE.fullmatch(said)
    if alone and alone[1].upper() in ascii_uppercase[: len(choices)]:
        return ascii_uppercase.index(alone[1].upper())
    for whole in (words, (yes_or_no(words) or "",)):
        if texts.count(whole) == 1 and not _ALONE.fullmatch("".join(whole)):
            return texts.index(whole)
    for pattern in (_STATED, _LAST, _LABEL):
        stated = _find_letters(pattern, said, len(choices))
        if pattern is _LABEL:
            stated = [(n, end) for n, end in stated if not _is_denied(said, end)]
        if stated:
            return _agree(said, stated, texts)
    first = None if words[:1] in (("yes",), ("no",)) else _FIRST.match(said)
    for spoken in (find_stated(said), [first[1]] if first else []):
        spoken = [*{split_words(text) for text in spoken}]
        if len(spoken) == 1 and texts.count(spoken[0]) == 1:
            return texts.index(spoken[0])
    named, rest = find_mentions(words, texts)
    if denies(rest):
        return None
    named |= {n for n, _ in _find_letters(_ANY, said, len(choices))}
    return named.pop() if len(named) == 1 else None


def _find_letters(pattern: re.Pattern[str], said: str, count: int) -> list[tuple[int, int]]:
    """(choice, end of its letter) of every letter that a pattern finds, without articles."""
    found = []
    for match in pattern.finditer(said):
        letter = next(filter(None, match.groups())).upper()
        article = match[0][-1] in "Aa" and _ARTICLE.match(said, match.end())
        if letter in ascii_uppercase[:count] and not article:
            found.append((ascii_uppercase.index(letter), match.end()))
    return found


def _is_denied(said: str, end: int) -> bool:
    """Whether a sentence says of the letter that ends here what it is not."""
    judged = _JUDGED.match(said, end)
    return judged is not None and denies(split_words(judged[0]))


def _agree(
    said: str, stated: Sequence[tuple[int, int]], texts: Sequence[tuple[str, ...]]
) -> int | None:
    """The one choice that all statements name, none followed by another letter or its words."""
    near = _NEAR + 2 * max(len(" ".join(text)) for text in texts)
    for n, end in stated if len({n for n, _ in stated}) == 1 else ():
        following = split_words(said[end : end + near])
        begun = {m for m, text in enumerate(texts) if text and following[: len(text)] == text}
        if _ANOTHER.match(said, end) or (begun and n not in begun):
            return None
    found = {n for n, _ in stated}
    return found.pop() if len(found) == 1 else None
