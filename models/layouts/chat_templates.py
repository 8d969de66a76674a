"""Chat templates of a user: Jinja files in the place of the template of a tokenizer."""

from pathlib import Path

from jinja2 import TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

TRIAL = [[{"role": "user", "content": "a question"}]]


def read_template(path: str | Path) -> str:
    """The Jinja source of a chat template that renders a message of a user.

    It is rendered as transformers does, in a sandbox whose templates can neither call functions of
    Python nor change what they are given.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not text, is no template, or fails on the message.
    """
    file, named = Path(path).expanduser(), f"chat_template is '{path}'"
    if not file.is_file():
        raise FileNotFoundError(
            f"{named}, and there is no such file; give a Jinja file, true, false or null"
        )
    try:
        source = file.read_text(encoding="utf-8")
        [text], _ = render_jinja_template(TRIAL, chat_template=source, add_generation_prompt=True)
    except UnicodeDecodeError as error:
        raise ValueError(f"{named}, which is not UTF-8 text ({error})") from error
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        line = getattr(error, "lineno", None)
        raise ValueError(
            f"{named}, which cannot be rendered{f' (line {line})' if line else ''}: {error}. It"
            " gets `messages`, each with `role` and `content`, and `add_generation_prompt`."
        ) from error
    if TRIAL[0][0]["content"] not in text:
        raise ValueError(f"{named}, which leaves out what the message of a user says")
    return source
