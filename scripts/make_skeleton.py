"""Write a checkpoint of random weights that has everything else as the hub has it.

    python scripts/make_skeleton.py family=llada out=skeletons/llada layers=2 width=256
    python scripts/make_skeleton.py family=mmada out=skeletons/mmada layers=2  # full width, 2.6 GB

config.json has the keys and types of the published file, tensors its names, precision and shards,
and the tokenizer its ids: 126,349 of them, of which only bytes and special tokens are ever encoded.
A recipe that runs on it lacks nothing but the weights.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerFast

HEAD_DIM = 128
ROWS, CODES, CLIP_WORDS = 126464, 8192, 49406
CODE = {
    "AutoConfig": "configuration_llada.LLaDAConfig",
    "AutoModelForCausalLM": "modeling_llada.LLaDAModelLM",
    "AutoModel": "modeling_llada.LLaDAModelLM",
}
"""`auto_map` of the published files."""
CONFIG_TOKENS = {
    "eos_token_id": "<|endoftext|>",
    "mask_token_id": "<|mdm_mask|>",
    "pad_token_id": "<|endoftext|>",
}
SMALL_TOWER = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 56,
    "patch_size": 14,
}
"""A vision tower of few sizes; `vision` is a key of this project."""
CHAT = (
    "{% for message in messages %}{% if loop.index0 == 0 %}{{ '<|startoftext|>' }}{% endif %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
    " + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
)
"""A chat template with the turns of LLaDA's: an assistant's header ends it, whatever is asked."""
TURNS = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n'"
    " + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""A chat template with the turns of qwen2's."""


@dataclass(kw_only=True)
class Config:
    """What to write."""

    family: Literal[
        "llada", "llava_llada", "mmada", "lumina", "dream", "sdar", "amused", "magvitv2"
    ] = "llada"
    """Whose checkpoint: LLaDA-8B, LLaDA-V, MMaDA-8B, Lumina-DiMOO with its image tokenizer,
    DiffuCoder-7B, which is a Dream, SDAR-8B-Chat, aMUSEd-256 (as Lumina-DiMOO with diffusers), or
    the image tokenizer showlab/magvitv2."""
    out: str = ""
    """Folder to write it into, a new one."""
    layers: int = 2
    """Blocks; 32 in the published ones, 28 of Dream and 36 of SDAR."""
    width: int = 4096
    """Hidden size, a multiple of 128; 4096 in the published ones, 3584 of Dream. Of aMUSEd a
    multiple of 256; 1024 in the published one. Of magvitv2 the base width, a multiple of 32; 128 in
    the published one."""
    tower: Literal["public", "small"] = "public"
    """Vision tower of LLaDA-V: SigLIP's sizes, or few, under a key that is not the hub's."""
    base: bool = False
    """Whether the tokenizer lacks the tokens of turns, as that of LLaDA-8B-Base does."""
    shards: int = 6
    """Files of weights; more than one has an index."""
    seed: int = 0
    """Of the weights."""

    def __post_init__(self) -> None:
        check(self.out != "", "out", self.out, "the folder to write into")
        taken = Path(self.out).is_dir() and any(Path(self.out).iterdir())
        check(not taken, "out", self.out, "an empty or a new folder")
        check(self.layers >= 1, "layers", self.layers, "at least 1")
        check(self.shards >= 1, "shards", self.shards, "at least 1")
        unit = {"magvitv2": 32, "amused": 2 * HEAD_DIM}.get(self.family, HEAD_DIM)
        fits = self.width >= unit and self.width % unit == 0
        check(fits, "width", self.width, f"a multiple of {unit}")


USAGE = Usage("python scripts/make_skeleton.py", __doc__, Config)


def llada_config(layers: int, width: int) -> dict[str, Any]:
    """`config.json` of LLaDA-8B-Instruct at other sizes."""
    from mmrl.models.families.llada import BACKBONE, TOKEN_IDS

    ids = {key: TOKEN_IDS[token] for key, token in CONFIG_TOKENS.items()}
    return {
        **BACKBONE,
        **ids,
        "architectures": ["LLaDAModelLM"],
        "auto_map": CODE,
        "d_model": width,
        "embedding_size": ROWS,
        "init_device": "meta",
        "max_sequence_length": 4096,
        "mlp_hidden_size": 3 * width,
        "mlp_ratio": 4,
        "model_type": "llada",
        "n_heads": width // HEAD_DIM,
        "n_kv_heads": width // HEAD_DIM,
        "n_layers": layers,
        "rope_theta": 500000.0,
        "transformers_version": "4.46.3",
        "vocab_size": ROWS,
    }


