"""Grokking: is sensitivity a progress measure, and is its hump an artefact of the noise's unit?

A transformer without residuals or layer norm learns a + b mod p from some of all pairs, by
full-batch AdamW. It memorises them at once and generalises thousands of epochs later. The paper's
second version says that sensitivity falls long before test accuracy jumps. Its curves are smoothed
over 5,000 epochs; here nothing is, and everything is timed run by run:

* sensitivities: the authors' (absolute noise on both operands), Definition 4.3 (one operand
  at a time), and both with noise relative to the embedding's RMS, which weight decay shrinks;
* rivals: weight norm, Fourier concentration and RMS of the embedding, test loss;
* controls that do not generalise: labels without a rule, no weight decay. A measure that moves in
  these as well announces nothing.

Sparse parity, learned by an MLP, is a second task; sensitivity is there to flipping one bit, exact.

    python -m jaxsens.run --exp grokking
    python -m jaxsens.run --exp grokking --preset small

quick: p = 43, 45 % of the pairs, half the paper's width, three times its weight decay and learning
rate, so that it generalises within 2,500 epochs: about 4½ minutes of CPU time.

Found with both: sensitivity to absolute noise goes beyond all controls only after the jump, if at
all; relative to the embedding before it, as do Fourier concentration and test loss.
The numbers, and what did not hold, are in docs/results/grokking.md.
"""

from pathlib import PurePath

import jax

from jaxsens.reporting.papers import SIMPLICITY_BIAS
from jaxsens.reporting.progress import steps
from jaxsens.reporting.results import Findings, grouped
from jaxsens.reporting.run_folder import RunFolder

from .claims import claims_of, hump_verdict, verdict
from .config import Config
from .figures import figures_of
from .outcome import ADDITION, PARITY, Outcome, outcome_values
from .tables import tables_of
from .training import curves, train

__all__ = ["COST", "PAPERS", "PRESETS", "Config", "load", "run"]

PRESETS = {
    "quick": Config(
        p=43,
        train_share=0.45,
        width=64,
        hidden=256,
        learning_rate=3e-3,
        weight_decay=3.0,
        epochs=2_500,
        evaluate_every=25,
        num_seeds=4,
        parity_bits=20,
        parity_train=600,
        parity_epochs=5_000,
    ),
    "small": Config(
        p=59,
        train_share=0.4,
        epochs=10_000,
        evaluate_every=100,
        num_seeds=3,
        controls=("no-rule",),
    ),
    "paper": Config(),
}

PAPERS = (SIMPLICITY_BIAS,)

COST = {
    "quick": "a + b mod 43 and parity of 3 of 20 bits, 12 runs each; minutes on 2 cores",
    "small": "a + b mod 59, the paper's model and optimiser, 6 runs, 10,000 epochs: 25 CPU minutes",
    "paper": "a + b mod 113, 30 %, 25,000 epochs, 15 runs: 5 to 6 hours of one core, or a GPU",
}


def load(config: Config, data_dir: PurePath | None) -> None:
    """Nothing to load: the tasks are generated.

    Raises:
      ValueError: a seed's pairs leave no test pair with, or none without, its mirror image among
        the training pairs, so that an accuracy would be that of none.
    """
    task = config.addition.task
    for seed in config.seeds:
        mirrored = task.data(seed, rule=True)["mirrored"][task.num_train :]
        if mirrored.all() or not mirrored.any():
            raise ValueError(
                f"train_share={config.train_share} with p={config.p} and seed {seed} leaves "
                f"{mirrored.sum()} mirrored ones among {len(mirrored)} test pairs; expected some "
                "of both kinds: choose a --train-share nearer to 0.5 or a larger --p"
            )


def run(config: Config, data: None, folder: RunFolder) -> Findings:
    """Trains, times, draws."""
    tasks = [(config.addition, f"Addition mod {config.p}", ADDITION)]
    if config.parity_epochs:
        title = f"Parity of {config.parity_degree} of {config.parity_bits} bits"
        tasks.append((config.parity, title, PARITY))
    outcomes = []
    for training, title, measures in steps(tasks, lambda task: task[1]):
        train(training, folder, key=jax.random.key(config.seed))
        outcomes.append(Outcome.of(training, title, measures, curves(training, folder)))
    return Findings(
        title="Grokking: what announces the jump of test accuracy",
        summary=" ".join([*map(verdict, outcomes), hump_verdict(outcomes[0])]),
        claims=tuple(
            claim for outcome in outcomes for claim in grouped(outcome.title, claims_of(outcome))
        ),
        tables=tuple(table for outcome in outcomes for table in tables_of(outcome)),
        figures=tuple(figure for outcome in outcomes for figure in figures_of(outcome, folder)),
        values={outcome.training.name: outcome_values(outcome) for outcome in outcomes},
    )
