"""What the vision transformers share: images in, and two seams for noise that one token alone sees.

Every vision transformer is the composition of

    patch_rows(x)            (n, H, W, C) images to (n, T, r): what the tokeniser sees of each patch
    from_patch_rows(rows)    (n, T, r) to logits (n, K)

and of

    embed(x)                 (n, H, W, C) images to (n, T, d): a token for each patch
    from_embeddings(e)       (n, T, d) to logits (n, K): positions, blocks, head

The row of a patch may hold pixels of its neighbours (shifted patch tokenisation): then noise on the
pixels of one patch reaches several tokens. Noise on one row, or on one embedding, reaches one.

Assumption: patches are numbered row by row, as `jaxsens.Patches` numbers them, and lie in a square
unless `layout` says how they lie.
"""

import abc
import math
from typing import Literal

import flax.linen as nn
from jaxtyping import Array, Float

#: Which of a transformer's layers run: from rows to embeddings, from embeddings to logits, or all.
Part = Literal["embedding", "rest", "all"]
#: Rows and columns of patches.
Layout = tuple[int, int]


class VisionTransformer(nn.Module, abc.ABC):
    """The seams that both vision transformers have.

    Attributes:
      num_classes: outputs.
      patch: side of a patch in pixels.

    Example:
      >>> import jax
      >>> from jaxsens.models import ViTSimple
      >>> model = ViTSimple(num_classes=10)
      >>> x = jax.ShapeDtypeStruct((1, 32, 32, 3), "float32")
      >>> variables = jax.eval_shape(model.init, jax.random.key(0), x)
      >>> embed = lambda variables, x: model.apply(variables, x, method="embed")
      >>> jax.eval_shape(embed, variables, x).shape  # 8 × 8 patches
      (1, 64, 64)
    """

    num_classes: int
    patch: int

    def __call__(self, x: Float[Array, "n H W C"], *, train: bool = False) -> Float[Array, "n K"]:
        """Logits of images; with `train` and dropout the rng stream "dropout" is needed."""
        return self.layers(self.patch_rows(x), "all", self._layout(x), train=train)

    def embed(self, x: Float[Array, "n H W C"]) -> Float[Array, "n T d"]:
        """A token for each patch, without its position."""
        return self.layers(self.patch_rows(x), "embedding", self._layout(x))

    def from_patch_rows(
        self, rows: Float[Array, "n T r"], *, layout: Layout | None = None, train: bool = False
    ) -> Float[Array, "n K"]:
        """The network from what its tokeniser sees on."""
        return self.layers(rows, "all", layout or _square(rows.shape[1]), train=train)

    def from_embeddings(
        self, e: Float[Array, "n T d"], *, layout: Layout | None = None, train: bool = False
    ) -> Float[Array, "n K"]:
        """The network from its tokens on."""
        return self.layers(e, "rest", layout or _square(e.shape[1]), train=train)

    @nn.nowrap
    @abc.abstractmethod
    def patch_rows(self, x: Float[Array, "n H W C"]) -> Float[Array, "n T r"]:
        """What the tokeniser sees of each patch: linear in the image, and without weights."""

    @abc.abstractmethod
    def layers(
        self, x: Float[Array, "n T _"], part: Part, layout: Layout, *, train: bool = False
    ) -> Float[Array, "n ..."]:
        """Some of the layers; each has one name, whichever of them run."""

    @nn.nowrap
    def _layout(self, x: Float[Array, "n H W C"]) -> Layout:
        return x.shape[1] // self.patch, x.shape[2] // self.patch


def _square(num_patches: int) -> Layout:
    """The side of the square in which so many patches lie, twice.

    Raises:
      ValueError: they fill no square.
    """
    side = math.isqrt(num_patches)
    if side**2 != num_patches:
        raise ValueError(
            f"{num_patches} patches fill no square; say how they lie: layout=(rows, columns)"
        )
    return side, side
