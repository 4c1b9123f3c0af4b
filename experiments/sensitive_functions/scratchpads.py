"""PARITY with its prefix parities written out, by an encoder and a decoder (Fig. 11).

Training is teacher-forced: at every place the decoder sees the true parities before it. What a
model can do is asked without: it writes place after place from what it has written itself, and a
string counts only if all its places are right. The released code counts places.

Sharpness is that of the teacher-forced outputs, the mean over places, of ±1 outputs:

    by definition  4 E_x E_Δ mean_i (T_{θ+Δ}(x)_i − T_θ(x)_i)²,    Δ on the sphere of radius ε√p
    as released    4 (E_Δ MSE(θ + Δ) − MSE(θ)),                    Δ Gaussian

and, beside it, that of the last place alone, which is PARITY itself.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxsens import Gaussian
from jaxsens.models import ScratchpadTransformer
from jaxsens.models.tokens.bit_transformer import prefix_parities, written_by
from jaxsens.perturbations import weight_noise
from jaxsens.reporting.cached import cached_stage
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.lanes import by_blocks

from .config import Config
from .measuring import num_parameters, selected_weights, stage_key
from .stages import even_blocks
from .training import Lanes, json_lists, train_stage

#: A run has learnt if it writes more than this share of strings right; the paper's filter.
LEARNT_STRINGS = 0.999
#: Attention weights of a head that go through the memory together, in training and in measuring.
_PER_BLOCK, _PER_CHUNK = 2**16, 2**18


@dataclass(frozen=True)
class ScratchpadTask:
    """Prefix parities from uniform bits, teacher-forced: a `LaneTask`.

    Attributes:
      model: what is trained.
      batch: inputs drawn for a step.
    """

    model: ScratchpadTransformer
    batch: int

    def init(self, lane: Lanes) -> Any:
        """First weights, from the lane's key; layers are not tied."""
        bits = jnp.zeros((1, self.model.length), jnp.int32)
        return self.model.init(jax.random.fold_in(lane.key, 0), bits, bits)

    def optimizer(self, lane: Lanes) -> optax.GradientTransformation:
        """AdamW on all parameters."""
        return optax.adamw(lane.learning_rate, weight_decay=lane.weight_decay)

    def loss(self, params: Any, lane: Lanes, step: Int[Array, ""]) -> Float[Array, ""]:
        """The mean squared error over the places of all inputs that the step draws."""
        key = jax.random.fold_in(jax.random.fold_in(lane.key, 1), step)
        bits = jax.random.randint(key, (self.batch, self.model.length), 0, 2)
        truth = prefix_parities(bits)
        outputs: Any = self.model.apply(params, bits, truth)
        return jnp.mean(jnp.square(outputs - truth.astype(jnp.float32)))


@dataclass(frozen=True)
class Asked:
    """What is measured of a model, static and hashable.

    Attributes:
      model: its shape.
      epsilon: ε.
      num_directions: R, draws of the weights.
      num_strings: inputs.
    """

    model: ScratchpadTransformer
    epsilon: float
    num_directions: int
    num_strings: int


@dataclass(frozen=True)
class Scratchpad:
    """A trained model and what was measured of it.

    Attributes:
      n: bits.
      seed: number of the run.
      record: see `measure_lane`; a number is None if it is not finite.
    """

    n: int
    seed: int
    record: dict[str, Any]

    @property
    def string_accuracy(self) -> float:
        """Share of the strings that it writes without a mistake, by itself."""
        return float(self.record["strings"])

    @property
    def learnt(self) -> bool:
        """Whether it passes the filter; one that diverged writes nothing right."""
        return self.string_accuracy > LEARNT_STRINGS and math.isfinite(self.sharpness("definition"))

    def sharpness(self, kind: str) -> float:
        """By definition or as released; nan if it diverged."""
        field = {"definition": "change", "released": "increase", "last place": "last"}[kind]
        value = self.record[field]
        return math.nan if value is None else float(value)


