"""What every adapter must keep: the framework's own logits, and flips with and without reuse."""

import jax
import numpy as np

import jaxsens

KEY = jax.random.key(0)


def check_same(adapted, x, perturbation, expected, *, context=None, num_samples=2, **options):
    """Fails unless logits agree to 1e-4 and reuse gives the flips of whole passes.

    Args:
      adapted: what an adapter gave.
      x: the inputs.
      perturbation: the window edit.
      expected: the framework's own logits.
      context: what the model takes beside x.
      num_samples: S.
      **options: for `sensitivity`.

    Returns:
      The estimate by whole passes.
    """
    apply_fn, params = adapted
    inputs = [np.asarray(x)] if context is None else [np.asarray(x), context]
    found = jax.jit(apply_fn)(params, *inputs)
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)
    plain, reused = (
        jaxsens.sensitivity(
            adapted, x, perturbation, num_samples, key=KEY, context=context, incremental=bit,
            **options,
        )
        for bit in (False, True)
    )  # fmt: skip
    assert reused.provenance.incremental
    assert reused.provenance.self_check == "passed"
    np.testing.assert_array_equal(plain.totals, reused.totals)
    return plain
