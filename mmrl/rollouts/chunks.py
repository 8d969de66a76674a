"""Chunks of a text response that are judged one after the other, cut along its own tokens.

Process rewards (TraceRL, arXiv 2509.06949) judge a response chunk by chunk, each given the text
before it. Token ids are cut and only then decoded, so a chunk has a last position and nothing is
ever tokenised again. Deviations from the public code: a chunk may also end with a line; the end
token belongs to the last chunk; a response without words has no chunk.
"""

from collections.abc import Sequence
from typing import Any

from mmrl.generation.tokens.canvas import TokenCanvas
from mmrl.types import Chunk, Cutting


def cut(tokenizer: Any, canvas: TokenCanvas, cutting: Cutting) -> list[tuple[Chunk, ...]]:
    """The chunks of the B texts on a finished canvas, in order; none where there are no words.
    Positions that do not count have no part in this."""
    ends = set(canvas.stop_ids)
    rows = []
    for tokens, scorable in zip(canvas.tokens.tolist(), canvas.counted.tolist(), strict=True):
        places = [place for place, counts in enumerate(scorable) if counts]
        ids = [tokens[place] for place in places if tokens[place] not in ends]
        bounds = _bounds(tokenizer, ids, cutting)
        columns = [*(places[bound - 1] for bound in bounds[:-1]), places[-1]] if bounds else []
        last = [column - len(tokens) for column in columns]
        rows.append(_chunks(tokenizer, ids, bounds, last))
    return rows


def _bounds(tokenizer: Any, ids: Sequence[int], cutting: Cutting) -> list[int]:
    """The number of tokens up to the end of each chunk."""
    bounds, first = [], 0
    for n in range(1, len(ids) + 1):
        if n - first < cutting.size:
            continue
        ending = cutting.at == "tokens" or "\n" in _text(tokenizer, ids[n - 1 : n])
        if ending and _text(tokenizer, ids[first:n]).strip():
            bounds.append(n)
            first = n
    if _text(tokenizer, ids[first:]).strip():
        bounds.append(len(ids))
    elif bounds:
        bounds[-1] = len(ids)
    return bounds


def _chunks(
    tokenizer: Any, ids: Sequence[int], bounds: Sequence[int], last: Sequence[int]
) -> tuple[Chunk, ...]:
    before, first, chunks = "", 0, []
    for bound, place in zip(bounds, last, strict=True):
        text = _text(tokenizer, ids[:bound])
        text = text if bound == len(ids) else text.rstrip("\N{REPLACEMENT CHARACTER}")
        # a decoder that tidies up may change what it has said of earlier tokens
        continued = text.startswith(before)
        own = text[len(before) :] if continued else _text(tokenizer, ids[first:bound])
        chunks.append(Chunk(place, before, own))
        before, first = text, bound
    return tuple(chunks)


def _text(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=True))
