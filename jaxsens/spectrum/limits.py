"""The same kernels by neural-tangents' `stax`, and whole kernel matrices on the cube.

`stax` and `jaxsens.spectrum.recursion` share no code: that they agree is evidence for both.
"""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsens.boolean.points import cube
from jaxsens.core import memory
from jaxsens.spectrum import recursion
from jaxsens.spectrum.architectures import MLP, Activation, Architecture, KernelKind, Transformer
from jaxsens.spectrum.neural_tangents_import import stax

Backend = Literal["recursion", "neural-tangents"]
Precision = Literal["float32", "float64"]

KERNEL_KINDS: tuple[KernelKind, KernelKind] = ("ck", "ntk")
#: Bytes that the covariances between tokens of a block of rows may take.
BLOCK_BYTES = 2**27
# Copies of them that are alive at the same time.
_COPIES = 6


@contextlib.contextmanager
def in_precision(precision: Precision) -> Iterator[Any]:
    """Computes in float32 or float64 inside, whatever the program's setting; gives the dtype.

    >>> with in_precision("float64") as dtype:
    ...     jnp.ones(2, dtype).dtype
    dtype('float64')
    """
    if precision not in ("float32", "float64"):
        raise ValueError(f"precision must be 'float32' or 'float64'; got {precision!r}")
    with jax.enable_x64(precision == "float64"), jax.default_matmul_precision("highest"):
        yield jnp.dtype(precision)


def kernels(
    architecture: Architecture,
    x: Float[Array | np.ndarray, "n d"],
    y: Float[Array | np.ndarray, "m d"],
    *,
    backend: Backend = "recursion",
) -> dict[KernelKind, Float[Array | np.ndarray, "n m"]]:
    """CK and NTK of an infinitely wide network between points of the cube.

    Args:
      architecture: the network.
      x: points, as JAX or NumPy arrays.
      y: points, likewise.
      backend: "recursion" (written here) or "neural-tangents".

    Returns:
      {"ck": (n, m), "ntk": (n, m)}, of the points' type.

    Raises:
      ValueError: the points do not fit the architecture, or the backend is unknown.
      NeuralTangentsMissingError: it is asked for and not installed.

    >>> x = np.array([[1.0, 1.0], [1.0, -1.0]])
    >>> kernels(MLP(depth=1, activation="relu"), x, x)["ck"].round(3).tolist()
    [[2.0, 0.637], [0.637, 2.0]]
    """
    if backend == "recursion":
        return recursion.kernels(architecture, x, y)
    if backend != "neural-tangents":
        raise ValueError(f"backend must be 'recursion' or 'neural-tangents'; got {backend!r}")
    x, y = jnp.asarray(x), jnp.asarray(y)
    if isinstance(architecture, Transformer):
        width = architecture.width(x.shape[1])
        x = x.reshape(len(x), architecture.tokens, width)
        y = y.reshape(len(y), architecture.tokens, width)
    # neural-tangents relies on promotion, which users (and the tests here) may have forbidden.
    promotion = jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard")
    with promotion[0], promotion[1], warnings.catch_warnings():
        # It says that it cannot verify what holds by construction here: branches are independent,
        # and attention with 1/width ties queries and keys.
        warnings.simplefilter("ignore", UserWarning)
        found = network(architecture)[2](x, y, ("nngp", "ntk"))
    return {"ck": found.nngp, "ntk": found.ntk}


