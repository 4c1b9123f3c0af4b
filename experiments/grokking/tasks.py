"""What is learned with delay: addition modulo p by a transformer, sparse parity by an MLP.

A task makes the data of a lane (one training run), the first weights, the logits, and everything
that is measured on the way. Data and measures are pure and of one shape for all lanes, so that all
lanes train in one program.

A lane can be without a rule: labels are then drawn at random, for addition as a random commutative
table, which can be memorised like addition, mirrored pairs included, but not understood.

Sensitivity is measured on the training examples, in three ways for addition:

    authors    N(0, σ²) on both operands at once, after positions: their released code
    definition N(0, σ²) on one operand at a time, mean over both: Definition 4.3, "=" left out
    relative   either, with σ a multiple of the RMS of the number tokens' embedding
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from jaxsens import Bits, Flip, Perturbation
from jaxsens.models import MLP, BareTransformer

Params = Any
#: Arrays of one lane: "inputs" and "labels", training examples first, and what measures need.
Data = dict[str, Array]
Measured = dict[str, Float[Array, ""]]


@runtime_checkable
class Task(Protocol):
    """What a lane learns; hashable, so that it compiles once."""

    @property
    def num_train(self) -> int:
        """Training examples: the first ones of the data."""

    def data(self, seed: int, *, rule: bool) -> dict[str, np.ndarray]:
        """A lane's data; the same split for the same seed, with or without a rule."""

    def init(self, key: PRNGKeyArray) -> Params:
        """First weights."""

    def logits(self, params: Params, inputs: Shaped[Array, "n ..."]) -> Float[Array, "n C"]:
        """Logits of inputs."""

    def measures(self, params: Params, data: Data, key: PRNGKeyArray) -> Measured:
        """All that is recorded, but losses and accuracies."""


