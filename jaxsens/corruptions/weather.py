"""Snow and fog.

Snow: specks of thresholded Gaussian noise, enlarged, blurred along a steep line, added once as they
are and once turned by 180°, over an image that is drawn towards a bright grey. Its grain is
quantised to bytes before and after the blur, as the official pipeline does when it passes the grain
through PNG.

Fog: a plasma fractal (diamond-square on a torus), scaled to [0, 1], is added, and the sum rescaled
so that the brightest pixel of the image could stay the brightest. The offsets of the official
fractal are wibble·Uniform(-wibble, wibble), so one level's amplitude is that of the level before
divided by decay², not by decay.

Both follow the official formulas; only the random numbers are others.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxsens.corruptions import operators
from jaxsens.corruptions.base import Corruption, floor_levels, normal, round_levels, uniform
from jaxsens.corruptions.motion import motion_blur

_LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Snow(Corruption):
    """Falling snow.

    Attributes:
      loc: mean of the noise that becomes specks.
      scale: its standard deviation.
      zoom: enlargement of the specks.
      threshold: noise below it is no snow.
      radius: of the motion blur.
      sigma: of the motion blur.
      mix: weight of the image against its whitened version.
    """

    loc: float
    scale: float
    zoom: float
    threshold: float
    radius: float
    sigma: float
    mix: float

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """The whitened image and two layers of snow."""
        flakes = self.layer(key, image.shape[0], image.shape[1])
        grey = sum(w * image[..., c : c + 1] for c, w in enumerate(_LUMA))
        white = jnp.maximum(image, grey * 1.5 + 0.5)
        return self.mix * image + (1 - self.mix) * white + flakes + flakes[::-1, ::-1]

    def layer(self, key: PRNGKeyArray, height: int, width: int) -> Float[Array, "H W 1"]:
        """One layer of snow in [0, 1]; its line has an angle uniform in [-135°, -45°]."""
        noise_key, angle_key = jax.random.split(key)
        noise = self.loc + self.scale * normal(noise_key, height, width, 1)
        rows, columns = (operators.clipped_zoom(n, self.zoom) for n in (height, width))
        noise = operators.separable(rows, columns, noise)
        specks = floor_levels(jnp.where(noise < self.threshold, 0.0, noise)) / 255
        angle = -135 + 90 * uniform(angle_key)
        return round_levels(255 * motion_blur(specks, self.radius, self.sigma, angle)) / 255


@dataclass(frozen=True)
class Fog(Corruption):
    """Fog of strength `scale`; the larger `decay`, the smoother."""

    scale: float
    decay: float

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """(X + scale·plasma)·max / (max + scale), max the brightest value of the image."""
        height, width, _ = image.shape
        side = 1 << (max(height, width) - 1).bit_length()
        plasma = plasma_fractal(key, side, self.decay)[:height, :width, None]
        brightest = image.max()
        return (image + self.scale * plasma) * (brightest / (brightest + self.scale))


def plasma_fractal(key: PRNGKeyArray, side: int, decay: float) -> Float[Array, "side side"]:
    """Diamond-square noise on a torus, with minimum 0 and maximum 1.

    From a grid of known points the centres of the squares are the mean of four corners plus an
    offset, then the middles of the edges are the mean of four neighbours plus an offset; that
    doubles the grid. Offsets of level l are uniform in ±decay^(-2l).

    Args:
      key: the draw's key.
      side: of the map, a power of two from 2.
      decay: of the offsets from level to level.
    """
    # One draw for all levels: level l has 3·4^l new points, together side² - 1.
    u = 2 * uniform(key, side * side - 1) - 1
    points = jnp.zeros((1, 1))
    amplitude = 1.0
    while (n := len(points)) < side:
        new = u[n * n - 1 : 4 * n * n - 1].reshape(3, n, n)
        centres, across, down = (amplitude * new[i] for i in range(3))
        rows = points + jnp.roll(points, -1, axis=0)
        centres += (rows + jnp.roll(rows, -1, axis=1)) / 4
        across += _mean_of_four(centres, points, axis=0)
        down += _mean_of_four(centres, points, axis=1)
        points = _interleave(
            _interleave(points, across, axis=1), _interleave(down, centres, axis=1), axis=0
        )
        # The barrier keeps XLA from fusing all levels into one kernel, which takes 7 s to compile.
        points = jax.lax.optimization_barrier(points)
        amplitude /= decay**2
    points = points - points.min()
    return points / points.max()


def _mean_of_four(centres: Array, points: Array, *, axis: int) -> Array:
    # An edge has a centre on either side, along one axis, and a known point at either end, along
    # the other.
    beside = centres + jnp.roll(centres, 1, axis=axis)
    ends = points + jnp.roll(points, -1, axis=1 - axis)
    return (beside + ends) / 4


def _interleave(even: Array, odd: Array, *, axis: int) -> Array:
    both = jnp.stack([even, odd], axis=axis + 1)
    shape = tuple(2 * n if i == axis else n for i, n in enumerate(even.shape))
    return both.reshape(shape)
