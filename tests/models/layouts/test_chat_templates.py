"""Chat templates from files: rendered in a sandbox, saved with the model, refused where wrong."""

import shutil
from pathlib import Path

import pytest

from mmrl.config import ConfigError
from mmrl.models import load_policy
from mmrl.models.layouts.chat_templates import read_template
from mmrl.pretrained.checks import check_checkpoints
from mmrl.pretrained.known import Known
from mmrl.pretrained.model_config import ModelConfig, policy_options
from mmrl.types import Prompt
from tests.models.networks import CHAT, write_small_llada_v

TEMPLATE = (
    "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
PROMPT = Prompt("0", "text", "add them")
ROLES = ("user", "assistant")
SHAPES = Path("datasets/shapes/checkpoints")
SAID = "[user] add them\n[assistant] "


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_llada_v(tmp_path_factory.mktemp("small"))


def test_a_file_takes_the_place_of_the_template_and_is_saved_with_the_model(
    checkpoint: Path, tmp_path: Path
) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text(TEMPLATE)
    model = ModelConfig(path=str(checkpoint), vq=None, chat_template=str(template))
    check_checkpoints(Known.read(model))
    policy = load_policy(**policy_options(model))
    ids = policy.tokenizer(SAID, add_special_tokens=False)["input_ids"]
    assert policy.layouts["text"].prompt_ids(PROMPT) == ids  # type: ignore[attr-defined]
    policy.tokenizer.save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "chat_template.jinja").read_text() == TEMPLATE
    own = load_policy(checkpoint, vq=None)
    assert own.tokenizer.chat_template != TEMPLATE
    assert own.layouts["text"].prompt_ids(PROMPT) != ids  # type: ignore[attr-defined]


def test_mmada_renders_messages_as_its_code_does_whatever_its_tokenizer_has(tmp_path: Path) -> None:
    shutil.copytree(SHAPES / "mmada", tmp_path / "mmada")
    (tmp_path / "mmada" / "chat_template.jinja").write_text(CHAT)  # LLaDA's, two newlines
    policy = load_policy(tmp_path / "mmada", vq=None)
    said = policy.tokenizer.apply_chat_template(
        [{"role": "user", "content": "draw"}], tokenize=False, add_generation_prompt=True
    )
    user, answer = (f"<|start_header_id|>{role}<|end_header_id|>\n" for role in ROLES)
    assert said == f"<|startoftext|>{user}draw<|eot_id|>{answer}"


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("{% for message in messages %}", "cannot be rendered .line 1.*endfor"),
        ("{{ messages.append(1) }}", "cannot be rendered"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "cannot be rendered"),
        ("[assistant]", "leaves out what the message of a user says"),
        (b"\xff\xfe", "utf-8"),
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
        check_checkpoints(Known.read(model))
