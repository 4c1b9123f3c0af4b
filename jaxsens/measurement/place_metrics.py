"""Label flips of models that give a label at each of several places.

A model of segmentation gives logits (n, H, W, C), a language model (n, T, V): one label for each
place. What counts as a change has to be said: a flip at any place, the share of places that flip,
or a flip at one place.

Assumption: the last axis holds the classes of a place; with a single class its sign is the label.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
from jaxtyping import Array, Bool, Float, Shaped

from jaxsens.core.scalars import as_whole, one_line
from jaxsens.measurement.metrics import Metric, label_flip, margin, near_tie


def label_flip_at(place: int | tuple[int, ...]) -> Metric:
    """The label flip at one place: a pixel (row, column), or a token.

        Δ = 1[argmax_c f(x)[place, c] ≠ argmax_c f(x')[place, c]]

    Args:
      place: the index of the place, without the axes of examples and classes: 3, or (2, 5);
        negative numbers count from the end.

    Returns:
      The metric, for outputs (n, …, C).

    Raises:
      ValueError: the place is no whole number or tuple of such. An index that the outputs do not
        have is refused when the metric meets them.

    >>> import jax.numpy as jnp
    >>> clean, perturbed = jnp.eye(3), jnp.eye(3)[:, ::-1]
    >>> float(label_flip_at(1)(clean, perturbed)), float(label_flip_at(-1)(clean, perturbed))
    (0.0, 1.0)
    """
    given = place if isinstance(place, tuple) else (place,)
    index = tuple(as_whole(number) for number in given)
    if not index or None in index:
        raise ValueError(f"label_flip_at needs a place, such as 3 or (2, 5); got {one_line(place)}")
    return _metric_at(tuple(int(number) for number in index if number is not None))


@functools.cache
def _metric_at(place: tuple[int, ...]) -> Metric:
    """One metric for a place, so that nothing is compiled again."""
    at, name = _At(place), f"label_flip_at({', '.join(map(str, place))})"
    return Metric(name, at.change, 0.0, 1.0, at.jumps_within, at.ascent)


@dataclass(frozen=True)
class _At:
    """The outputs of one place."""

    place: tuple[int, ...]

    def change(self, clean: Array, perturbed: Array) -> Array:
        return label_flip(self._of(clean), self._of(perturbed))

    def jumps_within(self, outputs: Array, width: Array) -> Array:
        return near_tie(self._of(outputs), width)

    def ascent(self, clean: Array, perturbed: Array) -> Array:
        return margin(self._of(clean), self._of(perturbed))

    def _of(self, outputs: Array) -> Array:
        places = outputs.shape[:-1]
        fits = len(places) == len(self.place) and all(
            -length <= number < length for number, length in zip(self.place, places, strict=True)
        )
        if not fits:
            raise ValueError(
                f"there is no place {self.place} among outputs with places {places} and "
                f"{outputs.shape[-1:]} classes"
            )
        return outputs[self.place]


def _rows(outputs: Shaped[Array, "*places C"]) -> Shaped[Array, "P C"]:
    return outputs.reshape(-1, outputs.shape[-1])


def _flips(clean: Shaped[Array, "*places C"], perturbed: Any) -> Float[Array, " P"]:
    return jax.vmap(label_flip)(_rows(clean), _rows(perturbed))


def _any(clean: Shaped[Array, "*places C"], perturbed: Any) -> Float[Array, ""]:
    return _flips(clean, perturbed).max()


def _mean(clean: Shaped[Array, "*places C"], perturbed: Any) -> Float[Array, ""]:
    return _flips(clean, perturbed).mean()


def _near_tie(outputs: Shaped[Array, "*places C"], width: Array) -> Bool[Array, ""]:
    return jax.vmap(near_tie, in_axes=(0, None))(_rows(outputs), width).any()


def _margins(clean: Shaped[Array, "*places C"], perturbed: Any) -> Float[Array, " P"]:
    return jax.vmap(margin)(_rows(clean), _rows(perturbed))


def _some_margin(clean: Shaped[Array, "*places C"], perturbed: Any) -> Float[Array, ""]:
    """A smooth maximum: that of a place which the edit does not reach would have no slope."""
    return jax.nn.logsumexp(_margins(clean, perturbed))


def _all_margins(clean: Shaped[Array, "*places C"], perturbed: Any) -> Float[Array, ""]:
    """Follows every place that has not flipped yet, and leaves alone those that have."""
    return jax.nn.log_sigmoid(_margins(clean, perturbed)).mean()


#: 1[the label of some place differs], for outputs (n, …, C).
label_flip_any = Metric("label_flip_any", _any, 0.0, 1.0, _near_tie, _some_margin)
#: The share of places whose label differs, for outputs (n, …, C).
label_flip_mean = Metric("label_flip_mean", _mean, 0.0, 1.0, _near_tie, _all_margins)
