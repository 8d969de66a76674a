"""Options of 4-bit weights."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar, Literal

from mmrl.config import Settings, check


@dataclass(kw_only=True)
class QuantizationConfig(Settings):
    """4-bit weights by bitsandbytes; names and defaults of transformers' BitsAndBytesConfig.

    The linear layers of the blocks are held in 4 bits; embedding, output matrix, norms and a vision
    tower stay as they are.
    """

    where: ClassVar[str] = "quantization_config"

    bnb_4bit_quant_type: Literal["fp4", "nf4"] = "fp4"
    """The 16 values of a weight: floats of 4 bits, or quantiles of a normal distribution."""
    bnb_4bit_use_double_quant: bool = False
    """Quantise the scales as well, which saves 0.4 bits a weight."""
    bnb_4bit_compute_dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of the products of a layer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        advice = 'Install bitsandbytes: pip install -e ".[quantization]"'
        found, allowed = bool(find_spec("bitsandbytes")), "left out without bitsandbytes"
        check(found, self.where, "given", allowed, advice)

    @property
    def bits(self) -> float:
        """Bits of a weight with its scales: a float32 for 64 weights, or 8 bits and a float32 for
        256 scales."""
        return 4 + ((8 + 32 / 256) / 64 if self.bnb_4bit_use_double_quant else 32 / 64)
