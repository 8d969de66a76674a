"""Where responses are cut, and what the chunks hold."""

from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.samplers.denoise import find_scored
from mmrl.rollouts.chunks import cut
from mmrl.types import Chunk, Cutting

ROOT = Path(__file__).resolve().parents[3]
BYTES = PreTrainedTokenizerFast.from_pretrained(ROOT / "datasets/text/checkpoints/llada")
EOS, EOT = "<|endoftext|>", "<|eot_id|>"


def canvas(*texts: str, length: int = 12) -> MaskedCanvas:
    """Finished rows: a prompt of two tokens, texts with a token per byte, then ends."""
    eos, eot = (int(BYTES.convert_tokens_to_ids(token)) for token in (EOS, EOT))
    rows = [BYTES(text, add_special_tokens=False)["input_ids"] for text in texts]
    tokens = torch.tensor([[5, 5, *row, *[eos] * (length - len(row))] for row in rows])
    response = torch.arange(length + 2).expand_as(tokens) >= 2
    found = MaskedCanvas(tokens, response, None, (0, len(BYTES)), 0, stop_ids=(eos, eot))
    found.valid = find_scored(found)
    return found


def from_left(row: MaskedCanvas, cutting: Cutting) -> list[tuple[Chunk, ...]]:
    """The chunks with their last columns, counted from the left."""
    width = row.tokens.shape[1]
    return [
        tuple(chunk._replace(end=chunk.end + width) for chunk in own)
        for own in cut(BYTES, row, cutting)
    ]


def test_chunks_end_behind_so_many_tokens_and_the_end_belongs_to_the_last() -> None:
    found = from_left(canvas("abcdefgh", "abc", "abcdefghijkl"), Cutting(3))
    assert found == [
        (Chunk(4, "", "abc"), Chunk(7, "abc", "def"), Chunk(10, "abcdef", "gh")),
        (Chunk(5, "", "abc"),),
        (
            Chunk(4, "", "abc"),
            Chunk(7, "abc", "def"),
            Chunk(10, "abcdef", "ghi"),
            Chunk(13, "abcdefghi", "jkl"),
        ),
    ]


def test_one_chunk_holds_what_is_shorter_and_without_words_there_is_none() -> None:
    texts = ["ab", "", "   ", "a" + EOT + "bcd", EOT]
    whole, *rest = from_left(canvas(*texts), Cutting(64))
    assert whole == (Chunk(4, "", "ab"),)
    assert rest == [(), (), (Chunk(3, "", "a"),), ()], "nothing behind the first end has a part"


def test_lines_end_chunks_once_they_are_long_enough() -> None:
    text = "a\nbb\n\n\nc\nddddd"
    found = cut(BYTES, canvas(text, length=40), Cutting(1, "lines"))[0]
    assert [chunk.text for chunk in found] == ["a\n", "bb\n", "\n\nc\n", "ddddd"]
    found = cut(BYTES, canvas(text, length=40), Cutting(4, "lines"))[0]
    assert [chunk.text for chunk in found] == ["a\nbb\n", "\n\nc\n", "ddddd"]
    blank = cut(BYTES, canvas("abc\n\n\n", length=40), Cutting(4))[0]
    assert [chunk.text for chunk in blank] == ["abc\n\n\n"], "blanks are no chunk of their own"


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.text(st.sampled_from("ab \n7é"), max_size=20),
    st.integers(1, 9),
    st.sampled_from(["tokens", "lines"]),
)
def test_chunks_are_the_whole_text_in_order_and_end_where_tokens_do(
    text: str, size: int, at: str
) -> None:
    row = canvas(text, length=60)
    [chunks] = from_left(row, Cutting(size, at))  # type: ignore[arg-type]
    if not text.strip():
        assert chunks == ()
        return
    assert "".join(chunk.text for chunk in chunks) == text
    assert [chunk.before for chunk in chunks] == [
        "".join(chunk.text for chunk in chunks[:n]) for n in range(len(chunks))
    ]
    ends = [1, *(chunk.end for chunk in chunks)]
    lengths = [end - start for start, end in zip(ends, ends[1:], strict=False)]
    assert all(length >= size for length in lengths[:-1]) and lengths[-1] >= 1
    assert ends[-1] == int(row.counted[0].nonzero()[-1]), "the last one ends with the response"


def test_padding_on_the_left_moves_nothing() -> None:
    row = canvas("abcdefgh")
    padded = MaskedCanvas(
        torch.nn.functional.pad(row.tokens, (4, 0)),
        torch.nn.functional.pad(row.response, (4, 0)),
        None,
        row.columns,
        0,
        stop_ids=row.stop_ids,
        valid=torch.nn.functional.pad(row.counted, (4, 0)),
    )
    assert cut(BYTES, padded, Cutting(3)) == cut(BYTES, row, Cutting(3))
