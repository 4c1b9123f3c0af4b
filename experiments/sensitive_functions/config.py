"""The flags of the experiment `sensitive_functions`; those of a part begin with its name."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

from jaxsens.cli.bounds import Count, Decay, Depth, Draws, Epochs, Range, Rate, Runs, Seed, Several
from jaxsens.cli.config import ExperimentConfig
from jaxsens.core import memory
from jaxsens.models import BitTransformer

from .functions import CONTROLS, Function
from .parts import PARTS, Part
from .training import BitTask

Length = Annotated[int, Range(2, 10**6)]
Lengths = Annotated[tuple[Length, ...], Several(at_least=2)]


@dataclass(frozen=True)
class Config(ExperimentConfig):
    """Flags of the experiment: defaults are the paper's."""

    FLAG_GROUPS = MappingProxyType(
        {
            **{f"part {part}": (f"{part.replace('-', '_')}_*",) for part in PARTS},
            **ExperimentConfig.FLAG_GROUPS,
        }
    )

    parts: Annotated[tuple[Part, ...], Several()] = PARTS
    """Which parts to run."""

    # --- Shared by all parts -----------------------------------------------------------------
    width: Annotated[int, Range(2, 10**5)] = 128
    """Of the transformers."""
    layers: Depth = 2
    """Of the transformers."""
    heads: Count = 2
    """Of their attention."""
    tied: bool = True
    """Whether all layers start from the same weights, as in the released code."""
    batch: Count = 1024
    """Inputs drawn for a step."""
    learning_rate: Rate = 3e-4
    """AdamW's."""
    weight_decay: Decay = 0.1
    """AdamW's, on all parameters."""
    epsilon: Annotated[float, Range(0, 1e3, "()")] = 0.02
    """Size of the noise on a weight: sharpness is on the sphere of radius ε√p."""
    num_directions: Annotated[int, Range(2, 10_000, because="an interval needs two")] = 10
    """Draws of the weights for each model."""
    num_inputs: Annotated[int, Range(2, 2**24)] = 4096
    """Inputs to measure on: all 2ⁿ if they are no more, else as many uniform ones."""
    sharpness: Literal["definition", "released"] = "definition"
    """Mean squared change of the output on a sphere, or 4·(increase of the loss) by Gaussians."""
    seed: Seed = 0
    """The first of the seeds."""
    block: Count = 16
    """Runs that are vmapped together."""

    # --- scaling: Figs 1, 5 to 8 -------------------------------------------------------------
    scaling_lengths: Lengths = tuple(range(4, 31))
    """Lengths n of PARITY."""
    scaling_control_lengths: Lengths = tuple(range(4, 31))
    """Lengths n of MAJORITY, FIRST and MEAN."""
    scaling_seeds: Runs = 10
    """Runs of PARITY at each length."""
    scaling_control_seeds: Runs = 10
    """Runs of each other function at each length."""
    scaling_steps: Epochs = 10_000
    """Of every run."""
    scaling_long_lengths: Annotated[tuple[Length, ...], Several(at_least=0)] = ()
    """Lengths of a narrow model of the other functions."""
    scaling_long_width: Annotated[int, Range(2, 10**5)] = 4
    """Of the narrow model."""
    scaling_long_batch: Count = 128
    """Inputs drawn for a step of the narrow model."""

    # --- tradeoff: Figs 2, 9, 10 -------------------------------------------------------------
    tradeoff_lengths: Lengths = tuple(range(4, 26))
    """Lengths n."""
    tradeoff_functions: Annotated[tuple[Function, ...], Several()] = ("parity", *CONTROLS)
    """Functions."""
    tradeoff_decays: Annotated[tuple[Decay, ...], Several(at_least=2)] = (0.0, 0.1, 0.2, 0.3, 0.4)
    """Weight decays."""
    tradeoff_rates: Annotated[tuple[Rate, ...], Several()] = (1e-4, 3e-4, 5e-4)
    """Learning rates."""
    tradeoff_seeds: Count = 3
    """Runs of PARITY at each length, decay and rate."""
    tradeoff_control_seeds: Count = 2
    """Runs of the other functions at each length, decay and rate."""
    tradeoff_steps: Epochs = 10_000
    """Of every run."""

    # --- dynamics: Figs 3, 12 to 14 ----------------------------------------------------------
    dynamics_length: Length = 25
    """Bits of PARITY."""
    dynamics_decays: Annotated[tuple[Decay, ...], Several()] = (0.0, 0.1, 0.2, 0.3)
    """Weight decays."""
    dynamics_rate: Rate = 3e-4
    """Learning rate."""
    dynamics_seeds: Runs = 101
    """Runs of each decay."""
    dynamics_steps: Epochs = 20_000
    """Of every run."""
    dynamics_every: Epochs = 100
    """Steps between two measurements."""
    dynamics_directions: Draws = 500
    """Draws of the weights at every measurement, the same ones along a run."""
    dynamics_inputs: Annotated[int, Range(2, 2**24)] = 1024
    """Inputs at every measurement."""

    # --- generalisation: Figs 4, 15 ----------------------------------------------------------
    generalisation_bits: Annotated[int, Range(2, 16)] = 10
    """Bits of the random functions."""
    generalisation_sizes: Annotated[tuple[Count, ...], Several()] = (128, 256, 512, 1024)
    """Training inputs; each number divides the largest."""
    generalisation_random_sizes: Annotated[tuple[Count, ...], Several()] = (256,)
    """Sizes at which random extensions are retrained too."""
    generalisation_functions: Runs = 10
    """Random functions."""
    generalisation_subsets: Count = 10
    """Sets of training inputs and first weights for each function."""
    generalisation_retrain_seeds: Count = 5
    """Runs on the whole table of each function that was learned, or extended at random."""
    generalisation_rate: Rate = 3e-4
    """Learning rate."""
    generalisation_steps: Epochs = 10_000
    """Of every run."""

    # --- scratchpad: Fig. 11 -----------------------------------------------------------------
    scratchpad_lengths: Annotated[tuple[Length, ...], Several(at_least=2)] = (
        *(4, 5, 6, 7, 9, 10, 13, 15, 18, 22, 27, 33, 40, 48, 58, 70, 85, 103, 125, 151, 183, 222),
        *(269, 325, 394, 477, 577, 699, 846, 1024),
    )
    """Lengths n: 30 from 4 to 1024, as many as released, at even distances of their logarithms."""
    scratchpad_width: Annotated[int, Range(2, 10**5)] = 32
    """Of the encoder and decoder."""
    scratchpad_batch: Count = 128
    """Inputs drawn for a step."""
    scratchpad_rate: Rate = 3e-4
    """Learning rate."""
    scratchpad_seeds: Runs = 10
    """Runs at each length."""
    scratchpad_steps: Epochs = 10_000
    """Of every run, whatever its length."""
    scratchpad_strings: Count = 1024
    """Inputs of each run that are decoded, and on which its sharpness is measured."""

    # --- random-init: Section 5 --------------------------------------------------------------
    random_init_bits: Annotated[tuple[Annotated[int, Range(2, 16)], ...], Several()] = (7, 10)
    """Bits of the networks with random weights."""
    random_init_widths: Annotated[tuple[Length, ...], Several()] = (32, 128)
    """Widths of the networks."""
    random_init_networks: Runs = 1_000
    """Networks of each kind and size."""

    # --- length: Section 5 -------------------------------------------------------------------
    length_trained: Length = 20
    """The longest inputs of training; all lengths up to it are trained on."""
    length_asked: Annotated[tuple[Length, ...], Several()] = (24, 28, 32, 40)
    """Longer lengths."""
    length_rate: Rate = 3e-4
    """Learning rate."""
    length_seeds: Runs = 10
    """Runs of each function."""
    length_steps: Epochs = 30_000
    """Of every run."""
    length_inputs: Annotated[int, Range(2, 2**24)] = 2_048
    """Inputs of each length that are asked."""

    def check(self) -> None:
        """Raises ValueError for models that do not exist."""
        widths = {"width": self.width}
        if self.scaling_long_lengths:
            widths["scaling_long_width"] = self.scaling_long_width
        for name, width in widths.items():
            if width % 2 or width % self.heads:
                raise ValueError(
                    f"{name} must be a multiple of 2 and of heads; got {name}={width}, "
                    f"heads={self.heads}"
                )
        scaling = max(self.scaling_seeds, self.scaling_control_seeds)
        tradeoff = max(self.tradeoff_seeds, self.tradeoff_control_seeds)
        seeds = max(scaling, tradeoff, self.dynamics_seeds)
        if self.seed + seeds > 2**32:
            raise ValueError(
                f"the {seeds} seeds from seed={self.seed} on must be below {2**32}; choose a "
                f"--seed of at most {2**32 - seeds}"
            )
        self._check_generalisation()
        self._check_random_init()
        if min(self.length_asked) <= self.length_trained:
            raise ValueError(
                f"length_asked must be longer than length_trained={self.length_trained}; got "
                f"{min(self.length_asked)}"
            )
        if self.scratchpad_width % (2 * self.heads):
            raise ValueError(
                f"scratchpad_width must be a multiple of 2 and of heads; got "
                f"{self.scratchpad_width} and {self.heads}"
            )

    def _check_generalisation(self) -> None:
        sizes, bits = self.generalisation_sizes, self.generalisation_bits
        if max(sizes) > 2**bits or any(max(sizes) % size for size in sizes):
            raise ValueError(
                f"generalisation_sizes must be at most 2^{bits} = {2**bits} and divide the "
                f"largest; got {', '.join(map(str, sizes))}"
            )
        if unknown := sorted({*self.generalisation_random_sizes} - {*sizes}):
            raise ValueError(
                f"generalisation_random_sizes has {unknown[0]}, which is not among "
                f"generalisation_sizes ({', '.join(map(str, sizes))})"
            )

    def _check_random_init(self) -> None:
        if odd := [width for width in self.random_init_widths if width % (2 * self.heads)]:
            raise ValueError(
                f"random_init_widths must be multiples of 2 and of heads; got {odd[0]} and "
                f"{self.heads}"
            )
        bits = max(self.random_init_bits)
        memory.require(
            8 * self.random_init_networks * 2**bits,
            f"random-init: outputs of {self.random_init_networks} networks of {bits} bits",
            remedy="choose fewer --random-init-networks or fewer bits",
        )

    def require_memory(self) -> None:
        """Raises ValueError if the longest inputs of a part do not fit, a block of runs at a time.

        Not a matter of `check`: the paper's preset must exist on machines that it does not fit.
        """
        scaling = max(*self.scaling_lengths, *self.scaling_control_lengths)
        longest: dict[Part, int] = {
            "scaling": scaling,
            "tradeoff": max(self.tradeoff_lengths),
            "dynamics": self.dynamics_length,
            "generalisation": self.generalisation_bits,
            "length": max(self.length_asked),
            "inequality": scaling,
        }
        for part in self.parts:
            if part in longest:
                self._require_memory(part, longest[part], self.width, self.batch)
        if "scaling" in self.parts and self.scaling_long_lengths:
            n, width = max(self.scaling_long_lengths), self.scaling_long_width
            self._require_memory("scaling", n, width, self.scaling_long_batch)

    def _require_memory(self, part: Part, n: int, width: int, batch: int) -> None:
        """Attention weights and tokens of a block of runs, kept for the gradients, in float32."""
        per_input = self.layers * n * (2 * self.heads * n + 8 * width)
        memory.require(
            4 * self.block * batch * per_input,
            f"{part}: training {self.block} transformers of n={n} bits, width={width}, with "
            f"batches of {batch}",
            remedy="choose shorter lengths or a smaller --block",
        )

    def require_scratchpad_memory(self) -> None:
        """Raises ValueError if training at the longest length does not fit, a run at a time."""
        if "scratchpad" not in self.parts:
            return
        n = max(self.scratchpad_lengths)
        # An encoder's layer attends once, a decoder's twice.
        per_input = 3 * self.layers * n * (2 * self.heads * n + 8 * self.scratchpad_width)
        memory.require(
            4 * self.scratchpad_batch * per_input,
            f"scratchpad: training on n={n} bits with batches of {self.scratchpad_batch}",
            remedy="choose shorter --scratchpad-lengths or a smaller --scratchpad-batch",
        )

    def task(self, n: int) -> BitTask:
        """What runs of one length share."""
        return BitTask(
            BitTransformer(n, self.width, self.layers, self.heads), self.batch, self.tied
        )