def mmada_config(layers: int, width: int) -> dict[str, Any]:
    """`config.json` of an MMaDA-8B at other sizes, with the number of codes of its first stage."""
    rows = ROWS + CODES
    return {
        **llada_config(layers, width),
        "architectures": ["MMadaModelLM"],
        "codebook_size": CODES,
        "embedding_size": rows,
        "llm_vocab_size": ROWS,
        "model_type": "mmada",
        "new_vocab_size": rows,
        "num_new_special_tokens": 0,
        "num_vq_tokens": 256,
        "transformers_version": "4.46.0",
        "vocab_size": rows,
    }


def lumina_config(layers: int, width: int) -> dict[str, Any]:
    """`config.json` of Lumina-DiMOO at other sizes; of the published one the class and the number
    of rows are known."""
    from mmrl.models.families.lumina import ARCHITECTURE
    from mmrl.models.families.lumina import ROWS as rows

    own = {"architectures": [ARCHITECTURE], "embedding_size": rows, "vocab_size": rows}
    return {key: v for key, v in llada_config(layers, width).items() if key != "auto_map"} | own


def llada_v_config(layers: int, width: int, small: bool = False) -> dict[str, Any]:
    """`config.json` of LLaDA-V at other sizes, as far as its keys are known."""
    from mmrl.models.families.llada import TOKEN_IDS

    side = SMALL_TOWER["image_size"] if small else 384
    return {
        "architectures": ["LlavaLLaDAModelLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "auto_map": CODE,
        "bos_token_id": 128000,
        "eos_token_id": TOKEN_IDS["<|endoftext|>"],
        "hidden_act": "silu",
        "hidden_size": width,
        "image_aspect_ratio": "anyres_max_4",
        "image_crop_resolution": None,
        "image_grid_pinpoints": [[side * i, side * j] for i in range(1, 7) for j in range(1, 7)],
        "image_split_resolution": None,
        "initializer_range": 0.02,
        "intermediate_size": 3 * width,
        "max_position_embeddings": 16384,
        "mm_hidden_size": SMALL_TOWER["hidden_size"] if small else 1152,
        "mm_newline_position": "grid",
        "mm_patch_merge_type": "spatial_unpad",
        "mm_projector_lr": None,
        "mm_projector_type": "mlp2x_gelu",
        "mm_use_im_patch_token": False,
        "mm_use_im_start_end": False,
        "mm_vision_select_layer": -2,
        "mm_vision_tower": "model/siglip2-so400m-patch14-384",
        "model_type": "llava_llada",
        "num_attention_heads": width // HEAD_DIM,
        "num_hidden_layers": layers,
        "num_key_value_heads": width // HEAD_DIM,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "tokenizer_model_max_length": 8192,
        "tokenizer_padding_side": "right",
        "torch_dtype": "bfloat16",
        "transformers_version": "4.39.1",
        "use_cache": True,
        "use_mm_proj": True,
        "vocab_size": ROWS,
        **({"vision": SMALL_TOWER} if small else {}),
    }


def dream_config(layers: int, width: int) -> dict[str, Any]:
    """`config.json` of DiffuCoder-7B-Instruct at other sizes."""
    from mmrl.models.families.dream import CLASSES, TOKEN_IDS

    heads, end = width // HEAD_DIM, TOKEN_IDS["<|endoftext|>"]
    return {
        "architectures": ["DreamModel"],
        "attention_dropout": 0.0,
        "auto_map": CLASSES,
        "bos_token_id": end,
        "eos_token_id": end,
        "hidden_act": "silu",
        "hidden_size": width,
        "initializer_range": 0.02,
        "intermediate_size": width * 37 // 7,
        "mask_token_id": TOKEN_IDS["<|mask|>"],
        "max_position_embeddings": 131072,
        "max_window_layers": layers,
        "model_type": "Dream",
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": max(1, heads // 7),
        "pad_token_id": end,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.51.3",
        "use_cache": False,
        "use_mrope": False,
        "use_sliding_window": False,
        "vocab_size": 152064,
    }


def sdar_config(layers: int, width: int) -> dict[str, Any]:
    """`config.json` of SDAR-8B-Chat at other sizes; it names neither mask nor block size."""
    from mmrl.models.families.sdar import CLASSES, TOKEN_IDS

    heads, end = width // HEAD_DIM, TOKEN_IDS["<|endoftext|>"]
    return {
        "architectures": ["SDARForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_implementation": "flex_attention",
        "auto_map": CLASSES,
        "bos_token_id": end,
        "debug": False,
        "eos_token_id": end,
        "ep_size": 1,
        "fuse_cross_entropy": True,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": width,
        "initializer_range": 0.02,
        "intermediate_size": 3 * width,
        "max_position_embeddings": 32768,
        "max_window_layers": layers,
        "micro_forward": False,
        "model_type": "sdar",
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": max(1, heads // 4),
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "skip_checkpoint": False,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.52.4",
        "use_cache": False,
        "use_deepep": False,
        "use_sliding_window": False,
        "vocab_size": 151936,
    }


def model_config(config: Config) -> dict[str, Any]:
    """`config.json` of a network."""
    if config.family == "llava_llada":
        return llada_v_config(config.layers, config.width, config.tower == "small")
    configs = {"llada": llada_config, "mmada": mmada_config, "dream": dream_config}
    make = (configs | {"sdar": sdar_config, "lumina": lumina_config})[config.family]
    return make(config.layers, config.width)


def make_tokenizer(base: bool = False) -> "PreTrainedTokenizerFast":
    """A tokenizer with the ids of LLaDA's, see `make_byte_tokenizer`.

    Args:
        base: whether the last three, of turns, are absent, as in LLaDA-8B-Base.
    """
    from mmrl.models.families.llada import TOKEN_IDS

    first, turns = TOKEN_IDS["<|startoftext|>"], TOKEN_IDS["<|start_header_id|>"]
    special = {n: f"<|unnamed_{n}|>" for n in range(first, TOKEN_IDS["<|eot_id|>"] + 1)}
    special |= {number: name for name, number in TOKEN_IDS.items()}
    return make_byte_tokenizer(
        first,
        [name for n, name in sorted(special.items()) if not base or n < turns],
        bos_token="<|startoftext|>",
        chat_template=None if base else CHAT,
    )


def make_lumina_tokenizer() -> "PreTrainedTokenizerFast":
    """A tokenizer with the ids of Lumina-DiMOO's up to its image codes. Those of the marks of turns
    are not published; here they are reserved tokens of LLaDA."""
    from mmrl.models.families import llada
    from mmrl.models.families.lumina import BEFORE_CODES, ROWS, TOKEN_IDS
    from mmrl.models.layouts.lumina_rows import UNCONDITIONAL

    codes, newline = ROWS - CODES, TOKEN_IDS["<|reserved_token_0|>"]
    marks = ["<system>", "</system>", "<user>", "</user>"]
    names = {number: word for word, number in make_tokenizer().get_vocab().items()}
    names |= dict(enumerate(marks, newline + 16))
    names[codes + BEFORE_CODES["null"]] = UNCONDITIONAL
    first = llada.TOKEN_IDS["<|startoftext|>"]
    special = [names.get(n, f"<|unnamed_{n}|>") for n in range(first, codes)]
    return make_byte_tokenizer(first, special, bos_token="<|startoftext|>")


def make_sdar_tokenizer() -> "PreTrainedTokenizerFast":
    """A tokenizer with the ids of SDAR's, see `make_byte_tokenizer`."""
    from mmrl.models.families.sdar import MASK_ID, TOKEN_IDS

    first = TOKEN_IDS["<|endoftext|>"]
    special = {n: f"<|unnamed_{n}|>" for n in range(first, MASK_ID)} | {MASK_ID: "<|MASK|>"}
    special |= {number: name for name, number in TOKEN_IDS.items()}
    return make_byte_tokenizer(
        first, list(special.values()), mask_token="<|MASK|>", chat_template=TURNS
    )


def make_byte_tokenizer(
    first: int, special: Sequence[str], **options: Any
) -> "PreTrainedTokenizerFast":
    """A byte-level tokenizer: 256 bytes, words that no text is encoded to, and special tokens.

    Args:
        first: id of the first special token.
        special: in the order of their ids.
        **options: of the tokenizer.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *(f"Ġw{n}" for n in range(len(alphabet), first))]
    tokenizer = Tokenizer(models.BPE({word: n for n, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in special])
    end = "<|endoftext|>"
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=end, pad_token=end, **options
    )


def write_dream_tokenizer(folder: Path) -> None:
    """The files of Dream's tokenizer, without tokenizer.json as on the hub: 256 bytes, words that
    no text is encoded to, and special tokens after them."""
    from tokenizers import pre_tokenizers

    from mmrl.models.families.dream import TOKEN_IDS

    first, last = TOKEN_IDS["<|endoftext|>"], TOKEN_IDS["<|mask|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *(f"Ġw{n}" for n in range(len(alphabet), first))]
    special = {n: f"<|unnamed_{n}|>" for n in range(first, last + 1)}
    special |= {number: name for name, number in TOKEN_IDS.items()}
    flags = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    config = {
        "added_tokens_decoder": {
            str(n): {**flags, "content": name, "special": True} for n, name in special.items()
        },
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        "chat_template": TURNS,
        "eos_token": "<|endoftext|>",
        "mask_token": "<|mask|>",
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "DreamTokenizer",
    }
    (folder / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def write_weights(shapes: Mapping[str, "Tensor"], folder: Path, shards: int, seed: int) -> None:
    """Draw and write tensors in bfloat16, shard by shard, with the index of them.

    Args:
        shapes: public name -> a tensor without data.
        folder: an existing one.
        shards: about how many files; a tensor is never divided.
        seed: of the draws.
    """
    import torch
    from huggingface_hub import split_torch_state_dict_into_shards
    from safetensors.torch import save_file

    meta = {name: tensor.to(torch.bfloat16) for name, tensor in shapes.items()}
    limit = -(-sum(tensor.nbytes for tensor in meta.values()) // shards)
    plan = split_torch_state_dict_into_shards(meta, max_shard_size=limit)
    draw = torch.Generator().manual_seed(seed)
    for file, names in plan.filename_to_tensors.items():
        tensors = {name: _draw(name, meta[name].shape, draw) for name in names}
        save_file(tensors, folder / file, metadata={"format": "pt"})
        (folder / file).chmod(0o644)  # safetensors makes files that only their owner can read
    if plan.is_sharded:
        index = {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}
        text = json.dumps(index, indent=2, sort_keys=True)
        (folder / "model.safetensors.index.json").write_text(text + "\n")


def _draw(name: str, shape: Any, draw: Any) -> "Tensor":
    import torch

    if len(shape) == 1 and "newline" not in name:  # norms and biases
        return torch.full(shape, 0.0 if name.endswith("bias") else 1.0, dtype=torch.bfloat16)
    return torch.empty(shape, dtype=torch.bfloat16).normal_(std=0.02, generator=draw)


def make_skeleton(config: Config) -> None:
    """Write the checkpoint."""
    import torch

    folder = Path(config.out)
    folder.mkdir(parents=True, exist_ok=True)
    if config.family == "magvitv2":
        return _make_vq(config, folder)
    if config.family == "amused":
        return _make_amused(config, folder)
    from mmrl.models.families import get_family
    from mmrl.models.families.llada import TOKEN_IDS
    from mmrl.models.families.tensor_names import public_names
    from mmrl.models.loading import build_network

    raw = model_config(config)
    (folder / "config.json").write_text(json.dumps(raw, indent=2, sort_keys=True) + "\n")
    if config.family == "dream":
        write_dream_tokenizer(folder)
    elif config.family == "sdar":
        make_sdar_tokenizer().save_pretrained(folder)
    elif config.family == "lumina":
        make_lumina_tokenizer().save_pretrained(folder)
        _make_lumina_vq(config, folder / "vqvae")
    else:
        ends = {"bos_token_id": "<|startoftext|>", "eos_token_id": "<|endoftext|>"}
        generation = {key: TOKEN_IDS[token] for key, token in ends.items()}
        generation |= {"transformers_version": "4.38.2"}
        (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
        make_tokenizer(config.base).save_pretrained(folder)
    with torch.device("meta"):
        network = build_network(raw)
    state = network.state_dict()
    names = public_names(state, network.tied, get_family(raw).KEYS)
    shapes = {name: state[key] for key, name in names.items()}
    write_weights(shapes, folder, config.shards, config.seed)


def _make_vq(config: Config, folder: Path) -> None:
    """The image tokenizer in float32, as published, with the default sizes of its public code."""
    import torch

    from mmrl.models.image_tokenizers.image_tokenizer import save_vq
    from mmrl.models.image_tokenizers.magvit import MagvitV2
    from mmrl.models.image_tokenizers.magvit_config import MagvitConfig

    torch.manual_seed(config.seed)
    save_vq(MagvitV2(MagvitConfig(ch=config.width)), folder)


def _make_lumina_vq(config: Config, folder: Path) -> None:
    """diffusers' `VQModel` with 16 x 16 pixels a code, aMUSEd's sizes at the width 4096."""
    import torch

    from mmrl.models.image_tokenizers.image_tokenizer import build_vq, save_vq

    unit = max(32, config.width // 32)
    sizes = {
        "_class_name": "VQModel",
        "act_fn": "silu",
        "block_out_channels": [unit, unit, 2 * unit, 2 * unit, 6 * unit],
        "down_block_types": ["DownEncoderBlock2D"] * 5,
        "up_block_types": ["UpDecoderBlock2D"] * 5,
        "latent_channels": 64,
        "layers_per_block": 2,
        "lookup_from_codebook": True,
        "force_upcast": True,
        "mid_block_add_attention": False,
        "norm_num_groups": 32,
        "num_vq_embeddings": CODES,
    }
    torch.manual_seed(config.seed)
    save_vq(build_vq(sizes), folder)


def _make_amused(config: Config, folder: Path) -> None:
    """The parts of amused/amused-256 as diffusers saves them, in float32 as published. Text encoder
    and image tokenizer are small, with the ids and codes of the published ones."""
    import torch
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection, CLIPTokenizer

    from mmrl.config.checks import import_extra

    parts = import_extra("diffusers", "diffusers")
    write_clip_tokenizer(folder / "tokenizer")
    tokenizer = CLIPTokenizer.from_pretrained(folder / "tokenizer")
    torch.manual_seed(config.seed)
    text = CLIPTextConfig(
        hidden_size=HEAD_DIM,
        intermediate_size=2 * HEAD_DIM,
        num_hidden_layers=2,
        num_attention_heads=2,
        projection_dim=HEAD_DIM,
        vocab_size=len(tokenizer),
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    network = parts.UVit2DModel(
        hidden_size=config.width,
        intermediate_size=config.width * 11 // 4,
        num_hidden_layers=config.layers,
        num_attention_heads=config.width // 64,
        in_channels=config.width * 3 // 4,
        block_out_channels=config.width * 3 // 4,
        block_num_heads=config.width * 3 // 256,
        cond_embed_dim=text.projection_dim,
        encoder_hidden_size=text.hidden_size,
        sample_size=16,
    )
    vq = parts.VQModel(
        block_out_channels=[8, 8, 8, 8, 8],
        down_block_types=["DownEncoderBlock2D"] * 5,
        up_block_types=["UpDecoderBlock2D"] * 5,
        latent_channels=64,
        layers_per_block=1,
        norm_num_groups=4,
        num_vq_embeddings=CODES,
        lookup_from_codebook=True,
        mid_block_add_attention=False,
    )
    scheduler = parts.AmusedScheduler(mask_token_id=network.config.vocab_size - 1)
    encoder = CLIPTextModelWithProjection(text)
    parts.AmusedPipeline(vq, tokenizer, encoder, network, scheduler).save_pretrained(folder)


def write_clip_tokenizer(folder: Path) -> None:
    """The files of CLIP's tokenizer with its ids: 256 bytes, alone and as ends of words, words that
    no text is encoded to, and the two special tokens."""
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *(f"{letter}</w>" for letter in alphabet)]
    words += [f"w{n}</w>" for n in range(len(words), CLIP_WORDS)]
    words += ["<|startoftext|>", "<|endoftext|>"]
    config = {"model_max_length": 77, "tokenizer_class": "CLIPTokenizer"}
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


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
