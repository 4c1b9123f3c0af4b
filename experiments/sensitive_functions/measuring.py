"""What is measured of trained transformers, lane by lane, in one program per length.

Outputs are those of ±1 functions, 2T − 1 for a model T that is fitted to values in [0, 1].

    sharpness, by definition     E_x E_Δ (T_{θ+Δ}(x) − T_θ(x))²,    Δ uniform on a sphere
    sharpness, as released       4 (E_Δ MSE(θ + Δ) − MSE(θ)),       Δ Gaussian

Both are recorded for three sizes of the same directions: the sphere of radius ε√p (p parameters
beside the positions'), the Gaussian of standard deviation ε, and the sphere of the radius that the
paper's model has, whatever the width. Directions are every model's own: the released code takes
the same ten for all.

All 2ⁿ inputs are gone through where they are no more than `num_inputs`. Then averages over inputs
have no error, and the average sensitivity of the model and of each of its perturbed copies is
exact. Else inputs are a uniform sample, and what needs all of them is None.

Assumption: a model's outputs fit float32 sums; tables of 2ⁿ outputs are averaged in float32.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from jaxsens import Gaussian
from jaxsens.boolean import weight_by_degree
from jaxsens.boolean.points import neighbour
from jaxsens.measurement.layer_norm_gains import Kind, factor_of, gains_of, outputs_and_gains
from jaxsens.models import BitTransformer
from jaxsens.models.tokens.bit_transformer import POSITIONS
from jaxsens.perturbations import weight_noise
from jaxsens.reporting.cached import cached_stage
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.lanes import by_blocks

from .functions import bits_of, pointwise_sensitivity
from .training import LARGEST_NUMBERED, Lanes, json_lists, values_of

#: "sphere": radius ε√p. "gaussian": standard deviation ε. "matched": the sphere of the paper's ρ.
Noise = Literal["sphere", "gaussian", "matched"]
NOISES: tuple[Noise, ...] = get_args(Noise)
#: ρ of the paper: 0.02·√199,425, its model's parameters beside the positions.
PAPER_RADIUS = 0.02 * math.sqrt(199_425)
#: Inputs that go through a model together.
_CHUNK = 1024
#: What `measure_lane` draws from its key.
_DIRECTIONS, _INPUTS = 0, 1

Record = dict[str, Any]


@dataclass(frozen=True)
class Measurement:
    """What is measured, static and hashable.

    Attributes:
      model: the shape of the models.
      epsilon: ε.
      num_directions: R, draws of the weights.
      num_inputs: inputs at the most.
      noises: sizes of the noise.
    """

    model: BitTransformer
    epsilon: float
    num_directions: int
    num_inputs: int
    noises: tuple[Noise, ...] = NOISES

    @property
    def exact(self) -> bool:
        """Whether all inputs are gone through."""
        n = self.model.length
        return n <= LARGEST_NUMBERED and 2**n <= self.num_inputs

    def inputs(self, key: PRNGKeyArray) -> tuple[Int[Array, " m"] | None, Int[Array, "m n"]]:
        """All inputs, or uniform ones: by number, if they have one, and as bits."""
        n = self.model.length
        if n > LARGEST_NUMBERED:
            return None, jax.random.randint(key, (self.num_inputs, n), 0, 2)
        points = (
            jnp.arange(2**n, dtype=jnp.int32)
            if self.exact
            else jax.random.randint(key, (self.num_inputs,), 0, 2**n)
        )
        return points, bits_of(points, n)


def selected_weights(params: Any) -> tuple[bool, ...]:
    """Which leaves are perturbed and have a norm: all but the positions."""
    names = params["params"]
    return weight_noise.select(params, {"params": {name: name != POSITIONS for name in names}})


def num_parameters(params: Any) -> int:
    """p, of one model."""
    return weight_noise.num_weights(params, selected_weights(params))


def weight_norm(params: Any) -> Float[Array, ""]:
    """L2 norm of all parameters but the positions."""
    leaves = zip(jax.tree.leaves(params), selected_weights(params), strict=True)
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf, bit in leaves if bit))


def measure_lane(spec: Measurement, lane: Lanes, params: Any, key: PRNGKeyArray) -> Record:
    """Everything that is measured of one model.

    Args:
      spec: what.
      lane: its run, which knows what it was fitted to.
      params: its weights.
      key: of directions and, if not all inputs are gone through, of inputs.

    Returns:
      "loss" (of values in [0, 1]), "norm"; "change" and "increase", (R, noises): the definition of
      sharpness and the released one for each direction; "blowup", "blowup_released" and
      "blowup_squared", means over inputs. With all inputs also "profile" and "noisy_profile", the
      Fourier weight by degree, clean and the mean over directions (noises, n + 1);
      "sensitivity" and "noisy_sensitivity", (R, noises); and what Theorem 4 compares.
    """
    points, bits = spec.inputs(jax.random.fold_in(key, _INPUTS))
    values, selected = values_of(lane, points, bits), selected_weights(params)
    outputs = _over_inputs(lambda params, bits: spec.model.apply(params, bits), bits)
    clean, released = _over_inputs(functools.partial(_watched, spec.model), bits)(params)
    blowup = _over_inputs(functools.partial(_defined_blowup, spec.model), bits)(params)
    loss = jnp.mean(jnp.square(clean - values))

    def draw(number: Int[Array, ""]) -> Record:
        xi = weight_noise.directions(jax.random.fold_in(key, _DIRECTIONS), number, params)
        zeros = jax.tree.map(jnp.zeros_like, params)
        direction = weight_noise.perturb(Gaussian(sigma=1.0), xi, zeros, selected)

        def scaled(scale: Float[Array, ""]) -> Record:
            moved = [scale * leaf for leaf in direction]
            step = weight_noise.with_weights(zeros, selected, moved)
            noisy = outputs(jax.tree.map(jnp.add, params, step))
            found = {
                "change": 4 * jnp.mean(jnp.square(noisy - clean)),
                "increase": 4 * (jnp.mean(jnp.square(noisy - values)) - loss),
            }
            return found | (
                {"noisy_profile": weight_by_degree(2 * noisy - 1)} if spec.exact else {}
            )

        return lax.map(scaled, _scales(spec, direction, num_parameters(params)))

    found = {"loss": loss, "norm": weight_norm(params)}
    found |= lax.map(draw, jnp.arange(spec.num_directions))
    found["blowup"], found["blowup_released"] = jnp.mean(blowup), jnp.mean(released)
    found["blowup_squared"] = jnp.mean(jnp.square(blowup))
    return found | (_with_all_inputs(spec, 2 * clean - 1, blowup, found) if spec.exact else {})


def _with_all_inputs(
    spec: Measurement, clean: Float[Array, " N"], blowup: Float[Array, " N"], found: Record
) -> Record:
    """What is exact: sensitivities by the spectrum, and both sides of Theorem 4."""
    n = spec.model.length
    degrees = jnp.arange(n + 1, dtype=jnp.float32)
    profile, noisy = weight_by_degree(clean), found["noisy_profile"]
    squared = jnp.square(blowup)
    around = sum((neighbour(squared, i) for i in range(n)), jnp.zeros_like(squared)) / n
    growth = math.sqrt(n * math.log(n))
    left, right = pointwise_sensitivity(clean) / growth, squared + around
    # Theorem 4 allows a share of H/n² exceptions.
    allowed = max(0.0, 1 - spec.model.heads / n**2)
    return {
        "profile": profile,
        "noisy_profile": jnp.mean(noisy, axis=0),
        "sensitivity": profile @ degrees,
        "noisy_sensitivity": noisy @ degrees,
        "theorem4_left": jnp.mean(left),
        "theorem4_right": jnp.mean(right),
        "theorem4_constant": jnp.quantile(left / right, allowed, method="higher"),
    }


def _scales(
    spec: Measurement, direction: Sequence[Array], num_weights: int
) -> Float[Array, " noises"]:
    """What a standard normal vector is multiplied by for each noise."""
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in direction))
    scales = {
        "sphere": spec.epsilon * math.sqrt(num_weights) / norm,
        "gaussian": jnp.full_like(norm, spec.epsilon),
        "matched": PAPER_RADIUS / norm,
    }
    return jnp.stack([scales[noise] for noise in spec.noises])


def _watched(
    model: BitTransformer, params: Any, bits: Int[Array, "b n"]
) -> tuple[Float[Array, " b"], Float[Array, " b"]]:
    """Outputs, and blow-up as released: in the last layer only the position that is read."""
    outputs, gains = outputs_and_gains(model, params, bits, kinds=("released",))
    return outputs, _product(gains["released"], "released")


def _defined_blowup(
    model: BitTransformer, params: Any, bits: Int[Array, "b n"]
) -> Float[Array, " b"]:
    """Blow-up by its definition, the maximum over all positions in every layer."""
    return _product(gains_of(model, params, bits, every_position=True), "definition")


def _product(gains: dict[str, Float[Array, "b _"]], kind: Kind) -> Float[Array, " b"]:
    return functools.reduce(jnp.multiply, [factor_of(gain, kind) for gain in gains.values()])


def _over_inputs(function: Any, bits: Int[Array, "m n"]) -> Any:
    """`params -> trees of (m,)`, in chunks of inputs that fit the cache."""
    m, n = bits.shape
    if m <= _CHUNK:
        return lambda params: function(params, bits)
    whole, rest = m - m % _CHUNK, m % _CHUNK
    chunks = bits[:whole].reshape(-1, _CHUNK, n)

    def by_chunk(params: Any) -> Any:
        found = lax.map(lambda chunk: function(params, chunk), chunks)
        flat = jax.tree.map(jnp.ravel, found)
        if not rest:
            return flat
        last = function(params, bits[whole:])
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), flat, last)

    return by_chunk


@functools.partial(jax.jit, static_argnums=0)
def _measure_block(spec: Measurement, lanes: Lanes, params: Any, keys: Key[Array, " L"]) -> Record:
    return jax.vmap(functools.partial(measure_lane, spec))(lanes, params, keys)


def measure_lanes(
    spec: Measurement, lanes: Lanes, params: Any, *, key: PRNGKeyArray
) -> dict[str, list[Any]]:
    """`measure_lane` of all lanes: lists with an entry per lane, None for what is not finite."""
    num = len(lanes.learning_rate)
    keys = jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(num))
    with jax.default_matmul_precision("highest"):
        of_block = functools.partial(_measure_block, spec)
        # One lane per call: calls run side by side on the cores, and a lane's chunk fits the cache.
        found = by_blocks(of_block, (lanes, params, keys), 1)
    return {name: json_lists(values) for name, values in found.items()}


def stage_key(seed: int, name: str) -> PRNGKeyArray:
    """A key for each stage, so that no two models share their directions.

    >>> bool(jnp.all(stage_key(0, "a") == stage_key(0, "b")))
    False
    """
    key = jax.random.key(seed)
    for letter in name.encode():
        key = jax.random.fold_in(key, letter)
    return key


def measured_stage(
    folder: RunFolder, name: str, spec: Measurement, lanes: Lanes, params: Any, *, seed: int
) -> list[Record]:
    """One record per lane, measured once and then read from the folder."""

    def measure() -> dict[str, list[Any]]:
        return measure_lanes(spec, lanes, params, key=stage_key(seed, name))

    found = cached_stage(folder, f"{name}, measured", measure)
    num = len(found["loss"])
    return [{field: values[i] for field, values in found.items()} for i in range(num)]


def draws_of(record: Record, field: str, noise: Noise, noises: Sequence[Noise] = NOISES) -> Any:
    """The values of "change", "increase" or "noisy_sensitivity" of one noise, one per direction.

    None became nan: a model that noise makes infinite.
    """
    table = np.array(record[field], np.float64)
    return table[:, list(noises).index(noise)]
