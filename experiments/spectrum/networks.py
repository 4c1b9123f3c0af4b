"""The networks whose kernels the experiment `spectrum` computes beside those of its search."""

from jaxsens.spectrum import MLP, Transformer
from jaxsens.spectrum.architectures import Architecture

#: Networks whose univariate spectrum is drawn.
UNIVARIATE: tuple[Architecture, ...] = (
    MLP(depth=1, activation="relu"),
    MLP(depth=3, activation="relu"),
    MLP(depth=3, activation="erf"),
    MLP(depth=3, activation="gelu"),
    Transformer(tokens=1, embed=False),
    Transformer(tokens=1, depth=2, activation="relu", residual=True, layer_norm=True),
)
#: Networks that are made finite and trained.
TRAINED: dict[str, Architecture] = {
    "MLP": MLP(depth=2, activation="relu"),
    "transformer": Transformer(
        tokens=2, depth=1, activation="relu", residual=True, layer_norm=True
    ),
}
#: Kernels for which neural-tangents is asked too.
CROSS_CHECKED: tuple[Architecture, ...] = (
    MLP(depth=2, activation="relu"),
    MLP(depth=2, activation="erf"),
    MLP(depth=1, activation="gelu"),
    Transformer(tokens=2, embed=False),
    Transformer(tokens=2, scaling="linear", readout="mean", embed=False),
)
