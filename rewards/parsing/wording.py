"""The words of short answers, so that spelling alone makes no difference."""

import re
import unicodedata
from collections.abc import Iterable, Sequence

_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen"
    " fourteen fifteen sixteen seventeen eighteen nineteen twenty"
)
NUMBERS = tuple(_NUMBERS.split())
_DIGITS = {word: str(n) for n, word in enumerate(NUMBERS)}
_DENYING = (
    "not no never neither nor none except cannot wrong incorrect false isnt arent wasnt"
    " werent doesnt dont didnt cant couldnt wont"
)
_DENIALS = frozenset(_DENYING.split())
_ARTICLES = ("a", "an", "the")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_APOSTROPHE = re.compile(r"['’]")
_STOPS = re.compile(r"\.(?!\d)|-(?!\d)|(?<=\w)-|[^\w\s.%-]")


def split_words(text: str) -> tuple[str, ...]:
    """A text as lower-case words: no punctuation, no articles, numbers up to twenty as digits."""
    text = _THOUSANDS.sub("", unicodedata.normalize("NFKC", text).casefold())
    words = _STOPS.sub(" ", _APOSTROPHE.sub("", text)).split()
    named = [word for word in words if word not in _ARTICLES]
    return tuple(_DIGITS.get(word, word) for word in named or words)


def denies(words: Iterable[str]) -> bool:
    """Whether words say what something is not."""
    return not _DENIALS.isdisjoint(words)


def yes_or_no(words: Sequence[str]) -> str | None:
    """The `yes` or `no` that an answer begins with, unless it goes on to say the other."""
    first, other = words[:1], {"yes": "no", "no": "yes"}
    return first[0] if first and first[0] in other and other[first[0]] not in words else None


def find_mentions(
    words: Sequence[str], choices: Sequence[Sequence[str]]
) -> tuple[set[int], list[str]]:
    """Which choices a text names, and its other words.

    A choice whose words all belong to longer ones ("red" in "dark red") is not meant.
    """
    covered: dict[int, int] = {}  # word -> length of the longest choice over it
    spans = []
    for n, choice in enumerate(choices):
        for start in range(len(words) - len(choice) + 1 if choice else 0):
            if tuple(words[start : start + len(choice)]) == tuple(choice):
                spans.append((start, len(choice), n))
                for place in range(start, start + len(choice)):
                    covered[place] = max(covered.get(place, 0), len(choice))
    named = {
        n for a, size, n in spans if any(covered[place] <= size for place in range(a, a + size))
    }
    return named, [word for n, word in enumerate(words) if n not in covered]
