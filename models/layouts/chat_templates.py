"""Chat templates of tokenizers, and those of a user: Jinja files in their place."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import render_jinja_template

ERRORS = (TemplateError, TypeError, ValueError, ArithmeticError, LookupError)
"""What a template raises, by itself or because a message is not as it expects."""
TRIAL = [[{"role": "user", "content": "a question"}]]


def read_template(path: str | Path) -> str:
    """The Jinja source of a chat template that renders a message of a user.

    It is rendered as transformers does, in a sandbox whose templates can neither call functions of
    Python nor change what they are given. Raises FileNotFoundError: there is no such file. Raises
    ValueError: it is not text, is no template, or fails on the message."""
    file, named = Path(path).expanduser(), f"chat_template is '{path}'"
    if not file.is_file():
        raise FileNotFoundError(f"{named}, no file; give a Jinja file, true, false or null")
    try:
        source = file.read_text(encoding="utf-8")
        [text], _ = render_jinja_template(TRIAL, chat_template=source, add_generation_prompt=True)
        if TRIAL[0][0]["content"] not in text:
            raise ValueError("it leaves out what the message of a user says")
    except ERRORS as error:  # an undecodable text is a ValueError too
        line = getattr(error, "lineno", None)
        raise ValueError(
            f"{named}, which cannot be rendered{f' (line {line})' if line else ''}: {error}. It"
            " gets `messages`, each with `role` and `content`, and `add_generation_prompt`."
        ) from error
    return source


def render_chat(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, Any]], place: str
) -> str:
    """The text of messages through the chat template, up to where the answer begins. Raises
    ValueError: the template does not take them; names the place."""
    try:
        said = [dict(message) for message in messages]
        return str(tokenizer.apply_chat_template(said, add_generation_prompt=True, tokenize=False))
    except ERRORS as error:
        roles = ", ".join(str(message["role"]) for message in messages)
        raise ValueError(
            f"{place}: the chat template refuses its messages ({roles}): {error}. Change them, such"
            " as by leaving out the system message, or give another model.chat_template."
        ) from error
