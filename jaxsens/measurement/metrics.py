"""What counts as a change of the output: Δ(f(x), f(x')) for one example.

The papers use the label flip 1[pred f(x) ≠ pred f(x')] (Definition 4.3), the relative change of the
features ‖f(x') - f(x)‖/‖f(x)‖ (word sensitivity) and the squared change ‖f(x') - f(x)‖². Occlusion
maps use signed ones: by how much the predicted class loses.

Assumption: outputs are logits or scores of one example, without a batch axis, and finite.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num, Shaped

from jaxsens.core.scalars import as_real, check_hashable, one_line


@dataclass(frozen=True)
class Metric:
    """What counts as a change of the output, and the range of that number.

    Attributes:
      name: the metric's name in results.
      change: `change(clean, perturbed) -> scalar`, of two outputs (C,) of one example.
      lower: the least value of a change. Intervals stay within [lower, upper].
      upper: the largest value of a change.
      jumps_within: `jumps_within(outputs, width) -> bool`, whether the change jumps (as the
        prediction does at a tie) if some outputs of one example move by at most `width`; None if
        the change never jumps.
      ascent: `ascent(clean, perturbed) -> scalar`, what `worst_case` follows uphill in place of the
        change: smooth, and the larger, the larger the change. None for the change itself, unless
        it jumps, since a jump has no slope.

    >>> first = Metric("first", lambda clean, perturbed: abs(perturbed[0] - clean[0]), lower=0.0)
    >>> float(first(jnp.array([1.0, 2.0]), jnp.array([4.0, 2.0])))
    3.0
    """

    name: str
    change: Callable[[Array, Array], Array]
    lower: float = -math.inf
    upper: float = math.inf
    jumps_within: Callable[[Array, Array], Array] | None = None
    ascent: Callable[[Array, Array], Array] | None = None

    def is_close(self, clean: Array, perturbed: Array, share: float) -> Bool[Array, ""]:
        """Whether the outputs are so close to a jump that rounding may decide it.

        Args:
          clean: (C,) the output of one example.
          perturbed: (C,) the output of an edit of it. If it is the same to the bit, nothing has
            changed, however close to a jump it is.
          share: how far rounding may move the outputs, as a share of their size.
        """
        if self.jumps_within is None or not jnp.issubdtype(clean.dtype, jnp.inexact):
            return jnp.asarray(False)
        # Not the largest entry: the fill of a masked class, -1e9, does not round the others.
        sizes = (jnp.median(jnp.abs(clean)), jnp.abs(clean.max()), jnp.abs(perturbed.max()))
        width = share * jnp.stack(sizes).max()
        close = self.jumps_within(clean, width) | self.jumps_within(perturbed, width)
        return close & (clean != perturbed).any()

    def __post_init__(self):
        if not isinstance(self.name, str) or isinstance(self.change, str):
            raise ValueError(
                "Metric takes a name and a function change(clean, perturbed) -> number; "
                f"got {one_line(self.name)} and {one_line(self.change)}"
            )
        if not callable(self.change):
            raise ValueError(
                f"metric {self.name!r} needs a function change(clean, perturbed) -> number; "
                f"got {one_line(self.change)}"
            )
        lower, upper = as_real(self.lower), as_real(self.upper)
        if lower is None or upper is None or not lower < upper:
            raise ValueError(
                f"metric {self.name!r} needs bounds lower < upper; "
                f"got {one_line(self.lower)} and {one_line(self.upper)}"
            )
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        check_hashable("metric", self.change)

    def __call__(self, clean: Array, perturbed: Array) -> Float[Array, ""]:
        """The change, as a float."""
        return self._number(self.change(clean, perturbed))

    def height(self, clean: Array, perturbed: Array) -> Float[Array, ""]:
        """What an ascent makes as large as it can, as a float."""
        return self._number((self.ascent or self.change)(clean, perturbed))

    def _number(self, change: Any) -> Float[Array, ""]:
        change = jnp.asarray(change)
        if jnp.issubdtype(change.dtype, jnp.complexfloating):
            raise ValueError(
                f"metric {self.name!r} must give a real number; got {change.dtype}: take its "
                "absolute value or its real part"
            )
        if change.shape != ():
            raise ValueError(
                f"metric {self.name!r} must give one number for the outputs of one example; "
                f"got shape {change.shape}"
            )
        return change.astype(jnp.float32)


def _label_flip(clean: Shaped[Array, "*C"], perturbed: Shaped[Array, "*C"]) -> Bool[Array, ""]:
    if clean.size == 1:
        # sign(0) = 0 is a class of its own: moving onto or off a tie is a change.
        return (jnp.sign(clean) != jnp.sign(perturbed)).reshape(())
    return jnp.argmax(clean) != jnp.argmax(perturbed)


def near_tie(outputs: Shaped[Array, "*C"], width: Shaped[Array, ""]) -> Bool[Array, ""]:
    """Whether, within `width`, two outputs are largest or, if there is only one, it is 0."""
    if outputs.size == 1:
        return (jnp.abs(outputs) <= width).reshape(())
    return (outputs >= outputs.max() - width).sum() > 1


def margin(clean: Float[Array, "*C"], perturbed: Float[Array, "*C"]) -> Float[Array, ""]:
    """By how much another class leads the one that was predicted: above 0 the label has flipped."""
    if clean.size == 1:
        before, after = clean.reshape(()), perturbed.reshape(())
        return jnp.where(before == 0, jnp.abs(after), -jnp.sign(before) * after)
    clean, perturbed = clean.ravel(), perturbed.ravel()
    predicted = jnp.arange(clean.size) == jnp.argmax(clean)
    others = jnp.where(predicted, jnp.full_like(perturbed, -jnp.inf), perturbed)
    return others.max() - jnp.where(predicted, perturbed, jnp.zeros_like(perturbed)).sum()


def _relative_l2(clean: Num[Array, "*F"], perturbed: Num[Array, "*F"]) -> Float[Array, ""]:
    change = jnp.linalg.norm((perturbed - clean).ravel())
    size = jnp.linalg.norm(clean.ravel())
    return jnp.where(change == 0, jnp.zeros_like(change), change / size)


def _relative_squared(clean: Num[Array, "*F"], perturbed: Num[Array, "*F"]) -> Float[Array, ""]:
    """The square of `relative_l2`: the same way uphill, and a slope of 0 where nothing changes."""
    size = jnp.sum(jnp.abs(clean) ** 2)
    return jnp.sum(jnp.abs(perturbed - clean) ** 2) / size


def _squared(clean: Num[Array, "*F"], perturbed: Num[Array, "*F"]) -> Num[Array, ""]:
    return jnp.sum((perturbed - clean) ** 2)


def _predicted(
    clean: Shaped[Array, "*C"], perturbed: Shaped[Array, "*C"]
) -> tuple[Float[Array, " K"], Float[Array, " K"], Int[Array, ""]]:
    """Both outputs as logits of two classes or more, and the class that was predicted.

    A single score s is the logits (-s/2, s/2): its sign is the prediction, and σ(|s|) its
    probability.
    """
    if clean.size > 1 and clean.ndim > 1:
        raise ValueError(
            f"a drop of the predicted class needs logits (n, C) or scores (n,); got {clean.shape} "
            "for each example"
        )
    before, after = (outputs.reshape(-1).astype(jnp.float32) for outputs in (clean, perturbed))
    if clean.size == 1:
        before, after = (jnp.concatenate([-score, score]) / 2 for score in (before, after))
    return before, after, jnp.argmax(before)


def _probability_drop(
    clean: Shaped[Array, "*C"], perturbed: Shaped[Array, "*C"]
) -> Float[Array, ""]:
    before, after, predicted = _predicted(clean, perturbed)
    return jax.nn.softmax(before)[predicted] - jax.nn.softmax(after)[predicted]


def _logit_drop(clean: Shaped[Array, "*C"], perturbed: Shaped[Array, "*C"]) -> Float[Array, ""]:
    before, after, predicted = _predicted(clean, perturbed)
    # The logits of a single score are ± half of it.
    return (before - after)[predicted] * (2 if clean.size == 1 else 1)


#: 1[pred differs]: argmax for several outputs, sign for one, a tie being its own class.
label_flip = Metric("label_flip", _label_flip, 0.0, 1.0, near_tie, margin)
#: ‖f(x') - f(x)‖₂ / ‖f(x)‖₂ over all outputs.
relative_l2 = Metric("relative_l2", _relative_l2, 0.0, ascent=_relative_squared)
#: ‖f(x') - f(x)‖₂² over all outputs.
squared_change = Metric("squared_change", _squared, 0.0)
#: p(x) - p(x') of the class that is predicted for x, p the softmax of the logits or, for a single
#: score, its logistic function. Signed: below 0 the edit made the model surer.
probability_drop = Metric("probability_drop", _probability_drop, -1.0, 1.0, near_tie)
#: The same difference of the logits themselves, or of the score.
logit_drop = Metric("logit_drop", _logit_drop, jumps_within=near_tie)


def as_metric(metric: Metric | Callable[[Array, Array], Array]) -> Metric:
    """A metric, or a function `change(clean, perturbed) -> scalar` as a metric without bounds.

    >>> as_metric(lambda clean, perturbed: perturbed[0] - clean[0]).upper
    inf
    """
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, type) or not callable(metric):
        raise ValueError(
            "metric must be jaxsens.label_flip, another Metric, or a function "
            f"(clean, perturbed) -> number; got {one_line(metric)}"
        )
    return Metric(getattr(metric, "__name__", type(metric).__name__), metric)
