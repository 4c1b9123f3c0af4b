"""Linear models of fixed features that interpolate: closed forms, and one more sample.

For features Φ (N × p, p ≥ N) and targets Y the least-norm interpolator is θ* = Φ⁺Y. One more sample
(φ, y) gives two models, both with φᵀθ = y:

    fine-tuned   θ_f = θ* + φ (y - φᵀθ*)/‖φ‖²             one sample, starting from θ*
    retrained    θ_r = θ* + P⊥φ (y - φᵀθ*)/‖P⊥φ‖²         the interpolator of all N + 1

with P⊥ = I - Φ⁺Φ. What such a model says of another input, of features φ', follows from one number:

    φ'ᵀθ = φ'ᵀθ* + F (y - φᵀθ*),    F_f = φᵀφ'/‖φ‖²,    F_r = (P⊥φ)ᵀφ'/‖P⊥φ‖².

No p × p matrix is made: P⊥φ = φ - Φᵀ(ΦΦᵀ)⁻¹Φφ, with a Cholesky factor of the N × N matrix. All is
float64: ΦΦᵀ squares the condition number of Φ.

Assumption: the rows of Φ are linearly independent, and φ is not a combination of them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from jaxtyping import Float

Features = Float[np.ndarray, " p"]


@dataclass(frozen=True, eq=False)
class MinNormFit:
    """The least-norm interpolator.

    Attributes:
      features: Φ.
      factor: the Cholesky factor of ΦΦᵀ, as SciPy keeps it.
      theta: θ*.
    """

    features: Float[np.ndarray, "N p"]
    factor: Any
    theta: Features

    def outside(self, phi: Features) -> Features:
        """P⊥φ: what no combination of the samples' features explains."""
        phi = np.asarray(phi, np.float64)
        return phi - self.features.T @ scipy.linalg.cho_solve(self.factor, self.features @ phi)


@dataclass(frozen=True, eq=False)
class OneMore:
    """A fit that also has φᵀθ = y, of one more sample.

    Attributes:
      theta: θ_f or θ_r.
      aligned: the vector whose product with the features φ' of an input is F.
    """

    theta: Features
    aligned: Features


def min_norm_fit(
    features: Float[np.ndarray, "N p"], targets: Float[np.ndarray, " N"]
) -> MinNormFit:
    """θ* = Φᵀ(ΦΦᵀ)⁻¹Y.

    Raises:
      ValueError: there is no interpolator, because the rows of Φ depend on each other.

    >>> min_norm_fit(np.array([[3.0, 4.0]]), np.array([5.0])).theta.round(12).tolist()
    [0.6, 0.8]
    """
    features = np.asarray(features, np.float64)
    try:
        factor = scipy.linalg.cho_factor(features @ features.T, lower=True)
    except np.linalg.LinAlgError:
        raise ValueError(
            f"features of shape {features.shape} do not interpolate: expected linearly independent "
            "rows; use fewer samples or more features"
        ) from None
    theta = features.T @ scipy.linalg.cho_solve(factor, np.asarray(targets, np.float64))
    return MinNormFit(features, factor, theta)


def fine_tuned(fit: MinNormFit, phi: Features, y: float) -> OneMore:
    """θ_f: gradient descent from θ* on the new sample alone, to its end.

    >>> fit = min_norm_fit(np.array([[1.0, 0.0]]), np.array([1.0]))
    >>> fine_tuned(fit, np.array([1.0, 1.0]), 3.0).theta.tolist()
    [2.0, 1.0]
    """
    phi = np.asarray(phi, np.float64)
    return _one_more(fit, phi, y, phi)


def retrained(fit: MinNormFit, phi: Features, y: float) -> OneMore:
    """θ_r: the least-norm interpolator of all samples and the new one.

    >>> fit = min_norm_fit(np.array([[1.0, 0.0]]), np.array([1.0]))
    >>> retrained(fit, np.array([1.0, 1.0]), 3.0).theta.tolist()
    [1.0, 2.0]
    """
    phi = np.asarray(phi, np.float64)
    return _one_more(fit, phi, y, fit.outside(phi))


def _one_more(fit: MinNormFit, phi: Features, y: float, direction: Features) -> OneMore:
    # φᵀP⊥φ = ‖P⊥φ‖²: one formula serves both.
    aligned = direction / (phi @ direction)
    return OneMore(fit.theta + aligned * (y - phi @ fit.theta), aligned)
