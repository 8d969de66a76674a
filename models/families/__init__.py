"""Families of checkpoints, one file each: tensor names, configuration, special tokens, layouts.

A new family is one file with what `Family` lists, and a line in `FAMILIES`.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from mmrl.models.families import (
    amused,
    causal_lm,
    dream,
    llada,
    llada_llama,
    llada_v,
    lumina,
    mmada,
    qwen2_5_vl,
    qwen3_vl,
    sdar,
)
from mmrl.models.families.family import Family
from mmrl.models.families.flux import Flux, FluxKontext
from mmrl.models.families.flux2_klein import Flux2Klein
from mmrl.models.families.lumina_image import LuminaImage
from mmrl.models.families.qwen_image import QwenImage, QwenImageEdit
from mmrl.models.families.sana import Sana
from mmrl.models.families.sd3 import SD3
from mmrl.models.families.wan import Wan, WanImageToVideo, WanOfBoth
from mmrl.models.families.z_image import ZImage
from mmrl.models.network.network import Network
from mmrl.models.source import LORA

FAMILIES: dict[str, Family] = {
    "amused": amused,
    "dream": dream,
    "sdar": sdar,
    "lumina": lumina,
    "mmada": mmada,
    "llada": llada,
    "llava_llada": llada_v,
    "llada_llama": llada_llama,
    "causal_lm": causal_lm,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
    "sana": Sana(),
    "sd3": SD3(),
    "flux": Flux(),
    "flux_kontext": FluxKontext(),
    "flux2_klein": Flux2Klein(),
    "lumina_image": LuminaImage(),
    "qwen_image": QwenImage(),
    "qwen_image_edit": QwenImageEdit(),
    "z_image": ZImage(),
    "wan_of_both": WanOfBoth(),
    "wan": Wan(),
    "wan_image_to_video": WanImageToVideo(),
}
"""Family by name; of those whose keys a config.json has, the first is its family."""


def find_family(config: Mapping[str, Any]) -> Family | None:
    """The family of a config.json; None where it is of none. Its keys decide, for public
    checkpoints of several families say `llada`, and derivatives have other names; else
    `model_type`."""
    found = (family for family in FAMILIES.values() if family.matches(config))
    return next(found, None) or FAMILIES.get(str(config.get("model_type")))


def get_family(config: Mapping[str, Any]) -> Family:
    """The family of a config.json that has one. Raises ValueError: it is of none."""
    family = find_family(config)
    if family is None:
        kind = config.get("model_type", config.get("_class_name"))
        raise ValueError(
            f"model_type is {kind!r} and the keys are those of no family; known families:"
            f" {', '.join(sorted(FAMILIES))}"
        )
    return family


def names_of(network: Network) -> dict[str, str]:
    """Core tensor name -> public tensor name of a network; without what peft's layers and weights
    of 4 bits add to its own tensors."""
    own = (n for n in network.state_dict() if LORA not in n and ".weight." not in n)
    core = (name.replace(".base_layer.", ".") for name in own)
    return public_names(core, network.tied, get_family(network.public_config).KEYS)


def public_names(
    names: Iterable[str], tied: Collection[str], keys: Mapping[str, str]
) -> dict[str, str]:
    """Core tensor name -> public tensor name by `KEYS` of a family, without those that are tied."""
    found = {}
    for name in names:
        if name in tied:
            continue
        parts = name.split(".")
        block = parts[1] if parts[0] == "blocks" else ""
        pattern = name.replace(f"blocks.{block}.", "blocks.{i}.", 1) if block else name
        if pattern in keys:
            found[name] = keys[pattern].format(i=block)
        else:
            prefix = next(key for key in keys if key.endswith(".") and pattern.startswith(key))
            found[name] = keys[prefix] + pattern.removeprefix(prefix)
    return found
