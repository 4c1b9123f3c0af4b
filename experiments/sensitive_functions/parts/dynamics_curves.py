"""One run of the part `dynamics`: its curves, and where its loss drops."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from .. import paper

#: What is recorded of every run, at every measurement.
MEASURES = ("loss", "sharpness", "released", "blowup", "blowup_released", "norm")


@dataclass(frozen=True)
class Curve:
    """One run.

    Attributes:
      decay: its weight decay.
      seed: its seed.
      steps: at which it was measured.
      measured: every measure at these steps; nan where it is not finite.
    """

    decay: float
    seed: int
    steps: Int[np.ndarray, " m"]
    measured: dict[str, Float[np.ndarray, " m"]]

    @property
    def dropped(self) -> int | None:
        """The first measurement with a loss below 0.01; None if there is none."""
        below = np.flatnonzero(self.measured["loss"] < paper.DROPPED)
        return int(below[0]) if len(below) else None

    @property
    def plateau(self) -> int:
        """The last measurement before the drop with a loss of at least 0.2; 0 if there is none."""
        before = np.flatnonzero(self.measured["loss"][: self.dropped] >= paper.PLATEAU)
        return int(before[-1]) if len(before) else 0

    def sharpness(self, kind: str) -> Float[np.ndarray, " m"]:
        """By definition, or as released."""
        return self.measured["sharpness" if kind == "definition" else "released"]

    def rise(self, kind: str) -> float:
        """Sharpness at the end of the drop over its mean on the plateau."""
        sharp = self.sharpness(kind)
        return float(sharp[self.dropped] / sharp[: self.plateau + 1].mean())

    def final_share(self, kind: str) -> float:
        """Sharpness at the end over its largest."""
        sharp = self.sharpness(kind)
        return float(sharp[-1] / np.nanmax(sharp))

    def rises_in_drop(self, kind: str) -> bool:
        """Whether sharpness rises most between the end of the plateau and the end of the drop."""
        steepest = int(np.nanargmax(np.diff(self.sharpness(kind))))
        return self.dropped is not None and self.plateau <= steepest < self.dropped
