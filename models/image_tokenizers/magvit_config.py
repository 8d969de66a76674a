"""Sizes of the MAGVIT-v2 image tokenizer."""

from dataclasses import dataclass, field


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
        names = [f"{s}_{k}" for s in ("encoder", "decoder") for k in ("ch_mult", "num_res_blocks")]
        levels = {name: len(getattr(self, name)) for name in names}
        if len(set(levels.values())) != 1 or 0 in levels.values():
            raise ValueError(f"levels differ or there is none: {levels}; give lists of one length.")

    @property
    def downsample(self) -> int:
        """Pixels per code along one side."""
        return 2 ** (len(self.encoder_ch_mult) - 1)
