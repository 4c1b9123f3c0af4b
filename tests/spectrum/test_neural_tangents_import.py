"""neural-tangents imports on today's JAX, leaves it as it was, and is optional."""

import subprocess
import sys
import textwrap

import pytest

from jaxsens.spectrum import neural_tangents_import as shim


def run(code):
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_jax_is_left_as_before():
    pytest.importorskip("frozendict")
    out = run(
        """
        import sys, jax, jax.core, jax.extend.core, jax.interpreters.ad
        from jaxsens.spectrum import neural_tangents_import as shim

        def state():
            return [dict(vars(m)) for m in (jax.core, jax.interpreters.ad)]

        before, names = state(), set(vars(jax))
        stax = shim.stax()
        assert state() == before
        # Parts of JAX that were not imported yet are now, and nothing else.
        new = set(vars(jax)) - names
        assert all(sys.modules[f"jax.{name}"] is getattr(jax, name) for name in new), new
        assert "jax.util" not in sys.modules
        assert "neural_tangents.experimental" not in sys.modules
        assert not any(name.startswith("tensorflow.") for name in sys.modules)
        assert stax.Dense and stax.GlobalSelfAttention
        print("as before")
        """
    )
    assert out == "as before\n"


def test_without_it_everything_else_works():
    out = run(
        """
        import sys
        sys.modules["neural_tangents"] = None
        import numpy as np, jaxsens, jaxsens.boolean
        from jaxsens import spectrum
        assert spectrum.cube_kernels(spectrum.MLP(), 2)["ck"].shape == (4, 4)
        try:
            spectrum.cube_kernels(spectrum.MLP(), 2, backend="neural-tangents")
        except spectrum.NeuralTangentsMissingError as error:
            print(error)
        """
    )
    assert "pip install --no-deps neural-tangents==0.6.5" in out


def test_names_are_taken_back_also_when_the_import_fails(monkeypatch):
    import jax.core

    before = dict(vars(jax.core))

    def fail(name):
        assert jax.core.Jaxpr is not None
        raise ModuleNotFoundError(name)

    shim.stax.cache_clear()
    monkeypatch.setattr(shim.importlib, "import_module", fail)
    with pytest.raises(shim.NeuralTangentsMissingError, match="pip install --no-deps"):
        shim.stax()
    assert dict(vars(jax.core)) == before
