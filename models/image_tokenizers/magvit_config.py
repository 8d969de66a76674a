"""Sizes of the MAGVIT-v2 image tokenizer."""

from dataclasses import dataclass, field

_PER_LEVEL = [f"{s}_{key}" for s in ("encoder", "decoder") for key in ("ch_mult", "num_res_blocks")]


@dataclass(kw_only=True)
class MagvitConfig:
    """Sizes of the tokenizer; the defaults are the public showlab/magvitv2 network."""

    ch: int = 128
    """Base width."""
    bits: int = 13
    """Bits per code; the codebook has `2 ** bits` entries."""
    encoder_ch_mult: list[int] = field(default_factory=lambda: [1, 2, 2, 4, 4])
    """Width multiplier of each encoder level, finest first."""
    encoder_num_res_blocks: list[int] = field(default_factory=lambda: [4, 3, 4, 3, 4])
    """Residual blocks of each encoder level, finest first."""
    decoder_ch_mult: list[int] = field(default_factory=lambda: [1, 1, 2, 2, 4])
    """Width multiplier of each decoder level, finest first."""
    decoder_num_res_blocks: list[int] = field(default_factory=lambda: [4, 4, 3, 4, 3])
    """Residual blocks of each decoder level, finest first."""
    in_channels: int = 3
    """Channels of the pixels."""
    norm_groups: int = 32
    """Groups of every GroupNorm; must divide every width."""

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 18:
            raise ValueError(f"bits is {self.bits}; allowed are 1 to 18.")
        levels = {name: len(getattr(self, name)) for name in _PER_LEVEL}
        if len(set(levels.values())) != 1 or 0 in levels.values():
            raise ValueError(
                f"The per-level lists must have one length of at least 1, got {levels}."
            )
        for name in ("encoder_ch_mult", "decoder_ch_mult"):
            for mult in [1, *getattr(self, name)]:
                if mult < 1 or self.ch * mult % self.norm_groups:
                    raise ValueError(
                        f"Width ch * {name} = {self.ch} * {mult} is not a positive multiple of "
                        f"norm_groups = {self.norm_groups}; change ch, {name} or norm_groups."
                    )

    @property
    def downsample(self) -> int:
        """Pixels per code along one side."""
        return 2 ** (len(self.encoder_ch_mult) - 1)
