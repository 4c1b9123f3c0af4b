"""The paper's Fashion-MNIST CNN."""

import flax.linen as nn
from jaxtyping import Array, Float

from jaxsens.models.layers.basics import conv, linear, max_pool


class CNN(nn.Module):
    """Two 3×3 convolutions, one pooling, one hidden layer.

    There is no activation between the second convolution and the pooling: that is how the paper's
    model is.
    """

    num_classes: int
    features: int = 32
    hidden: int = 128

    @nn.compact
    def __call__(self, x: Float[Array, "n H W C"], *, train: bool = False) -> Float[Array, "n K"]:
        """Logits; `train` changes nothing."""
        x = nn.leaky_relu(conv(self.features, x.shape[-1], 3)(x))
        x = conv(self.features, self.features, 3)(x)
        x = max_pool(x)
        x = x.reshape(x.shape[0], -1)
        x = nn.leaky_relu(linear(self.hidden, x.shape[-1])(x))
        return linear(self.num_classes, self.hidden)(x)
