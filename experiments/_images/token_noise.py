"""Noise that one token of a vision transformer alone sees, beside noise on the pixels of a patch.

The paper perturbs "tokens" and, of images, says that these are patches. ViT-small's tokeniser looks
at the image and at its four one-pixel shifts, so noise on the pixels of one patch also reaches the
tokens of the patches beside it. Three definitions, all with the same variance:

    patch       noise on the pixels of a patch, for every token that looks at them: any model
    own-token   the same noise, the same draws, but in the row of the patch's own token alone
    embedding   noise on the patch's token, after the patch embedding and before positions

For a transformer whose tokens see their own patch alone the first two are one.

Assumption: images are square, as a tokeniser's rows are laid out (`VisionTransformer`).
"""

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxsens import Gaussian, Perturbation, Tokens
from jaxsens.core import runtime
from jaxsens.models import VisionTransformer, ViTSmall

from .models import ModelSpec, NoiseOn

#: What readers call them.
LABELS: dict[NoiseOn, str] = {"own-token": "own token", "embedding": "embedding"}
#: Images that go through a tokeniser together, at the most.
_BLOCK = 256


def one_token_specs(spec: ModelSpec) -> list[ModelSpec]:
    """A model measured with noise that one token alone sees; none if it has no tokens."""
    if not isinstance(spec.model, VisionTransformer):
        return []
    shifted = isinstance(spec.model, ViTSmall) and spec.model.shifts
    ways: tuple[NoiseOn, ...] = ("own-token", "embedding") if shifted else ("embedding",)
    return [
        dataclasses.replace(
            spec, name=f"{way}@{spec.name}", label=f"{spec.label}, {LABELS[way]}", noise_on=way
        )
        for way in ways
    ]


@dataclass(frozen=True)
class OwnPatch:
    """Noise on the pixels of a patch, as they stand in the row of the patch's own token.

        row + patch_rows(σ·ξ),    ξ ~ N(0, I) of the patch's shape

    where the tokeniser takes the patch for the whole image: shifts bring in zeros.

    Attributes:
      model: whose tokeniser it is.
      noise: what is drawn.
    """

    model: Any = dataclasses.field(repr=False)
    noise: Gaussian

    def __call__(self, key: PRNGKeyArray, window: Float[Array, "1 r"], /) -> Float[Array, "1 r"]:
        """The row with noise; the draws are those of `noise` on the patch."""
        side = self.model.patch
        grey = jax.ShapeDtypeStruct((1, side, side, 1), window.dtype)
        num_channels = window.shape[-1] // jax.eval_shape(self.model.patch_rows, grey).shape[-1]
        blank = jnp.zeros((side, side, num_channels), window.dtype)
        return window + self.model.patch_rows(self.noise(key, blank)[None])[0]


class TokensOfImages:
    """(n, T, d) rows or embeddings of images, made when they are asked for: never all at once.

    `jaxsens.sensitivity` takes it for examples in a file.

    Args:
      spec: the model, and what of it is made.
      variables: its weights.
      images: (n, H, W, C).
    """

    def __init__(self, spec: ModelSpec, variables: Any, images: Float[np.ndarray, "n H W C"]):
        self._make = functools.partial(_tokens, spec.model, spec.noise_on, variables)
        self._images = images
        found = jax.eval_shape(self._make, images[:1])
        self.shape, self.dtype = (len(images), *found.shape[1:]), np.dtype(found.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice | Int[np.ndarray, " k"]) -> Float[np.ndarray, "k T d"]:
        """Those of a slice, or of numbers."""
        images = self._images[index]
        parts = [images[at : at + _BLOCK] for at in range(0, len(images), _BLOCK)]
        return np.concatenate([self._of_block(part) for part in parts])

    def _of_block(self, images: Float[np.ndarray, "k H W C"]) -> Float[np.ndarray, "k T d"]:
        # Filled up to a power of two, so that few shapes are compiled.
        num = 1 << (len(images) - 1).bit_length()
        filled = np.pad(images, ((0, num - len(images)), (0, 0), (0, 0), (0, 0)))
        return np.asarray(self._make(filled))[: len(images)]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _tokens(
    model: Any, noise_on: NoiseOn, variables: Any, x: Float[Array, "k H W C"]
) -> Float[Array, "k T d"]:
    if noise_on == "own-token":
        return model.patch_rows(x)
    with jax.default_matmul_precision(runtime.PRECISION):
        return model.apply(variables, x, method="embed")


@functools.lru_cache(maxsize=64)
def from_tokens(model: VisionTransformer, noise_on: NoiseOn) -> Any:
    """`apply_fn(variables, tokens)`: one function for each model, so that it compiles once."""
    method = {"own-token": "from_patch_rows", "embedding": "from_embeddings"}[noise_on]

    def apply_fn(variables: Any, tokens: Float[Array, "n T d"]) -> Any:
        return model.apply(variables, tokens, method=method)

    return apply_fn


def measured_tokens(
    spec: ModelSpec, variables: Any, images: Float[np.ndarray, "n H W C"], noise: Gaussian
) -> Sequence[Any]:
    """The first four arguments of `jaxsens.sensitivity`, for noise that one token alone sees."""
    edit = OwnPatch(spec.model, noise) if spec.noise_on == "own-token" else noise
    return (
        from_tokens(spec.model, spec.noise_on),
        variables,
        TokensOfImages(spec, variables, images),
        Perturbation(Tokens(), edit),
    )
