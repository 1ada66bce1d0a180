"""A run as a picture: its loss, its validation H and its trade-offs."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.figure import Figure

from unsee.types import Candidate, Generation


class RunFigure(Figure):
    """A matplotlib figure that a notebook shows by itself; pyplot, which is global, does not know of it."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()


def plot_run(history: Sequence[Generation], front: Sequence[Candidate]) -> RunFigure:
    """Loss and validation H by generation, and the trade-offs that the run has to offer."""
    figure = RunFigure(figsize=(11, 3.2), layout="constrained")
    loss, valid, trade = figure.subplots(1, 3)
    numbers = [generation.number for generation in history]
    loss.plot(numbers, [generation.losses.min() for generation in history], label="best of the generation")
    loss.plot(numbers, [generation.losses.mean() for generation in history], label="mean", alpha=0.5)
    loss.set(title="Loss", xlabel="generation")
    if history:
        loss.legend(frameon=False)
    scored = [(generation.number, generation.valid.h) for generation in history if generation.valid is not None]
    valid.plot([number for number, _ in scored], [h for _, h in scored], drawstyle="steps-post")
    valid.set(title="Validation H", xlabel="generation", ylim=(0, 1))
    offers = [candidate.trade_off for candidate in front]
    dots = trade.scatter(
        [o.acc_mem for o in offers], [o.err_for for o in offers], c=[o.entropy for o in offers], vmin=0, vmax=1
    )
    trade.set(title="Front", xlabel="kept classes recognised (Acc_mem)", ylabel="forgotten not (Err_for)")
    if offers:
        figure.colorbar(dots, ax=trade, label="entropy")
    return figure
