"""The byte budget holds: XLA's own count of a call's intermediates stays below it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import jaxsens_methods
from benchmarks.models import SETTINGS
from jaxsens import Gaussian, Perturbation, Tokens, sensitivity
from jaxsens.measurement import exhaustive
from jaxsens.measurement.batching import DEFAULT_BYTES

FAST = {"mlp", "cnn"}


class Looked(Exception):
    """Raised in place of running what was compiled."""


@pytest.fixture
def temporaries(monkeypatch):
    """`temporaries(apply_fn, params, x, …)`: bytes that the call of a measurement would take."""
    jitted, found = exhaustive.chunk_totals, []

    def look(*arguments):
        found.append(jitted.lower(*arguments).compile().memory_analysis().temp_size_in_bytes)
        raise Looked

    look.eval_shape = jitted.eval_shape
    monkeypatch.setattr(exhaustive, "chunk_totals", look)

    def measure(*arguments, **options):
        with pytest.raises(Looked):
            sensitivity(
                *arguments, key=jax.random.key(0), devices=jax.local_devices()[:1], **options
            )
        return found.pop()

    return measure


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize(
    "name",
    [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in SETTINGS],
)
def test_every_benchmarked_model_stays_below_the_default(name, incremental, temporaries):
    setting = SETTINGS[name]
    variables = jaxsens_methods.variables(jaxsens_methods.random_weights(setting, 0))
    # Many examples, so that as many go together as ever do.
    x = np.zeros((64, *setting.shape), np.float32)
    context = next(iter(jaxsens_methods.masks(setting, x)), None)
    taken = temporaries(
        jaxsens_methods.apply_function(setting), variables, x,
        jaxsens_methods.perturbation(setting), setting.num_samples, context=context,
        incremental=incremental,
    )  # fmt: skip
    assert 0 < taken <= DEFAULT_BYTES["cpu"]


@pytest.mark.parametrize(
    ("num_samples", "num_examples"), [(5_000, 6), pytest.param(5, 600, marks=pytest.mark.slow)]
)
def test_neither_many_samples_nor_many_examples_break_a_small_budget(
    num_samples, num_examples, temporaries
):
    generator = np.random.default_rng(0)
    kernel = jnp.asarray(generator.normal(size=(3, 4, 4)), jnp.float32)
    head = jnp.asarray(generator.normal(size=(40, 5)), jnp.float32)

    def deep(_, x):
        for _ in range(6):
            wide = jnp.tile(x, (1, 40, 1))
            x = jax.lax.conv_general_dilated(
                wide, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
            )
            x = jnp.tanh(x[:, ::40])
        return x.reshape(len(x), -1) @ head

    x = generator.normal(size=(num_examples, 10, 4)).astype(np.float32)
    noise = Perturbation(Tokens(), Gaussian(sigma=3.0))
    budget = 1_600_000
    taken = temporaries(deep, (), x, noise, num_samples, incremental=True, chunk_bytes=budget)
    assert 0 < taken <= budget
