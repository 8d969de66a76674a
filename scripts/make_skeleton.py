"""Write a checkpoint of random weights that has everything else as the hub has it.

    python scripts/make_skeleton.py family=llada out=skeletons/llada layers=2 width=256
    python scripts/make_skeleton.py family=mmada out=skeletons/mmada layers=2  # full width, 2.6 GB

config.json has the keys and types of the published file, tensors its names and precision, and the
tokenizer its ids, of which only bytes and special tokens are ever encoded. A recipe that runs on it
lacks nothing but the weights.
"""

import json
import sys
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mmrl.config import check, check_choice, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402
from scripts.pipeline_skeletons import (  # noqa: E402
    CLIP_TEXT,
    END,
    PIPELINES,
    SMALL_CLIP,
    TURNS,
    list_words,
    write_amused,
    write_vocabulary,
)

HUB = ROOT / "tests/fixtures/hub"
"""Published configurations."""
PUBLISHED = {"dream": "diffucoder_7b_instruct", "sdar": "sdar_8b_chat", "llava_llada": "llada_v"}
PUBLISHED |= {"qwen3": "qwen3_8b"}
"""Name of a family's; others start from that of LLaDA-8B-Instruct."""
FAMILIES = ("llada", "llava_llada", "mmada", "lumina", "dream", "sdar", "amused", "magvitv2")
FAMILIES += ("qwen3", "qwen2_5_vl", "qwen3_vl", *PIPELINES)
QWEN_VL = {"qwen2_5_vl": "Qwen2.5-VL-7B", "qwen3_vl": "Qwen3-VL-8B"}
"""Names of published sizes by family."""
CODES, SHARDS = 8192, 6
WIDTHS = {"d_model", "hidden_size", "mlp_hidden_size", "intermediate_size", "n_heads", "n_kv_heads"}
WIDTHS |= {"num_attention_heads", "num_key_value_heads", "projection_dim"}
WIDTHS |= {"in_channels", "block_out_channels", "block_num_heads"}
WIDTHS |= {"cond_embed_dim", "encoder_hidden_size"}
DEPTHS = {"n_layers", "num_hidden_layers", "max_window_layers"}
SMALL_TOWER = {**SMALL_CLIP, "num_hidden_layers": 3, "image_size": 56, "patch_size": 14}
"""Vision tower of a LLaDA-V below full width; `vision` is a key of this project."""
SMALL_QWEN_TOWER = {
    "depth": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_heads": 2,
    "fullatt_block_indexes": [1],
    "deepstack_visual_indexes": [0],
}
"""Vision tower of a Qwen-VL."""
CHAT = (
    "{% for message in messages %}{% if loop.index0 == 0 %}{{ '<|startoftext|>' }}{% endif %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
    " + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
)
"""A chat template with the turns of LLaDA's: an assistant's header ends it, whatever is asked."""
PARTS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}"
    "{% endfor %}{{ '<|im_start|>assistant\n' }}"
)
"""A chat template with the turns and the image parts of Qwen-VL's."""
SEEN = {"<|vision_start|>": 151652, "<|vision_end|>": 151653, "<|image_pad|>": 151655}
"""Ids of Qwen-VL's special tokens beside those of texts."""