def trained_scratchpads(config: Config, folder: RunFolder, n: int) -> list[Scratchpad]:
    """Trains and measures all runs of one length, or reads what the folder has of them."""
    model = ScratchpadTransformer(n, config.scratchpad_width, config.layers, config.heads)
    task, seeds = ScratchpadTask(model, config.scratchpad_batch), config.scratchpad_seeds
    numbers, stage = range(config.seed, config.seed + seeds), f"scratchpad-{n}"
    key = stage_key(config.seed, stage)
    lanes = Lanes(
        key=jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(seeds)),
        learning_rate=jnp.full(seeds, config.scratchpad_rate),
        weight_decay=jnp.full(seeds, config.weight_decay),
    )
    state = train_stage(
        folder,
        stage,
        task,
        lanes,
        runs=numbers,
        steps=config.scratchpad_steps,
        block=even_blocks(seeds, min(config.block, max(1, _PER_BLOCK // n**2))),
    )
    asked = Asked(model, config.epsilon, config.num_directions, config.scratchpad_strings)
    found = cached_stage(
        folder,
        f"{stage}, measured",
        lambda: measure_lanes(asked, state.params, key=jax.random.fold_in(key, seeds)),
    )
    return [
        Scratchpad(n, seed, {name: values[i] for name, values in found.items()})
        for i, seed in enumerate(numbers)
    ]


def measure_lanes(asked: Asked, params: Any, *, key: PRNGKeyArray) -> dict[str, list[Any]]:
    """`measure_lane` of all lanes: lists with an entry per lane, None for what is not finite."""
    num = len(jax.tree.leaves(params)[0])
    keys = jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(num))
    with jax.default_matmul_precision("highest"):
        found = by_blocks(functools.partial(_measure_block, asked), (params, keys), 1)
    return {name: json_lists(values) for name, values in found.items()}


@functools.partial(jax.jit, static_argnums=0)
def _measure_block(asked: Asked, params: Any, keys: Any) -> dict[str, Array]:
    return jax.vmap(functools.partial(measure_lane, asked))(params, keys)


def measure_lane(asked: Asked, params: Any, key: PRNGKeyArray) -> dict[str, Array]:
    """Everything that is measured of one model.

    Returns:
      "loss", teacher-forced; "change", "increase" and "last", the sharpnesses by definition, as
      released, and by definition of the last place; "strings" and "places", the shares that it
      writes right by itself; "places_forced", the share right with the truth before it.
    """
    model, selected = asked.model, selected_weights(params)
    n, purposes = model.length, jax.random.split(key, 2)
    bits = jax.random.randint(purposes[0], (asked.num_strings, n), 0, 2)
    truth = prefix_parities(bits)
    targets = truth.astype(jnp.float32)
    chunk = min(asked.num_strings, max(1, _PER_CHUNK // n**2))

    def outputs(params: Any) -> Float[Array, "m n"]:
        def one(pair: tuple[Int[Array, " n"], Int[Array, " n"]]) -> Float[Array, " n"]:
            numbers: Any = model.apply(params, pair[0][None], pair[1][None])
            return numbers[0]

        return jax.lax.map(one, (bits, truth), batch_size=chunk)

    clean = outputs(params)
    loss = jnp.mean(jnp.square(clean - targets))
    radius = asked.epsilon * math.sqrt(num_parameters(params))

    zeros = jax.tree.map(jnp.zeros_like, params)

    def draw(number: Int[Array, ""]) -> dict[str, Array]:
        xi = weight_noise.directions(purposes[1], number, params)
        direction = weight_noise.perturb(Gaussian(sigma=1.0), xi, zeros, selected)
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in direction))

        def scaled(scale: Float[Array, ""]) -> dict[str, Array]:
            moved = weight_noise.with_weights(zeros, selected, [scale * d for d in direction])
            noisy = outputs(jax.tree.map(jnp.add, params, moved))
            change = 4 * jnp.square(noisy - clean)
            return {
                "change": jnp.mean(change),
                "last": jnp.mean(change[:, -1]),
                "increase": 4 * (jnp.mean(jnp.square(noisy - targets)) - loss),
            }

        # One program for both noises: the model is compiled once for them.
        found = jax.lax.map(scaled, jnp.stack([radius / norm, jnp.full_like(norm, asked.epsilon)]))
        sphere, gaussian = (jax.tree.map(lambda of, i=i: of[i], found) for i in (0, 1))
        return {**sphere, "increase": gaussian["increase"]}

    draws = jax.lax.map(draw, jnp.arange(asked.num_directions))
    written = jax.lax.map(lambda x: written_by(model, params, x[None])[0], bits, batch_size=chunk)
    right = written == truth
    return {
        "loss": loss,
        **{name: jnp.mean(values) for name, values in draws.items()},
        "strings": jnp.mean(jnp.all(right, axis=1).astype(jnp.float32)),
        "places": jnp.mean(right.astype(jnp.float32)),
        "places_forced": jnp.mean(((clean > 0.5) == (truth == 1)).astype(jnp.float32)),
    }
