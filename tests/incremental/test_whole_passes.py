"""Where reuse cannot be had, whole passes are taken."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, PartitionSpec

from jaxsens import Gaussian, Patches, Perturbation, Tokens, explain, sensitivity
from jaxsens.incremental import table_size

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(6, 10, 4)).astype(np.float32)
W = jnp.asarray(GENERATOR.normal(size=(40, 5)), jnp.float32)
KERNEL = jnp.asarray(GENERATOR.normal(size=(3, 4, 4)), jnp.float32)
NOISE = Gaussian(sigma=3.0)


@dataclass(frozen=True)
class Overhanging:
    """Four windows of three rows on ten of them: the last would hang over the edge."""

    def layout(self, shape):
        return (4,)

    def window_shape(self, shape):
        return (3, *shape[1:])

    def start(self, position, shape):
        return (3 * position, 0)


def read(rows):
    return rows.reshape(len(rows), -1) @ W


def convolved(x):
    return lax.conv_general_dilated(
        x, KERNEL, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
    )


def by_callback(_, x):
    return read(jax.pure_callback(np.tanh, jax.ShapeDtypeStruct(x.shape, x.dtype), x))


def sharded(_, x):
    mesh = jax.make_mesh((1,), ("a",), axis_types=(AxisType.Auto,))
    everywhere = PartitionSpec()
    return read(jax.shard_map(jnp.tanh, mesh=mesh, in_specs=everywhere, out_specs=everywhere)(x))


def measured(f, incremental, grid=None, num_samples=5, **options):
    perturbation = Perturbation(grid or Tokens(), NOISE)
    return sensitivity(
        f,
        (),
        X,
        perturbation,
        num_samples,
        key=jax.random.key(0),
        incremental=incremental,
        devices=jax.local_devices()[:1],
        **options,
    )


@pytest.mark.parametrize(
    ("f", "grid", "reused"),
    [
        pytest.param(lambda _, x: read(jnp.tanh(x)), Overhanging(), True, id="overhanging"),
        pytest.param(sharded, None, True, id="shard_map"),
        pytest.param(lambda _, x: jnp.ones((len(x), 5)), None, True, id="constant"),
        pytest.param(
            lambda _, x: read(jnp.tanh(convolved(x) * jnp.inf)), None, False, id="infinite"
        ),
        pytest.param(
            lambda _, x: jax.nn.sigmoid(jnp.log(jax.nn.relu(x)).reshape(len(x), -1) @ jnp.abs(W)),
            None, False, id="minus infinity",
        ),
    ],
)  # fmt: skip
def test_the_same_flips_and_it_says_how(f, grid, reused):
    insisted = measured(f, True, grid)
    assert insisted.provenance.incremental == reused
    np.testing.assert_array_equal(insisted.totals, measured(f, False, grid).totals)


def by_callback_on_context(_, x, context):
    scale = jax.pure_callback(np.tanh, jax.ShapeDtypeStruct(context.shape, context.dtype), context)
    wide = jnp.tanh(x @ jnp.ones((4, 64)) * scale[:, None, None]) @ jnp.ones((64, 64))
    return jnp.tanh(wide).mean(axis=1)[:, :40] @ W


@pytest.mark.parametrize(
    ("f", "options"),
    [
        pytest.param(by_callback, {}, id="edits"),
        pytest.param(
            by_callback_on_context, {"context": np.ones(len(X), np.float32)}, id="examples"
        ),
    ],
)
def test_what_cannot_be_mapped_takes_whole_passes(f, options):
    with pytest.warns(UserWarning, match="cannot be mapped over edits"):
        automatic = measured(f, "auto", **options)
    assert not automatic.provenance.incremental
    np.testing.assert_array_equal(automatic.totals, measured(f, False, **options).totals)
    with pytest.raises(NotImplementedError, match="vmap"):
        measured(f, True, **options)


def test_tables_that_would_be_too_large_are_not_made():
    assert table_size(Tokens(), (512, 768)) == 512 * 512
    assert table_size(Patches(1), (32, 32, 3)) == 1024 * 1024
    images, weights = np.ones((1, 128, 128, 1), np.float32), jnp.ones((128 * 128, 2))
    perturbation = Perturbation(Patches(1), NOISE)
    mask = np.arange(128 * 128)[None] < 3

    def f(weights, x):
        return x.reshape(len(x), -1) @ weights

    found = sensitivity(f, weights, images, perturbation, 1, key=jax.random.key(0), mask=mask)
    assert not found.provenance.incremental


def test_outputs_that_are_not_finite_are_an_error_all_the_same():
    with pytest.raises(ValueError, match="not finite for example 0"):
        measured(lambda _, x: read(x) / 0, True)


def test_explain_passes_over_operations_without_results():
    def f(_, x):
        jax.debug.callback(lambda value: None, x)
        return read(x)

    steps = explain(f, (), X, Perturbation(Tokens(), NOISE)).steps
    assert [step.name for step in steps] == ["reshape", "dot_general"]


def test_explain_tells_of_a_constant():
    found = explain(lambda _, x: jnp.ones((len(x), 5)), (), X, Perturbation(Tokens(), NOISE))
    assert "whole forward passes" in str(found)


def test_many_samples_are_cut():
    def f(_, x):
        return read(jnp.tanh(x))

    whole = measured(f, False, num_samples=301)
    # Room for a few edits at a time.
    cut = measured(f, True, num_samples=301, chunk_bytes=32_000)
    assert cut.provenance.incremental
    np.testing.assert_array_equal(whole.totals, cut.totals)
