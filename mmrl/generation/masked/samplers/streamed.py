"""Draws from logits that never exist at once.

What a step needs of a position is the column drawn there, its log-prob and a confidence. They are
found for some rows at a time, inside the forward pass, where sharded weights are whole. With a
large vocabulary and no filter the columns of these rows are computed in panels, and the sums over
a panel are formed while it is in the processor's cache:

    m_k = max z_k    s_k = sum exp((z_k - m_k) / T)    Z = sum_k s_k exp((m_k - m) / T)

A draw by inverse CDF first finds the panel, then the column in it. Equal to drawing from the whole
row but for the rounding of these sums.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mmrl.generation.masked.samplers.loop_config import LoopConfig
from mmrl.generation.masked.samplers.rule import Choice, Prediction, Rule, choose, forbid
from mmrl.runtime.logits_budget import rows_at_once, wide_dtype
from mmrl.types.guidance import Guidance

if TYPE_CHECKING:
    from mmrl.generation.masked.canvas import MaskedCanvas
    from mmrl.models.network.token_network import OutputHead

LARGE_VOCABULARY = 32768
"""Columns from which panels pay."""
PANEL = 2**18
"""Logits of a panel on a CPU: 1 MB in float32 stays in the second-level cache of a core."""
PANEL_COLUMNS = 2048
"""Most columns of a panel on a CPU: with few rows it is their part of the output matrix that has to
stay in the cache."""


@dataclass
class PanelPrediction(Prediction):
    """A prediction with the sums over panels of `size` columns.

    Attributes:
        peaks: [N, K] largest logit of each panel.
        sums: [N, K] sums of exp(z - peak).
        drawn_sums: [N, K] the same after temperature; `sums` at temperature 0 or 1.
    """

    size: int = 0
    peaks: Tensor = torch.empty(0)
    sums: Tensor = torch.empty(0)
    drawn_sums: Tensor = torch.empty(0)

    @cached_property
    def peak(self) -> Tensor:
        """[N] the largest logit."""
        return self.peaks.amax(-1)

    def draw(self, uniforms: Tensor | None) -> Tensor:  # type: ignore[override]
        if uniforms is None:
            panel = self.peaks.argmax(-1)
            return panel * self.size + self._panel(panel)[0].argmax(-1)
        cdf = self._weights(self.drawn_sums, self.config.temperature).cumsum(-1)
        point = uniforms.double()[:, None] * cdf[:, -1:]
        panel = torch.searchsorted(cdf, point, right=True).clamp(max=cdf.shape[-1] - 1)
        above = cdf.gather(-1, panel)
        below = torch.where(panel > 0, cdf.gather(-1, (panel - 1).clamp(min=0)), 0.0)
        logits, valid = self._panel(panel[:, 0])
        shifted = (logits.double() - self.peak.double()[:, None]) / self.config.temperature
        inner = (shifted.exp() * valid).cumsum(-1)
        total = inner[:, -1:]
        # the two sums round differently, so the place in the panel is a share of the sum here
        rest = (point - below) / (above - below) * total
        rest = rest.minimum(total.nextafter(torch.zeros_like(total)))
        return panel[:, 0] * self.size + torch.searchsorted(inner, rest, right=True)[:, 0]

    def own_probability(self, columns: Tensor) -> Tensor:
        if self.filters_confidence:
            return self.drawn_probability(columns)
        return self._logp(columns, self.sums, 1.0).exp()

    def drawn_probability(self, columns: Tensor) -> Tensor:
        if self.config.temperature == 0:
            return torch.ones_like(self.peak)
        return self._logp(columns, self.drawn_sums, self.config.temperature).exp()

    def chosen(self, columns: Tensor) -> Tensor:
        if self.config.temperature == 0:
            return self.peak.new_zeros(len(columns)).float()
        return self._logp(columns, self.drawn_sums, self.config.temperature).float()

    def _logp(self, columns: Tensor, sums: Tensor, temperature: float) -> Tensor:
        """[N] log-probs of columns [N], by the sums at a temperature."""
        below = self.logits.gather(-1, columns[:, None])[:, 0] - self.peak
        total = self._weights(sums, temperature).sum(-1).to(self.peak.dtype)
        return below / temperature - total.log()

    def _weights(self, sums: Tensor, temperature: float) -> Tensor:
        """[N, K] float64: the sums, all relative to the largest logit of the row."""
        shift = (self.peaks.double() - self.peak.double()[:, None]) / temperature
        return sums.double() * shift.exp()

    def _panel(self, panel: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [N, size] of the panels [N], and which of them are columns of the panel."""
        columns = panel[:, None] * self.size + torch.arange(self.size, device=panel.device)
        last = self.logits.shape[-1] - 1
        return self.logits.gather(-1, columns.clamp(max=last)), columns <= last