@dataclass(kw_only=True)
class Config:
    """What to write."""

    family: str = "llada"
    """Whose checkpoint: llada (8B), llava_llada (LLaDA-V), mmada (8B), lumina (Lumina-DiMOO with
    its image tokenizer), dream (DiffuCoder-7B), sdar (8B-Chat), amused (256, with diffusers),
    magvitv2 (the image tokenizer showlab/magvitv2), qwen3 (8B), qwen2_5_vl (7B), qwen3_vl (8B),
    sana (600M_512px), sd3 (3.5-medium without T5), flux (FLUX.1-dev), flux2_klein (9B),
    qwen_image, z_image, lumina_image (2.0), wan (2.1-T2V-1.3B), or of those that read an image
    flux_kontext, qwen_image_edit and wan_image_to_video."""
    out: str = ""
    """Folder to write it into, a new one."""
    layers: int = 2
    """Blocks; 32 in the published ones, 28 of Dream, 36 of SDAR and Qwen3."""
    width: int = 4096
    """Hidden size, a multiple of 128; 4096 in the published ones, 3584 of Dream. Of aMUSEd a
    multiple of 256; 1024 in the published one. Of magvitv2 the base width, a multiple of 32; 128 in
    the published one. Of SD3 and Wan 1536, of Sana 1152, of FLUX.1 and Qwen-Image 3072, of Z-Image
    3840 and of FLUX.2-klein 4096 in the published ones, whose text encoders stay small here. Below
    full width, LLaDA-V has a small vision tower."""

    def __post_init__(self) -> None:
        check_choice("family", self.family, FAMILIES)
        check(self.out != "", "out", self.out, "the folder to write into")
        taken = Path(self.out).is_dir() and any(Path(self.out).iterdir())
        check(not taken, "out", self.out, "an empty or a new folder")
        check(self.layers >= 1, "layers", self.layers, "at least 1")
        unit = {"magvitv2": 32, "amused": 256}.get(self.family, 128)
        fits = self.width >= unit and self.width % unit == 0
        check(fits, "width", self.width, f"a multiple of {unit}")


USAGE = Usage("python scripts/make_skeleton.py", __doc__, Config)


