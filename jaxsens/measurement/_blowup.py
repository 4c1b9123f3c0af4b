"""Layer-norm blow-up: how much the layer norms of a model magnify what goes into them.

For the vector Y of position i before layer norm k, with variance σ²(Y) over its d entries,

    N_i = 1 / √(σ²(Y_i) + ε)      τ_k = max_i (1 + N_i)      Blowup(x) = Π_k τ_k

(Hahn & Rofin, *Why are Sensitive Functions Hard for Transformers?*): a transformer with bounded
weights can only be sensitive where a layer norm divides by little. The code released with the paper
takes Π_k max_i 1/std(Y_i), with the unbiased standard deviation and neither 1 nor ε; that is
`kind="released"`.

Assumption: every layer norm of the model counts. The theory has one per layer, the models two; a
`select` on the layers' names takes fewer. Norms that are not `flax.linen.LayerNorm`, such as one
written out by hand, cannot be found; a model without any other is refused. Positions that a model
does not compute are not in the maximum: `BitTransformer` computes those of its last layer that it
does not read only with `every_position=True`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from jaxsens.measurement.layer_norm_gains import Kind, factor_of, gains_of


@dataclass(frozen=True)
class Blowup:
    """How much each layer norm magnifies, for every example.

    Attributes:
      gains: by the layer norm's name, N_i of every example and position, (n, T_k), or 1/std_i for
        the released kind. A norm of vectors without positions has T_k = 1.
      kind: which of the two.

    >>> found = Blowup({"norm": np.array([[1.0, 3.0]])}, "definition")
    >>> found.per_example.tolist()  # 1 + the larger of both positions' gains
    [4.0]
    """

    gains: dict[str, Float[np.ndarray, "n _"]]
    kind: Kind

    @property
    def per_layer(self) -> dict[str, Float[np.ndarray, " n"]]:
        """τ_k of every example."""
        return {name: factor_of(gain, self.kind) for name, gain in self.gains.items()}

    @property
    def per_example(self) -> Float[np.ndarray, " n"]:
        """The product over all layer norms."""
        return np.prod(list(self.per_layer.values()), axis=0)

    @property
    def mean(self) -> float:
        """The mean over examples."""
        return float(self.per_example.mean())


def blowup(
    model: Any,
    variables: Any,
    x: Any,
    *args: Any,
    kind: Kind = "definition",
    select: Callable[[str], bool] = lambda name: True,
    **kwargs: Any,
) -> Blowup:
    """Layer-norm blow-up of any Flax model, Π_k max_i (1 + 1/√(σ²(Y_i) + ε)).

    The layer norms are watched while the model runs; the model itself is not changed.

    Args:
      model: a `flax.linen` module with layer norms.
      variables: its variables.
      x: inputs, (n, …).
      *args: what else the model takes.
      kind: "definition", or "released" for the product of max_i 1/std_i.
      select: whether a layer norm of that name, such as "layer_0/norm_attention", counts.
      **kwargs: what else the model takes, `method` included.

    Returns:
      The gains of every layer norm, by its name.

    Raises:
      ValueError: the model has no layer norm that counts.

    >>> import flax.linen as nn
    >>> import jax.numpy as jnp
    >>> x = jnp.array([[1.0, -1.0], [0.1, -0.1]])
    >>> norm = nn.LayerNorm(epsilon=0.0)
    >>> found = blowup(norm, norm.init(jax.random.key(0), x), x)
    >>> found.per_example.round(3).tolist()
    [2.0, 11.0]
    """
    if kind not in ("definition", "released"):
        raise ValueError(f'kind must be "definition" or "released"; got {kind!r}')
    gains = jax.device_get(gains_of(model, variables, x, *args, kind=kind, **kwargs))
    chosen = {name: gain for name, gain in gains.items() if select(name)}
    if not chosen:
        raise ValueError(
            f"{type(model).__name__} has no flax.linen.LayerNorm that counts; found "
            f"{', '.join(gains) or 'none'}"
        )
    return Blowup(chosen, kind)
