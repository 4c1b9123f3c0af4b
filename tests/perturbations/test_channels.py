"""Patches of images with channels first: the same windows, and reuse knows where they are."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens import Gaussian, OverlappingPatches, Patches, Perturbation

KEY = jax.random.key(0)


@pytest.mark.parametrize("kind", [Patches, OverlappingPatches])
def test_windows_are_those_of_the_image_with_channels_last(kind):
    last, first = kind(2), kind(2, channels="first")
    shape, moved = (4, 6, 3), (3, 4, 6)
    assert last.layout(shape) == first.layout(moved)
    assert first.window_shape(moved) == (3, 2, 2)
    for position in range(np.prod(last.layout(shape))):
        row, column, _ = last.start(position, shape)
        assert first.start(position, moved) == (0, row, column)


def test_a_grid_says_where_channels_are_only_if_they_come_first():
    assert repr(Patches(4)) == "Patches(size=4)"
    assert repr(OverlappingPatches(4)) == "OverlappingPatches(size=4)"
    assert repr(Patches(4, channels="first")) == "Patches(size=4, channels='first')"
    assert Patches(4) != Patches(4, channels="first")
    assert Patches(4) == Patches(4, channels="last")


@pytest.mark.parametrize(
    ("grid", "shape", "line"),
    [
        (Patches(4), (3, 8, 8), r"side 3; choose one of 1; if \(3, 8, 8\) is \(C, H, W\), give P"),
        (Patches(4, "first"), (8, 8, 3), r"side 3; choose one of 1; if .* is \(H, W, C\), leave"),
        (Patches(4, "first"), (8, 8), r"Patches needs images \(C, H, W\); got an example of shape"),
        (OverlappingPatches(4), (3, 8, 8), r"is \(C, H, W\), give OverlappingPatches channels='f"),
        (OverlappingPatches(4, "first"), (8, 8, 3), r"is \(H, W, C\), leave channels='first' out"),
    ],
)
def test_channels_at_the_other_end_are_noticed(grid, shape, line):
    with pytest.raises(ValueError, match=line) as error:
        grid.layout(shape)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("channels", ["middle", None, 1])
def test_channels_are_first_or_last(channels, types_unchecked):
    with pytest.raises(ValueError, match="Patches needs channels='last'"):
        Patches(4, channels=channels)


class Net(nn.Module):
    channels_first: bool

    @nn.compact
    def __call__(self, x):
        x = jnp.moveaxis(x, 1, 3) if self.channels_first else x
        x = nn.relu(nn.Conv(6, (3, 3))(x))
        return nn.Dense(3)(nn.relu(nn.Conv(6, (3, 3), (2, 2))(x)).reshape(len(x), -1))


def brighter(key, window):
    """Without noise, so that both orders are edited alike."""
    return window + 3.0


def test_flips_are_those_of_channels_last_with_and_without_reuse():
    x = np.random.default_rng(0).normal(size=(6, 8, 8, 3)).astype(np.float32)
    moved = x.transpose(0, 3, 1, 2)
    variables = Net(channels_first=False).init(KEY, jnp.asarray(x))

    def totals(channels, edit, incremental):
        model = Net(channels == "first")
        noise = Perturbation(Patches(2, channels=channels), edit)
        inputs = moved if channels == "first" else x
        est = jaxsens.sensitivity(
            model.apply, variables, inputs, noise, 1, key=KEY, incremental=incremental
        )
        assert est.provenance.incremental == incremental
        return est.totals

    expected = totals("last", brighter, False)
    assert 0 < expected.sum() < expected.size
    np.testing.assert_array_equal(totals("first", brighter, True), expected)
    noise = Gaussian(sigma=2.0)
    np.testing.assert_array_equal(totals("first", noise, True), totals("first", noise, False))


def test_reuse_saves_as_much_as_with_channels_last():
    x = jnp.zeros((1, 16, 16, 3))
    variables = Net(channels_first=False).init(KEY, x)
    gains = []
    for channels, shape in (("last", x.shape), ("first", (1, 3, 16, 16))):
        noise = Perturbation(Patches(2, channels=channels), Gaussian(sigma=1.0))
        found = jaxsens.explain(
            Net(channels == "first").apply, variables, jax.ShapeDtypeStruct(shape, x.dtype), noise
        )
        gains.append(found.plain / found.incremental)
    assert gains[1] == pytest.approx(gains[0], rel=0.02)
    assert gains[1] > 3
