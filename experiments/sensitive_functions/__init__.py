"""Sensitive functions: why are they hard for transformers, and does sharpness say so?

Hahn and Rofin (*Why are Sensitive Functions Hard for Transformers?*, arXiv 2402.09963): the more an
output depends on every single bit, the sharper the minimum that a transformer needs. The parts:

* scaling: sharpness against input length for PARITY, MAJORITY, FIRST and MEAN (Figs 1, 5 to 8);
* tradeoff: weight norm against layer-norm blow-up (Figs 2, 9, 10);
* dynamics: loss, sharpness, blow-up and norm along training of PARITY (Figs 3, 12 to 14);
* generalisation: sensitivity of learned extensions of random functions (Figs 4, 15);
* scratchpad: PARITY with its prefix parities written out (Fig. 11);
* random-init: sensitivity of random transformers (Section 5);
* length: trained up to one length, asked at longer ones (Section 5);
* inequality: (√as(T_θ) − √as(T_θ+Δ))²/n ≤ E(T_θ+Δ − T_θ)² for every model and draw.

    python -m jaxsens.run --exp sensitive-functions
    python -m jaxsens.run --exp sensitive-functions --parts scaling dynamics --preset small

Everything is over seeds with intervals, and the share of runs that learnt stands beside every
point: the paper shows these alone.

quick, two cores, minutes: at width 32 the sharpness of PARITY rises from about 0.15 (4 bits) to 0.5
(8 bits), that of the other functions stays below 0.1; where the loss of PARITY drops, sharpness
rises severalfold; no pair of a model and a perturbed copy violates the inequality. That sharpness
comes near 1, as in the paper at 30 bits and width 128, can only be seen with the preset paper.
"""

from pathlib import PurePath

from jaxsens.reporting.papers import SENSITIVE_FUNCTIONS
from jaxsens.reporting.progress import steps
from jaxsens.reporting.results import Findings, grouped
from jaxsens.reporting.run_folder import RunFolder

from .config import Config
from .parts import run_part

__all__ = ["COST", "PAPERS", "PRESETS", "Config", "load", "run"]

PRESETS = {
    "quick": Config(
        width=32,
        batch=256,
        learning_rate=5e-4,
        num_directions=16,
        num_inputs=1024,
        block=8,
        scaling_lengths=(4, 6, 8),
        scaling_control_lengths=(4, 8),
        scaling_seeds=6,
        scaling_control_seeds=2,
        scaling_steps=3_000,
        tradeoff_lengths=(4, 6),
        tradeoff_functions=("parity", "majority"),
        tradeoff_decays=(0.0, 0.1, 0.4),
        tradeoff_rates=(5e-4,),
        tradeoff_seeds=2,
        tradeoff_control_seeds=2,
        tradeoff_steps=3_000,
        dynamics_length=10,
        dynamics_decays=(0.1,),
        dynamics_rate=1e-3,
        dynamics_seeds=4,
        dynamics_steps=2_400,
        dynamics_every=50,
        dynamics_directions=16,
        dynamics_inputs=256,
        generalisation_bits=7,
        generalisation_sizes=(16, 64),
        generalisation_random_sizes=(16, 64),
        generalisation_functions=4,
        generalisation_subsets=1,
        generalisation_retrain_seeds=1,
        generalisation_rate=1e-3,
        generalisation_steps=1_500,
        scratchpad_lengths=(4, 8),
        scratchpad_rate=1e-3,
        scratchpad_seeds=2,
        scratchpad_steps=600,
        scratchpad_strings=256,
        random_init_widths=(32,),
        random_init_networks=64,
        length_trained=4,
        length_asked=(6, 8),
        length_rate=1e-3,
        length_seeds=2,
        length_steps=1_200,
        length_inputs=512,
    ),
    "small": Config(
        width=32,
        batch=256,
        learning_rate=5e-4,
        num_directions=32,
        num_inputs=16_384,
        block=8,
        scaling_lengths=(4, 6, 8, 10, 12, 14, 16),
        scaling_control_lengths=(4, 8, 12),
        scaling_seeds=6,
        scaling_control_seeds=6,
        scaling_steps=5_000,
        tradeoff_lengths=(5, 10),
        tradeoff_functions=("parity", "majority"),
        tradeoff_decays=(0.0, 0.1, 0.4),
        tradeoff_rates=(5e-4, 1e-3),
        tradeoff_seeds=6,
        tradeoff_control_seeds=6,
        tradeoff_steps=4_000,
        dynamics_length=10,
        dynamics_decays=(0.0, 0.1, 0.3),
        dynamics_rate=1e-3,
        dynamics_seeds=6,
        dynamics_steps=3_000,
        dynamics_every=50,
        dynamics_directions=32,
        dynamics_inputs=512,
        generalisation_bits=8,
        generalisation_sizes=(32, 64, 128),
        generalisation_random_sizes=(32, 64, 128),
        generalisation_functions=6,
        generalisation_subsets=1,
        generalisation_retrain_seeds=1,
        generalisation_rate=1e-3,
        generalisation_steps=3_000,
        scratchpad_lengths=(8, 16, 32),
        scratchpad_rate=1e-3,
        scratchpad_seeds=6,
        scratchpad_steps=1_500,
        scratchpad_strings=512,
        random_init_networks=200,
        length_trained=6,
        length_asked=(8, 10, 12),
        length_rate=1e-3,
        length_seeds=6,
        length_steps=4_000,
        length_inputs=1_024,
    ),
    "paper": Config(
        scaling_long_lengths=(
            *(4, 8, 12, 16, 20, 24, 28, 32, 48, 64, 80, 96, 112, 128),
            *(160, 192, 256, 320, 384, 512),
        ),
    ),
}

PAPERS = (SENSITIVE_FUNCTIONS,)

COST = {
    "quick": "width 32, up to 10 bits, 2 to 6 runs a point; 4 to 9 minutes on 2 cores",
    "small": "width 32, up to 16 bits, 6 runs a point; 98 CPU minutes, 3.6 GB",
    "paper": "width 128, up to 30 bits, all sweeps: hundreds of GPU hours",
}


def load(config: Config, data_dir: PurePath | None) -> None:
    """Nothing to load: all inputs are bits.

    Raises:
      ValueError: the longest inputs of a part do not fit into memory.
    """
    config.require_memory()
    config.require_scratchpad_memory()


def run(config: Config, data: None, folder: RunFolder) -> Findings:
    """Runs the parts one after the other."""
    found = {name: run_part(name, config, folder) for name in steps(config.parts)}
    return Findings(
        title="Sensitive functions are hard for transformers: sharpness, blow-up and sensitivity",
        summary=" ".join(part.summary for part in found.values()),
        claims=tuple(
            claim
            for name, part in found.items()
            for claim in grouped(name.replace("-", " ").capitalize(), part.claims)
        ),
        tables=tuple(table for part in found.values() for table in part.tables),
        figures=tuple(figure for part in found.values() for figure in part.figures),
        values={name: part.values for name, part in found.items()},
    )
