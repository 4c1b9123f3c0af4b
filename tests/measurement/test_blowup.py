"""Layer-norm blow-up: by hand, invariant to constants, for any Flax model."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import blowup
from jaxsens.models import BitTransformer
from tests.helpers.weights import weights_of

KEY = jax.random.key(0)


class Shifted(nn.Module):
    """Two norms, a constant added before each."""

    shift: float

    @nn.compact
    def __call__(self, x):
        x = nn.LayerNorm(use_fast_variance=False)(3 * x + self.shift)
        return nn.LayerNorm(use_fast_variance=False)(nn.Dense(5)(x) + self.shift).mean(axis=(1, 2))


def test_by_hand():
    x = jnp.array([[[1.0, 3.0], [0.0, 1.0]], [[2.0, 2.5], [4.0, 0.0]]])
    norm = nn.LayerNorm(epsilon=0.25)
    variables = weights_of(norm, x)
    found = blowup(norm, variables, x)
    gains = 1 / np.sqrt(x.var(axis=-1) + 0.25)
    np.testing.assert_allclose(found.gains["LayerNorm"], gains, rtol=1e-6)
    np.testing.assert_allclose(found.per_example, 1 + gains.max(axis=1), rtol=1e-6)
    released = blowup(norm, variables, x, kind="released")
    by_hand = (1 / x.std(axis=-1, ddof=1)).max(axis=1)
    np.testing.assert_allclose(released.per_example, by_hand, rtol=1e-6)
    assert released.mean == pytest.approx(by_hand.mean())


@pytest.mark.parametrize("kind", ["definition", "released"])
def test_a_constant_before_the_norm_changes_nothing(kind):
    x = jax.random.normal(KEY, (3, 4, 6))
    variables = weights_of(Shifted(0.0), x)
    plain, shifted = (blowup(Shifted(s), variables, x, kind=kind) for s in (0.0, 7.0))
    assert len(plain.gains) == 2
    np.testing.assert_allclose(plain.per_example, shifted.per_example, rtol=1e-4)


def test_every_norm_of_a_transformer_is_a_factor():
    bits = jax.random.bernoulli(KEY, shape=(3, 5)).astype(int)
    model = BitTransformer(5, 8)
    variables = weights_of(model, bits)
    found = blowup(model, variables, bits)
    assert {name: gain.shape for name, gain in found.gains.items()} == {
        "layer_0/norm_attention": (3, 5),
        "layer_0/norm_feed_forward": (3, 5),
        "layer_1/norm_attention": (3, 1),
        "layer_1/norm_feed_forward": (3, 1),
    }
    np.testing.assert_allclose(found.per_example, np.prod([*found.per_layer.values()], axis=0))
    one = blowup(model, variables, bits, select=lambda name: name.endswith("norm_attention"))
    assert len(one.gains) == 2
    # The scale of a norm is seen by the norms after it, and by none before.
    scaled = jax.tree.map(lambda leaf: leaf, variables)
    scaled["params"]["layer_1"]["norm_attention"]["scale"] *= 2.0
    other = blowup(model, scaled, bits)
    for name in found.gains:
        same = np.array_equal(found.gains[name], other.gains[name])
        assert same == (name != "layer_1/norm_feed_forward"), name


def test_a_norm_that_is_used_twice_is_two_factors():
    class Twice(nn.Module):
        @nn.compact
        def __call__(self, x):
            norm = nn.LayerNorm()
            return norm(2 * norm(x)).sum(axis=-1)

    x = jnp.array([[1.0, 2.0, 4.0]])
    found = blowup(Twice(), weights_of(Twice(), x), x)
    assert list(found.gains) == ["LayerNorm_0", "LayerNorm_0 (2)"]


def test_models_without_norms_and_unknown_kinds_are_refused(types_unchecked):
    dense, x = nn.Dense(3), jnp.ones((1, 2))
    variables = weights_of(dense, x)
    with pytest.raises(
        ValueError, match=r"Dense has no flax.linen.LayerNorm that counts; found none"
    ):
        blowup(dense, variables, x)
    norm = nn.LayerNorm()
    with pytest.raises(ValueError, match=r'kind must be "definition" or "released"'):
        blowup(norm, weights_of(norm, x), x, kind="proxy")
    with pytest.raises(ValueError, match="found LayerNorm"):
        blowup(norm, weights_of(norm, x), x, select=lambda name: False)