@dataclass(frozen=True)
class Addition:
    """a + b mod p from some of all p² pairs.

    Attributes:
      model: the transformer, with p + 1 tokens.
      train_share: share of the pairs that are trained on.
      sigma: standard deviation of the absolute noise.
      relative_sigma: that of the relative noise, in units of the embedding's RMS.
      num_draws: draws of the noise at an evaluation.
    """

    model: BareTransformer
    train_share: float
    sigma: float
    relative_sigma: float
    num_draws: int

    @property
    def p(self) -> int:
        """The modulus."""
        return self.model.vocab_size - 1

    @property
    def num_train(self) -> int:
        """Training pairs."""
        return int(self.train_share * self.p**2)

    def data(self, seed: int, *, rule: bool) -> dict[str, np.ndarray]:
        """All pairs in random order, their labels, and whether (b, a) is a training pair."""
        rng = np.random.default_rng(seed)
        a, b = np.divmod(rng.permutation(self.p**2), self.p)
        table = rng.integers(self.p, size=(self.p, self.p))
        labels = (a + b) % self.p if rule else table[np.minimum(a, b), np.maximum(a, b)]
        trained = np.zeros((self.p, self.p), bool)
        trained[a[: self.num_train], b[: self.num_train]] = True
        return {
            "inputs": np.stack([a, b], axis=1).astype(np.int32),
            "labels": labels.astype(np.int32),
            "mirrored": trained[b, a],
        }

    def init(self, key: PRNGKeyArray) -> Params:
        """The model's own."""
        return self.model.init(key, jnp.zeros((1, 3), jnp.int32))

    def logits(self, params: Params, inputs: Int[Array, "n 2"]) -> Float[Array, "n C"]:
        """Logits of pairs."""
        return _apply(self.model, params, *inputs.T, method="on_pairs")

    def measures(self, params: Params, data: Data, key: PRNGKeyArray) -> Measured:
        """Sensitivities, weight norm, the embedding's RMS and how few frequencies it has."""
        words = params["params"]["words"][: self.p]
        rms = jnp.sqrt(jnp.mean(words**2))
        train = data["inputs"][: self.num_train]
        absolute, relative = jnp.float32(self.sigma), jnp.float32(self.relative_sigma) * rms
        both, one = self._sensitivities(params, train, jnp.stack([absolute, relative]), key)
        test, mirrored = data["inputs"][self.num_train :], data["mirrored"][self.num_train :]
        right = jnp.argmax(self.logits(params, test), -1) == data["labels"][self.num_train :]
        return {
            "authors": both[0],
            "definition": one[0],
            "authors_relative": both[1],
            "definition_relative": one[1],
            "weight_norm": _norm(params),
            "embedding_rms": rms,
            "concentration": fourier_concentration(words),
            "mirror_share": jnp.mean(mirrored, dtype=jnp.float32),
            "mirrored_accuracy": jnp.mean(right, where=mirrored, dtype=jnp.float32),
            "new_accuracy": jnp.mean(right, where=~mirrored, dtype=jnp.float32),
        }

    def _sensitivities(
        self,
        params: Params,
        pairs: Int[Array, "n 2"],
        sigmas: Float[Array, " k"],
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """Share of changed predictions for each σ: noise on both operands, and on one at a time."""

        def call(method: str, *args: Array) -> Any:
            return _apply(self.model, params, *args, method=method)

        attended = call("attended_pairs", pairs[:, 0], pairs[:, 1])
        clean = jnp.argmax(call("read", attended), axis=-1)
        matrix, _ = call("operand_map")
        which = jnp.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
        scales = (sigmas[:, None, None] * which[None]).reshape(-1, 2)

        def one_draw(key: PRNGKeyArray) -> Float[Array, " variants"]:
            noise = jax.random.normal(key, (pairs.size * self.model.width,))
            # The map to scores and values is affine: one product serves every σ and every operand.
            response = noise.reshape(*pairs.shape, self.model.width) @ matrix

            def changed(scale: Float[Array, " 2"]) -> Float[Array, ""]:
                noisy = attended.at[:, :2].add(scale[None, :, None] * response)
                return jnp.mean(jnp.argmax(call("read", noisy), -1) != clean, dtype=jnp.float32)

            return jax.lax.map(changed, scales)

        draws = jax.lax.map(one_draw, jax.random.split(key, self.num_draws))
        rates = draws.mean(axis=0).reshape(len(sigmas), 3)
        return rates[:, 0], rates[:, 1:].mean(axis=1)


@dataclass(frozen=True)
class Parity:
    """The parity of k of T random bits in {−1, +1}, from few examples.

    Attributes:
      bits: T.
      degree: k.
      num_train: training examples.
      num_test: test examples.
      hidden: units of the MLP's hidden layer.
    """

    bits: int
    degree: int
    num_train: int
    num_test: int
    hidden: int

    @property
    def model(self) -> MLP:
        """One hidden layer of ReLUs."""
        return MLP(2, (self.hidden,), nn.relu)

    def data(self, seed: int, *, rule: bool) -> dict[str, np.ndarray]:
        """Random bits, labels, and which bits the parity is of."""
        rng = np.random.default_rng(seed)
        relevant = np.zeros(self.bits, bool)
        relevant[rng.choice(self.bits, self.degree, replace=False)] = True
        x = rng.choice([-1.0, 1.0], (self.num_train + self.num_test, self.bits))
        labels = x[:, relevant].prod(axis=1) > 0 if rule else rng.integers(2, size=len(x))
        return {
            "inputs": x.astype(np.float32),
            "labels": labels.astype(np.int32),
            "relevant": relevant,
        }

    def init(self, key: PRNGKeyArray) -> Params:
        """The model's own."""
        return self.model.init(key, jnp.zeros((1, self.bits)))

    def logits(self, params: Params, inputs: Float[Array, "n T"]) -> Float[Array, "n C"]:
        """Logits of bits."""
        return _apply(self.model, params, inputs)

    def measures(self, params: Params, data: Data, key: PRNGKeyArray) -> Measured:
        """Sensitivity to one flipped bit, exact; weight norm; weight on the relevant bits."""
        power = jnp.sum(params["params"]["Dense_0"]["kernel"] ** 2, axis=1)
        return {
            "definition": self._sensitivity(params, data["inputs"][: self.num_train], key),
            "weight_norm": _norm(params),
            "concentration": jnp.sum(power, where=data["relevant"]) / jnp.sum(power),
        }

    def _sensitivity(
        self, params: Params, x: Float[Array, "n T"], key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """Exact: every bit of every example; a flip makes nothing of its key."""
        flip = Perturbation(Bits(), Flip())
        clean = jnp.argmax(self.logits(params, x), axis=-1)

        def changed(position: Int[Array, ""]) -> Float[Array, ""]:
            edited = jax.vmap(lambda row: flip(key, row, position))(x)
            return jnp.mean(jnp.argmax(self.logits(params, edited), -1) != clean, dtype=jnp.float32)

        return jax.lax.map(changed, jnp.arange(self.bits)).mean()


def _apply(model: nn.Module, params: Params, *args: Array, method: str = "__call__") -> Any:
    return model.apply(params, *args, method=method)


def _norm(params: Params) -> Float[Array, ""]:
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)))


def fourier_concentration(table: Float[Array, "p d"]) -> Float[Array, ""]:
    """Σ_k P_k² / (Σ_k P_k)², P_k the power of frequency k ≥ 1 of the DFT along Z_p.

    1 over the number of frequencies for equal powers, 1 for a single frequency.

    >>> waves = jnp.cos(2 * jnp.pi * 3 / 11 * jnp.arange(11.0))[:, None]
    >>> round(float(fourier_concentration(waves)), 4)
    1.0
    """
    spectrum = jnp.fft.rfft(table, axis=0)[1:]
    power = jnp.sum(jnp.real(spectrum) ** 2 + jnp.imag(spectrum) ** 2, axis=1)
    return jnp.sum(power**2) / jnp.sum(power) ** 2
