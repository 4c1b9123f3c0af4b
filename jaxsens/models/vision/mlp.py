"""Multi-layer perceptrons on flattened images."""

from collections.abc import Callable

import flax.linen as nn
from jaxtyping import Array, Float

from jaxsens.models.layers.basics import linear


class MLP(nn.Module):
    """Hidden layers with one activation, then logits without bias.

    The paper's Fashion-MNIST model is widths (512, 128), its MNIST model (100,).
    """

    num_classes: int
    widths: tuple[int, ...] = (512, 128)
    activation: Callable[[Array], Array] = nn.leaky_relu

    @nn.compact
    def __call__(self, x: Float[Array, "n ..."], *, train: bool = False) -> Float[Array, "n C"]:
        """Logits; `train` changes nothing."""
        x = x.reshape(x.shape[0], -1)
        for width in self.widths:
            x = self.activation(linear(width, x.shape[-1])(x))
        return linear(self.num_classes, x.shape[-1], bias=False)(x)