def cube_kernels(
    architecture: Architecture,
    d: int,
    *,
    precision: Precision = "float64",
    backend: Backend = "recursion",
) -> dict[KernelKind, Float[np.ndarray, "N N"]]:
    """Both kernel matrices on the whole cube, N = 2^d, points in binary order.

    Args:
      architecture: the network.
      d: number of coordinates.
      precision: of the computation and of the result.
      backend: as in `kernels`.

    Returns:
      {"ck": (N, N), "ntk": (N, N)}.

    Raises:
      ValueError: the matrices do not fit into memory, with the bytes that they need.

    >>> cube_kernels(Transformer(tokens=1, embed=False), 2)["ck"][0].tolist()
    [1.0, 0.0, 0.0, -1.0]
    """
    num, itemsize = 2**d, np.dtype(precision).itemsize
    tokens = architecture.tokens if isinstance(architecture, Transformer) else 1
    if isinstance(architecture, Transformer):
        architecture.width(d)
    a_row = _COPIES * num * tokens**2 * itemsize
    block = max(1, min(num, BLOCK_BYTES * _COPIES // a_row))
    memory.require(
        2 * num**2 * itemsize + block * a_row, f"the kernel matrices of d={d}, tokens={tokens}"
    )
    whole = {kind: np.empty((num, num), precision) for kind in KERNEL_KINDS}
    with in_precision(precision) as dtype:
        # On NumPy arrays the recursion runs without compiling anything: there are hundreds of
        # kernels of different shapes, each needed once.
        x = np.asarray(cube(d, dtype=dtype))
        for start in range(0, num, block):
            rows = slice(start, start + block)
            for kind, values in kernels(architecture, x[rows], x, backend=backend).items():
                whole[kind][rows] = np.asarray(values)
    return whole


def profile_values(
    architecture: Architecture,
    d: int,
    *,
    precision: Precision = "float64",
    backend: Backend = "recursion",
) -> dict[KernelKind, Float[np.ndarray, " d_plus_1"]]:
    """Ψ(1 − 2r/d), r = 0 … d, of a kernel that is a function of ⟨x, y⟩ alone.

    Read off at x = (1, …, 1) and the y with its first r coordinates flipped, so that d = 128 takes
    d + 1 numbers and no 2^d. Whether the kernel is such a function must be known: see `checks`.

    Args:
      architecture: the network.
      d: number of coordinates.
      precision: of the computation and of the result.
      backend: as in `kernels`.

    Returns:
      {"ck": (d+1,), "ntk": (d+1,)}.

    >>> profile_values(Transformer(tokens=1, embed=False), 4)["ck"].tolist()
    [1.0, 0.125, 0.0, -0.125, -1.0]
    """
    with in_precision(precision) as dtype:
        y = (1 - 2 * np.tri(d + 1, d, -1)).astype(dtype)
        found = kernels(architecture, np.ones((1, d), dtype), y, backend=backend)
        return {kind: np.asarray(values)[0] for kind, values in found.items()}


def network(architecture: Architecture) -> tuple[Any, Any, Any]:
    """neural-tangents' (init_fn, apply_fn, kernel_fn) of an architecture.

    Its infinite-width kernel does not depend on the finite widths, which are 1 here.

    Raises:
      NeuralTangentsMissingError: neural-tangents is not installed.

    >>> len(network(MLP()))
    3
    """
    nt = stax()
    if isinstance(architecture, MLP):
        weight, bias = architecture.weight_variance**0.5, architecture.bias_variance**0.5
        dense = {"W_std": weight, "b_std": bias or None}
        hidden = [nt.Dense(1, **dense), _activation(architecture.activation)] * architecture.depth
        return nt.serial(*hidden, nt.Dense(1, **dense))
    blocks = [_block(architecture)] * architecture.depth
    embedding = [nt.Dense(1)] if architecture.embed else []
    readout = nt.Flatten() if architecture.readout == "flatten" else nt.GlobalAvgPool()
    return nt.serial(*embedding, *blocks, readout, nt.Dense(1))


def _block(architecture: Transformer) -> Any:
    nt = stax()
    positions = {
        "pos_emb_type": "SUM",
        "W_pos_emb_std": architecture.position_variance**0.5,
        "val_pos_emb": True,
    }
    attention = nt.GlobalSelfAttention(
        n_chan_out=1,
        n_chan_key=1,
        n_chan_val=1,
        n_heads=1,
        linear_scaling=architecture.scaling == "linear",
        attention_mechanism="IDENTITY",
        **(positions if architecture.position_variance else {}),
    )
    parts = [_branch(architecture, attention)]
    if architecture.activation is not None:
        mlp = nt.serial(nt.Dense(1), _activation(architecture.activation), nt.Dense(1))
        parts.append(_branch(architecture, mlp))
    return nt.serial(*parts)


def _branch(architecture: Transformer, layer: Any) -> Any:
    nt = stax()
    if architecture.layer_norm:
        layer = nt.serial(nt.LayerNorm(), layer)
    if architecture.residual:
        layer = nt.serial(nt.FanOut(2), nt.parallel(nt.Identity(), layer), nt.FanInSum())
    return layer


def _activation(name: Activation) -> Any:
    nt = stax()
    return {"relu": nt.Relu, "erf": nt.Erf, "gelu": nt.Gelu}[name]()