def make_skeleton(config: Config) -> None:
    """Write the checkpoint."""
    import torch

    from mmrl.models.image_tokenizers.image_tokenizer import build_vq, save_vq
    from mmrl.models.image_tokenizers.magvit import MagvitV2
    from mmrl.models.image_tokenizers.magvit_config import MagvitConfig

    folder = Path(config.out)
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    if config.family == "magvitv2":
        return save_vq(MagvitV2(MagvitConfig(ch=config.width)), folder)
    if config.family == "amused":
        text, raw = CLIP_TEXT, published("amused_256_transformer")
        sizes = resize(text, config, 1024), resize(raw, config, 1024)
        return write_amused(folder, *sizes, vq_config(config.width // 8))
    if config.family in PIPELINES:
        return PIPELINES[config.family](folder, config.width, config.layers)
    raw = model_config(config)
    (folder / "config.json").write_text(json.dumps(raw, indent=2, sort_keys=True) + "\n")
    TOKENIZERS.get(config.family, write_llada_tokenizer)(folder)
    if config.family == "lumina":
        save_vq(build_vq(vq_config(config.width // 32)), folder / "vqvae")
    write_weights(raw, folder)


def model_config(config: Config) -> dict[str, Any]:
    """The published `config.json` of a network at other sizes, as far as its keys are known."""
    from mmrl.models.families.lumina import ARCHITECTURE, ROWS

    if config.family in QWEN_VL:
        return qwen_vl_config(config)
    raw = published(PUBLISHED.get(config.family, "llada_8b_instruct"))
    full = raw.get("d_model") or raw["hidden_size"]
    if config.family == "mmada":
        raw |= published("mmada_parallel_m")
        raw |= {"vocab_size": raw["embedding_size"], "transformers_version": "4.46.0"}
    elif config.family == "lumina":  # of which the class and the number of rows are known
        del raw["auto_map"]
        raw |= {"architectures": [ARCHITECTURE], "embedding_size": ROWS, "vocab_size": ROWS}
    elif config.family == "llava_llada" and config.width < full:
        side = SMALL_TOWER["image_size"]
        grids = [[side * i, side * j] for i in range(1, 7) for j in range(1, 7)]
        raw |= {"image_grid_pinpoints": grids, "mm_hidden_size": SMALL_TOWER["hidden_size"]}
        return resize(raw, config, full) | {"vision": SMALL_TOWER}
    return resize(raw, config, full)


def qwen_vl_config(config: Config) -> dict[str, Any]:
    """The sizes of the published `config.json` of a Qwen-VL with a small tower."""
    from mmrl.pretrained.known import SIZES

    raw: dict[str, Any] = deepcopy(SIZES[QWEN_VL[config.family]])
    inner = raw.get("text_config", raw)  # those of Qwen2.5-VL are not apart
    inner |= resize(inner, config, inner["hidden_size"])
    inner |= {"eos_token_id": 151645, "max_position_embeddings": 32768}
    tower = raw["vision_config"]
    own = {key: value for key, value in SMALL_QWEN_TOWER.items() if key in tower}
    raw["vision_config"] = {**tower, **own, "out_hidden_size": config.width}
    return raw


def published(name: str) -> dict[str, Any]:
    """A configuration as the hub has it."""
    return json.loads((HUB / f"{name}.json").read_text())


def resize(raw: dict[str, Any], config: Config, full: int) -> dict[str, Any]:
    """Give the keys of a configuration that hold sizes their share of those of the full width."""
    sizes = {key: max(1, raw[key] * config.width // full) for key in WIDTHS & raw.keys()}
    return {**raw, **sizes, **dict.fromkeys(DEPTHS & raw.keys(), config.layers)}


def write_weights(raw: dict[str, Any], folder: Path) -> None:
    """Write a network of random weights in bfloat16, in several files with their index."""
    import torch
    from huggingface_hub import save_torch_state_dict

    from mmrl.models.families import get_family, public_names
    from mmrl.models.loading import build_network

    with torch.device("meta"):
        network = build_network(raw)
    state = network.state_dict()
    names = public_names(state, network.tied, get_family(raw).KEYS)
    weights = {}
    for key, name in names.items():
        weight = weights[name] = torch.empty(state[key].shape, dtype=torch.bfloat16)
        if weight.dim() == 1 and "newline" not in name:  # norms and biases
            weight.fill_(0.0 if name.endswith("bias") else 1.0)
        else:
            weight.normal_(std=0.02)
    size = sum(weight.nbytes for weight in weights.values())
    save_torch_state_dict(weights, folder, max_shard_size=-(-size // SHARDS))


def write_llada_tokenizer(folder: Path) -> None:
    """A tokenizer with the ids of LLaDA's."""
    from mmrl.models.families.llada import TOKEN_IDS

    config = {"chat_template": CHAT, "bos_token": "<|startoftext|>"}
    write_tokenizer(folder, TOKEN_IDS, TOKEN_IDS["<|startoftext|>"], **config)


def write_lumina_tokenizer(folder: Path) -> None:
    """A tokenizer with the ids of Lumina-DiMOO's up to its image codes. Those of the marks of turns
    are not published; here they take the place of reserved tokens of LLaDA."""
    from mmrl.models.families import llada
    from mmrl.models.families.lumina import BEFORE_CODES, ROWS, TOKEN_IDS
    from mmrl.models.layouts.lumina_rows import UNCONDITIONAL

    marks = ("<system>", "</system>", "<user>", "</user>")
    newline = TOKEN_IDS["<|reserved_token_0|>"]
    own = {name: newline + 16 + n for n, name in enumerate(marks)}
    own |= {UNCONDITIONAL: ROWS - CODES + BEFORE_CODES["null"]}
    ids = {name: n for name, n in llada.TOKEN_IDS.items() if n not in own.values()} | own
    ids |= {"<|unnamed|>": ROWS - CODES - 1}
    write_tokenizer(folder, ids, llada.TOKEN_IDS["<|startoftext|>"], bos_token="<|startoftext|>")


def write_sdar_tokenizer(folder: Path) -> None:
    """A tokenizer with the ids of SDAR's."""
    from mmrl.models.families.sdar import MASK_ID, TOKEN_IDS

    ids = TOKEN_IDS | {"<|MASK|>": MASK_ID}
    write_tokenizer(folder, ids, TOKEN_IDS[END], mask_token="<|MASK|>", chat_template=TURNS)


def write_qwen3_tokenizer(folder: Path) -> None:
    """A tokenizer with the ids of Qwen3's, which SDAR has as well."""
    from mmrl.models.families.sdar import TOKEN_IDS

    options = {"eos_token": "<|im_end|>", "chat_template": TURNS}
    write_tokenizer(folder, TOKEN_IDS, TOKEN_IDS[END], **options)


def write_qwen_vl_files(folder: Path) -> None:
    """A tokenizer with the ids of Qwen-VL's, and an image processor for the patches of its tower
    that makes at most 64 tokens of an image."""
    from transformers import Qwen2VLImageProcessorPil

    from mmrl.models.families.sdar import TOKEN_IDS

    options = {"eos_token": "<|im_end|>", "chat_template": PARTS}
    write_tokenizer(folder, TOKEN_IDS | SEEN, TOKEN_IDS[END], **options)
    patch = json.loads((folder / "config.json").read_text())["vision_config"]["patch_size"]
    size = {"shortest_edge": 4 * patch**2, "longest_edge": 256 * patch**2}
    Qwen2VLImageProcessorPil(patch_size=patch, size=size).save_pretrained(folder)


def write_tokenizer(folder: Path, ids: dict[str, int], first: int, **options: Any) -> None:
    """Write a byte-level tokenizer: 256 bytes, words that no text is encoded to, special tokens.

    Args:
        folder: an existing one.
        ids: of special tokens; those between that have no name are given one.
        first: the smallest of them.
        **options: of the tokenizer.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(list_words(first), []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(name, normalized=False) for name in _special(ids, first).values()]
    tokenizer.add_special_tokens(special)
    own = {"eos_token": END, "pad_token": END, **options}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **own).save_pretrained(folder)


def write_dream_tokenizer(folder: Path) -> None:
    """The files of Dream's tokenizer, without tokenizer.json as on the hub."""
    from mmrl.models.families.dream import TOKEN_IDS

    flags = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    special = _special(TOKEN_IDS, TOKEN_IDS[END])
    config = {
        "added_tokens_decoder": {
            str(n): {**flags, "content": name, "special": True} for n, name in special.items()
        },
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        "chat_template": TURNS,
        "eos_token": END,
        "mask_token": "<|mask|>",
        "pad_token": END,
        "tokenizer_class": "DreamTokenizer",
    }
    write_vocabulary(folder, list_words(TOKEN_IDS[END]), config)


TOKENIZERS = {
    "dream": write_dream_tokenizer,
    "lumina": write_lumina_tokenizer,
    "qwen3": write_qwen3_tokenizer,
    "qwen2_5_vl": write_qwen_vl_files,
    "qwen3_vl": write_qwen_vl_files,
    "sdar": write_sdar_tokenizer,
}
"""Family -> what writes its tokenizer; others have LLaDA's."""


def _special(ids: dict[str, int], first: int) -> dict[int, str]:
    named = {number: name for name, number in ids.items()}
    return {n: named.get(n, f"<|unnamed_{n}|>") for n in range(first, max(named) + 1)}


def vq_config(unit: int) -> dict[str, Any]:
    """Configuration of diffusers' `VQModel`; 128 is the published unit of its widths."""
    raw = published("amused_512_vqvae")
    widths = [width * max(32, unit) // 128 for width in raw["block_out_channels"]]
    return {**raw, "block_out_channels": widths}


def main() -> int:
    """Write what the command line says; return the exit status."""

    def work() -> None:
        config = load_config(Config, sys.argv[1:])
        make_skeleton(config)
        size = sum(path.stat().st_size for path in Path(config.out).rglob("*"))
        print(f"{config.out}: {size / 1e9:.2f} GB")

    return run_command(USAGE, sys.argv[1:], work)


if __name__ == "__main__":
    sys.exit(main())
