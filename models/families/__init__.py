"""Families of checkpoints, one file each: tensor names, configuration, special tokens, layouts."""

from models.families import llada, llada_v, mmada
from models.families.family import Family

FAMILIES: dict[str, Family] = {"llada": llada, "llava_llada": llada_v, "mmada": mmada}
"""`model_type` of a config.json -> family."""
