"""The flags of the experiment `spectrum`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from jaxsens.cli.bounds import LARGEST, Count, Range, Runs, Seed, Several
from jaxsens.cli.config import ExperimentConfig
from jaxsens.core import memory

#: Of a cube that is enumerated; beyond 64 not even its points can be numbered.
Coordinates = Annotated[int, Range(2, 64)]
Width = Annotated[int, Range(2, LARGEST, because="a single unit has no layer norm")]


@dataclass(frozen=True)
class Config(ExperimentConfig):
    """Flags of the experiment."""

    d: Annotated[int, Range(4, 64)] = 8
    """Coordinates of the kernels that are drawn."""
    scan_pure: Annotated[tuple[Coordinates, ...], Several()] = (2, 3, 4, 6, 8)
    """Dimensions of the search among single attention layers."""
    scan_stacks: Annotated[tuple[Coordinates, ...], Several()] = (2, 3, 4, 6)
    """Dimensions of the search among all other stacks of layers."""
    univariate_d: Count = 128
    """Coordinates of the univariate spectrum."""
    finite_d: Coordinates = 6
    """Coordinates of the finite networks whose kernels are compared with the limit."""
    widths: Annotated[tuple[Width, ...], Several(at_least=2)] = (16, 48, 144)
    """Widths of the finite networks."""
    num_seeds: Runs = 8
    """Finite networks of each width."""
    train_d: Coordinates = 6
    """Coordinates of the networks that are trained on characters."""
    train_width: Width = 64
    """Width of the networks that are trained on characters."""
    max_steps: Count = 1_500
    """Steps after which a character counts as not fitted."""
    sets_per_degree: Count = 2
    """Characters of each degree to train on, where their eigenvalues differ."""
    precision: Literal["float32", "float64"] = "float64"
    """Of the infinite-width kernels."""
    seed: Seed = 0
    """Of the finite networks."""

    def check(self) -> None:
        """Raises ValueError for a cube that cannot be cut into tokens or held in memory."""
        if 4 not in self.scan_pure:
            raise ValueError(
                "scan_pure must contain 4 (the smallest d with several wide tokens); "
                f"got {self.scan_pure}"
            )
        if self.d % 2 or self.finite_d % 2 or self.train_d % 2:
            raise ValueError(
                "d, finite_d and train_d must be even, to cut them into two tokens; "
                f"got {self.d}, {self.finite_d} and {self.train_d}"
            )
        largest = max(self.d, self.finite_d, self.train_d, *self.scan_pure, *self.scan_stacks)
        memory.require(6 * 8 * 4**largest, f"the kernel matrix of d={largest}")
        d = self.univariate_d
        # The moments of all powers: see `spectrum.eigenvalues_from_taylor`.
        memory.require(
            8 * min(64 * d, 2**17) * (d + 1),
            f"the univariate spectrum of univariate_d={d}",
            remedy="choose a smaller --univariate-d",
        )
        for name, width in (("widths", max(self.widths)), ("train_width", self.train_width)):
            # The weights of one layer and their gradients.
            memory.require(
                8 * width**2,
                f"a network of width {width}",
                remedy=f"choose smaller {name}",
            )
