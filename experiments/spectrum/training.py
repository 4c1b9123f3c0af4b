"""Do trained finite networks follow the spectrum? One network for each character, steps to fit it.

Gradient descent on ½ E_x (f(x) − f_0(x) − χ_U(x))² over the whole cube. An infinitely wide network
leaves the error (I − ηK)^t χ_U after t steps, K its tangent kernel, with the mean square

    Σ_i (1 − ηλ_i)^{2t} ⟨v_i, χ_U⟩²           (λ_i, v_i: eigenvalues and eigenfunctions of K).

If χ_U is an eigenfunction this is (1 − ημ_U)^{2t}, and only μ_U matters. If not, χ_U is fitted as
slowly as the slowest of its larger parts. Both predictions are given.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsens import boolean, spectrum
from jaxsens.spectrum.architectures import Architecture

from . import networks
from .config import Config

#: The mean squared error at which a character (whose mean square is 1) counts as fitted.
FITTED = 0.1
# Steps after which the limit counts as never fitting.
_NEVER = 1e9


@dataclass(frozen=True)
class CharacterTraining:
    """A network that is trained on characters, and for how long.

    Attributes:
      architecture: the network.
      d: number of coordinates.
      width: of the finite network.
      max_steps: steps after which a character counts as not fitted.
      sets_per_degree: characters of each degree, where their eigenvalues differ.
      seed: of the initial weights.
    """

    architecture: Architecture
    d: int
    width: int
    max_steps: int
    sets_per_degree: int
    seed: int


def characters(config: Config) -> dict[str, list[dict[str, Any]]]:
    """Steps to fit characters of every degree, by network."""
    return {
        name: train_characters(
            CharacterTraining(
                architecture=architecture,
                d=config.train_d,
                width=config.train_width,
                max_steps=config.max_steps,
                sets_per_degree=config.sets_per_degree,
                seed=config.seed,
            )
        )
        for name, architecture in networks.TRAINED.items()
    }


def train_characters(training: CharacterTraining) -> list[dict[str, Any]]:
    """Steps to fit each character, with its μ_U and the steps that the limit predicts."""
    kernel = spectrum.cube_kernels(training.architecture, training.d)["ntk"]
    mu = spectrum.fourier_matrix(kernel).diagonal()
    mu = np.where(np.abs(mu) > 1e-12 * mu.max(), mu, 0.0)
    values, vectors = np.linalg.eigh(kernel / len(kernel))
    # Half of the largest stable step of the limit: a finite network's kernel may be larger.
    rate = 1.0 / float(values[-1])
    fit = _trainer(training, rate)
    x = boolean.cube(training.d)
    rows = []
    for members in _sets(training, mu):
        target = boolean.character(x, members)
        parts = (vectors.T @ np.asarray(target, np.float64)) ** 2 / len(kernel)
        steps, error = fit(target)
        value = float(mu[boolean.mask_of(members)])
        rows.append(
            {
                "coordinates": list(members),
                "degree": len(members),
                "mu": value,
                "steps": int(steps),
                "fitted": bool(error <= FITTED),
                "by_mu": _steps(np.array([rate * value]), np.ones(1)),
                "by_kernel": _steps(rate * values, parts),
            }
        )
    return rows


def _steps(contractions: np.ndarray, parts: np.ndarray) -> float | None:
    """The t ≥ 1 with Σ_i (1 − contraction_i)^{2t} part_i = FITTED; None if there is none.

    An infinitely wide network never fits what its kernel does not contain.
    """
    shrink = np.log(np.clip(1 - contractions, 1e-300, 1 - 1e-12))

    def left(steps: float) -> float:
        return float(np.sum(parts * np.exp(2 * steps * shrink)))

    low, high = 0.0, 1.0
    while left(high) > FITTED:
        low, high = high, 2 * high
        if high > _NEVER:
            return None
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if left(middle) > FITTED else (low, middle)
    return max(1.0, high)


def _sets(training: CharacterTraining, mu: np.ndarray) -> list[tuple[int, ...]]:
    """For each degree, sets whose eigenvalues lie evenly between the least and the largest."""
    chosen = []
    for k in range(training.d + 1):
        of_degree = sorted(
            itertools.combinations(range(training.d), k), key=lambda u: mu[boolean.mask_of(u)]
        )
        lowest, highest = (mu[boolean.mask_of(u)] for u in (of_degree[0], of_degree[-1]))
        num = training.sets_per_degree if highest - lowest > 1e-9 * mu.max() else 1
        places = np.linspace(0, len(of_degree) - 1, num).round().astype(int)
        chosen += [of_degree[place] for place in np.unique(places)]
    return chosen


def _trainer(training: CharacterTraining, rate: float) -> Any:
    model = spectrum.finite_network(training.architecture, training.width)
    x = boolean.cube(training.d)
    start = jax.jit(model.init)(jax.random.key(training.seed), x)
    offset = jax.jit(model.apply)(start, x)

    def error(params: Any, target: Float[Array, " N"]) -> Float[Array, ""]:
        return jnp.mean((model.apply(params, x) - offset - target) ** 2)

    def step(state: tuple) -> tuple:
        params, target, num, _ = state
        value, gradient = jax.value_and_grad(error)(params, target)
        # The loss is half the error.
        params = jax.tree.map(lambda p, g: p - jnp.float32(rate / 2) * g, params, gradient)
        return params, target, num + 1, value

    def go_on(state: tuple) -> Array:
        _, _, num, value = state
        return (value > FITTED) & (num <= training.max_steps)

    @jax.jit
    def fit(target: Float[Array, " N"]) -> tuple[Array, Array]:
        state = (start, target, jnp.int32(0), jnp.float32(jnp.inf))
        _, _, num, value = jax.lax.while_loop(go_on, step, state)
        # The last value belongs to the parameters before the last step.
        return num - 1, value

    return fit
