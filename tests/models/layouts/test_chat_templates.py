"""Chat templates from files: rendered in a sandbox, saved with the model, refused where wrong."""

from pathlib import Path

import pytest
from PIL import Image

from mmrl.config import ConfigError
from mmrl.data.prompts import drop_long
from mmrl.models import load_policy
from mmrl.models.layouts.chat_templates import read_template
from mmrl.pretrained.checks import check_checkpoints
from mmrl.pretrained.model_config import ModelConfig, policy_options
from mmrl.types import Prompt
from tests.models.networks import write_small_llada_v

TEMPLATE = (
    "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
PROMPT = Prompt("0", "text", "add them")
SAID = "[user] add them\n[assistant] "


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_llada_v(tmp_path_factory.mktemp("small"))


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "chat.jinja"
    path.write_text(TEMPLATE)
    return path


def test_a_file_takes_the_place_of_the_template_and_is_saved_with_the_model(
    checkpoint: Path, template: Path, tmp_path: Path
) -> None:
    model = ModelConfig(path=str(checkpoint), vq=None, chat_template=str(template))
    check_checkpoints(model)
    policy = load_policy(**policy_options(model))
    ids = policy.tokenizer(SAID, add_special_tokens=False)["input_ids"]
    assert policy.layouts["text"].prompt_ids(PROMPT) == ids  # type: ignore[attr-defined]
    policy.tokenizer.save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "chat_template.jinja").read_text() == TEMPLATE
    own = load_policy(checkpoint, vq=None)
    assert own.tokenizer.chat_template != TEMPLATE
    assert own.layouts["text"].prompt_ids(PROMPT) != ids  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("{% for message in messages %}", "cannot be rendered .line 1.*endfor"),
        ("{{ messages[0]['role'].nothing.more }}", "cannot be rendered"),
        ("{{ messages.append(1) }}", "cannot be rendered"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "cannot be rendered"),
        ("{{ raise_exception('no system message') }}", "no system message"),
        ("{{ 1 // 0 }}", "cannot be rendered.*zero"),
        ("[assistant]", "leaves out what the message of a user says"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_template_that_cannot_be_used_is_named(
    source: str | bytes, named: str, tmp_path: Path, checkpoint: Path
) -> None:
    path = tmp_path / "chat.jinja"
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    with pytest.raises(ValueError, match=named):
        read_template(path)
    model = ModelConfig(path=str(checkpoint), vq=None, chat_template=str(path))
    with pytest.raises(ConfigError, match=r"model\.chat_template is '.*chat\.jinja', which "):
        check_checkpoints(model)


REFUSES = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}" + TEMPLATE
)


def test_a_template_that_refuses_a_message_is_one_line_that_names_the_row(
    checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "chat.jinja").write_text(REFUSES)
    policy = load_policy(checkpoint, chat_template=str(tmp_path / "chat.jinja"))
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]
    image = Image.new("RGB", (8, 8))
    for prompt in (
        Prompt("7", "text", "1+1?", turns, place="rows.jsonl, line 7"),
        Prompt("7", "image_to_text", "1+1?", turns, [image], place="rows.jsonl, line 7"),
    ):
        with pytest.raises(ConfigError) as caught:
            drop_long([prompt], policy.fits, "rows.jsonl")
        said = str(caught.value)
        assert said.startswith("rows.jsonl, line 7: the chat template refuses its messages (system")
        assert "System role not supported" in said and said.count("line 7") == 1
        assert "\n" not in said
