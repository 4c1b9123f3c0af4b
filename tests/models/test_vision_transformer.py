"""The seams of the vision transformers: the parts make the whole, and noise reaches one token."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens.models import ViTSimple, ViTSmall
from tests.helpers.weights import weights_of

SIZE = {"depth": 2, "heads": 2, "hidden": 12, "width": 8, "head_dim": 4}
MODELS = {
    "ViT-small": ViTSmall(3, 2, **SIZE),
    "without shifts": ViTSmall(3, 2, **SIZE, shifts=False),
    "ViT-simple": ViTSimple(3, 2, **SIZE),
}
IMAGES = np.random.default_rng(0).normal(size=(3, 6, 6, 2)).astype(np.float32)


@pytest.fixture(scope="module", params=MODELS)
def trained(request):
    """A model, its weights and its logits."""
    model = MODELS[request.param]
    variables = weights_of(model, IMAGES)
    return model, variables, np.asarray(jax.jit(model.apply)(variables, IMAGES))


def test_the_parts_make_the_whole(trained):
    model, variables, logits = trained

    @jax.jit
    def by_parts(x):
        rows = model.patch_rows(x)
        e = model.apply(variables, x, method="embed")
        from_rows = model.apply(variables, rows, method="from_patch_rows")
        return rows, e, from_rows, model.apply(variables, e, method="from_embeddings")

    rows, e, from_rows, from_embeddings = by_parts(IMAGES)
    assert rows.shape[:2] == (3, 9)
    assert e.shape == (3, 9, 8)
    np.testing.assert_allclose(from_rows, logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(from_embeddings, logits, rtol=1e-5, atol=1e-6)


def test_patches_of_an_oblong_image_lie_as_the_layout_says():
    model = MODELS["ViT-simple"]  # its positions are made of rows and columns
    oblong = jnp.asarray(IMAGES[:, :4])
    variables = weights_of(model, oblong)
    logits = jax.jit(model.apply)(variables, oblong)
    rows = model.patch_rows(oblong)
    with pytest.raises(ValueError, match=r"6 patches fill no square; .* layout=\(rows, columns\)"):
        model.apply(variables, rows, method="from_patch_rows")
    found = model.apply(variables, rows, layout=(2, 3), method="from_patch_rows")
    np.testing.assert_allclose(found, logits, rtol=1e-5, atol=1e-6)


def test_noise_on_one_patch_reaches_the_rows_that_look_at_it(trained):
    model, _, _ = trained
    noisy = IMAGES.copy()
    noisy[:, 2:4, 2:4] += 1.0  # the middle one of nine patches
    rows, changed = (np.asarray(model.patch_rows(jnp.asarray(x))) for x in (IMAGES, noisy))
    reached = (changed != rows).any(axis=(0, 2))
    shifted = getattr(model, "shifts", False)
    assert np.flatnonzero(reached).tolist() == ([1, 3, 4, 5, 7] if shifted else [4])


def test_rows_are_linear_in_the_image(trained):
    model, _, _ = trained
    one, other = jnp.asarray(IMAGES), jnp.asarray(IMAGES[::-1])
    expected = model.patch_rows(one) + model.patch_rows(other)
    np.testing.assert_array_equal(model.patch_rows(one + other), expected)
