"""The networks whose kernels are studied, as values: what they are, not how they are computed.

All weights are independent N(0, 1) and every layer divides by the square root of its number of
inputs (the NTK parametrisation), so that the limit of infinite width exists.

    MLP          x → [Dense → φ] × depth → Dense
    Transformer  x as T tokens of width d/T → (Dense) → blocks → readout → Dense
    block        h → h̃ = (h +) Attention((LN) h) → (h̃ +) Dense φ Dense ((LN) h̃)

Attention is linear (no softmax): A V with A = Q Kᵀ, scaled by
    "sqrt"    1/√width, Q and K independent: A stays random in the limit   (the paper's kernel)
    "linear"  1/width, Q = K: A becomes the deterministic covariance of the tokens
in the number of heads and their width → ∞ (Hron et al. 2020, arXiv 2006.10540).
"""

from dataclasses import dataclass
from typing import Literal

Activation = Literal["relu", "erf", "gelu"]
Scaling = Literal["sqrt", "linear"]
Readout = Literal["flatten", "mean"]
#: Conjugate kernel (of the features that the last layer sees) or tangent kernel (of gradients).
KernelKind = Literal["ck", "ntk"]


@dataclass(frozen=True)
class MLP:
    """A multi-layer perceptron.

    Attributes:
      depth: hidden layers.
      activation: φ.
      weight_variance: variance of the weights, σ_w²; 2 keeps ReLU's activations of one size.
      bias_variance: variance of the biases, σ_b².

    >>> MLP(depth=2, activation="erf").label
    'MLP, 2×erf'
    """

    depth: int = 1
    activation: Activation = "relu"
    weight_variance: float = 2.0
    bias_variance: float = 0.0

    def __post_init__(self):
        if self.depth < 1:
            raise ValueError(f"depth must be at least 1; got {self.depth}")
        if self.activation not in ("relu", "erf", "gelu"):
            raise ValueError(f"activation must be relu, erf or gelu; got {self.activation!r}")
        if not self.weight_variance > 0 or not self.bias_variance >= 0:
            raise ValueError(
                "expected weight_variance > 0 and bias_variance >= 0, got "
                f"{self.weight_variance} and {self.bias_variance}"
            )

    @property
    def label(self) -> str:
        """A short name."""
        return f"MLP, {self.depth}×{self.activation}"


@dataclass(frozen=True)
class Transformer:
    """A transformer with linear attention.

    Attributes:
      tokens: T; the d coordinates are cut into T consecutive tokens of d/T.
      depth: blocks.
      scaling: of the attention scores.
      readout: "flatten" all tokens, or their "mean", before the last layer.
      activation: φ of an MLP of one hidden layer in each block; None leaves the MLPs out.
      embed: whether a Dense layer stands before the first block. Without it, and without all
        that follows, this is the kernel of the paper's Proposition 3.1.
      residual: adds the input of attention and of the MLP to their output.
      layer_norm: normalises the input of attention and of the MLP.
      position_variance: variance of learned positional encodings, one vector per token, added
        to the input of every attention layer; 0 for none.

    >>> Transformer(tokens=2, embed=False).label
    'attention, T=2, sqrt, flatten'
    """

    tokens: int = 1
    depth: int = 1
    scaling: Scaling = "sqrt"
    readout: Readout = "flatten"
    activation: Activation | None = None
    embed: bool = True
    residual: bool = False
    layer_norm: bool = False
    position_variance: float = 0.0

    def __post_init__(self):
        if self.tokens < 1 or self.depth < 1:
            raise ValueError(
                f"tokens and depth must be at least 1; got {self.tokens} and {self.depth}"
            )
        for name, value, choices in (
            ("scaling", self.scaling, ("sqrt", "linear")),
            ("readout", self.readout, ("flatten", "mean")),
            ("activation", self.activation, (None, "relu", "erf", "gelu")),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {choices}; got {value!r}")
        if not self.position_variance >= 0:
            raise ValueError(f"position_variance must be >= 0; got {self.position_variance}")
        wide = [n for n in ("residual", "layer_norm", "position_variance") if getattr(self, n)]
        if wide and not self.embed:
            raise ValueError(
                f"{' and '.join(wide)} need embed=True: raw tokens of width d/T have no limit of "
                "infinite width"
            )

    def width(self, d: int) -> int:
        """d/T, the coordinates of a token.

        Raises:
          ValueError: T does not divide d.
        """
        if d % self.tokens:
            divisors = ", ".join(str(t) for t in range(1, d + 1) if d % t == 0)
            raise ValueError(
                f"tokens={self.tokens} does not divide d={d}; choose one of {divisors}"
            )
        return d // self.tokens

    @property
    def label(self) -> str:
        """A short name."""
        parts = [
            "attention" if self.depth == 1 else f"{self.depth} blocks",
            f"T={self.tokens}",
            self.scaling,
            self.readout,
            self.activation and f"{self.activation} MLPs",
            self.residual and "residual",
            self.layer_norm and "layer norm",
            self.position_variance and "positions",
        ]
        return ", ".join(part for part in parts if part)


Architecture = MLP | Transformer
