"""Generation by denoising a latent: its schedules of noise levels and the steps between them."""

from mmrl.generation.flow.schedules import make_sigmas
from mmrl.generation.flow.transitions import transition