class Stream:
    """How one rollout draws from a network that hands over its head, see `Network.forward`; the
    rule says which confidence it needs, and some columns are never written."""

    def __init__(
        self,
        canvas: MaskedCanvas,
        config: LoopConfig,
        rule: Rule,
        forbidden_columns: Collection[int],
    ) -> None:
        self.config, self.rule = config, rule
        self.stops = canvas.columns_of(canvas.stop_ids)
        self.columns = canvas.columns[1] - canvas.columns[0]
        self.forbidden_columns = sorted(forbidden_columns)
        self.device = canvas.tokens.device
        self.in_cache = PANEL if self.device.type == "cpu" else None
        self.buffer: Tensor | None = None

    @property
    def in_panels(self) -> bool:
        """Whether sums over panels tell all that the draw needs."""
        config = self.config
        filters = 0 < config.top_k < self.columns or config.top_p < 1
        whole = config.temperature == 0 or not filters
        return self.columns >= LARGE_VOCABULARY and whole and config.eos != "last"

    def needed(self, rows: int) -> bool:
        """Whether a step with this many positions is drawn so."""
        # draws need logits in float64
        return self.in_panels or rows > rows_at_once(self.columns, torch.float64, self.device)

    def __call__(self, x: Tensor, head: OutputHead, uniforms: Tensor | None) -> Choice:
        """What is drawn from hidden states [S N, D] of the branches of guidance."""
        guidance, parts = self.config.guidance, []
        x, head = head.cast(x)
        branches = x.view(guidance.branches, -1, x.shape[-1])
        dtype = x.dtype if self.in_panels else torch.float64
        size = rows_at_once(self.columns, dtype, self.device)
        with torch.autocast(x.device.type, enabled=False):
            for n in range(0, branches.shape[1], size):
                part = None if uniforms is None else uniforms[n : n + size]
                build = self._panels if self.in_panels else self._rows
                prediction = build(branches[:, n : n + size], head, guidance)
                parts.append(choose(self.rule, prediction, part))
        return Choice(*map(torch.cat, zip(*parts, strict=True)))

    def _rows(self, x: Tensor, head: OutputHead, guidance: Guidance) -> Prediction:
        logits = forbid(guidance.combine([head(branch) for branch in x]), self.forbidden_columns)
        return Prediction(logits, self.config, self.stops)

    def _panels(self, x: Tensor, head: OutputHead, guidance: Guidance) -> Prediction:
        logits, temperature = self._room(x), self.config.temperature
        size = 2**14 if self.in_cache is None else min(self.in_cache // x.shape[1], PANEL_COLUMNS)
        peaks, sums, drawn = [], [], []
        for start in range(0, self.columns, size):
            stop = min(start + size, self.columns)
            panel, part = head.take(start, stop), logits[start:stop]
            if len(x) == 1 and x.dtype == part.dtype:
                panel.by_column(x[0], out=part)
            else:
                part.copy_(guidance.combine([panel.by_column(branch) for branch in x]))
            for column in self.forbidden_columns:
                if start <= column < stop:
                    part[column - start] = -torch.inf
            # finite, where a whole panel is never written
            peak = part.amax(0).clamp_(min=torch.finfo(part.dtype).min)
            below = part - peak
            if temperature not in (0, 1):
                drawn.append((below / temperature).exp_().sum(0))
            sums.append(below.exp_().sum(0))
            peaks.append(peak)
        known = torch.stack(sums, 1)
        after = torch.stack(drawn, 1) if drawn else known
        shared = self.config, self.stops, size
        return PanelPrediction(logits.T, *shared, torch.stack(peaks, 1), known, after)

    def _room(self, x: Tensor) -> Tensor:
        """[C, n] that later rows and steps write over: new memory has to be cleared each time."""
        dtype, needed = wide_dtype(x.dtype), self.columns * x.shape[1]
        if self.buffer is None or self.buffer.dtype != dtype or len(self.buffer) < needed:
            self.buffer = torch.empty(needed, dtype=dtype, device=x.device)
        return self.buffer[:needed].view(self.columns, -1)
