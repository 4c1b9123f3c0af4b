"""Tests of jaxsens.core.compiling."""

import jax
import jax.numpy as jnp
import pytest

from jaxsens.core.compiling import QuicklyCompiled


@pytest.mark.parametrize(
    ("flags", "platform", "is_quick"),
    [
        ("", "cpu", True),
        ("--xla_backend_optimization_level=3", "cpu", False),
        ("", "gpu", False),
    ],
)
def test_only_a_cpu_takes_less_effort_unless_flags_say_how_much(
    monkeypatch, flags, platform, is_quick
):
    jax.devices()  # XLA has read the flags of the tests
    program = QuicklyCompiled(lambda power, x: jnp.sum(x**power), static_argnums=(0,))
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    assert float(program(3, jnp.arange(3.0))) == 9
    assert program.eval_shape(3, jnp.arange(3.0)).shape == ()
    assert (program._quick._cache_size(), program._thorough._cache_size()) == (
        (1, 0) if is_quick else (0, 1)
    )
