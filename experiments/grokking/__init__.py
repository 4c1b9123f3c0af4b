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

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import jax

from jaxsens.cli.bounds import Count, Decay, Draws, Epochs, Range, Rate, Runs, Seed, Several, Sigma
from jaxsens.cli.config import ExperimentConfig
from jaxsens.core import memory
from jaxsens.models import BareTransformer
from jaxsens.reporting.environment import environment
from jaxsens.reporting.results import Results
from jaxsens.reporting.run_folder import RunFolder

from .._common.study import seconds
from . import claims as views
from . import figures as drawings
from .outcome import ADDITION, PARITY, Outcome
from .tasks import Addition, Parity
from .training import Arm, Training, curves, train

__all__ = ["COST", "PRESETS", "Config", "load", "run"]

Control = Literal["no-rule", "no-decay"]
#: Test examples of sparse parity.
NUM_PARITY_TEST = 2_000


@dataclass(frozen=True)
class Config(ExperimentConfig):
    """Flags of the experiment."""

    p: Annotated[int, Range(3, 10**7)] = 113
    """Modulus."""
    train_share: Annotated[float, Range(0, 1, "()")] = 0.3
    """Share of the p² pairs to train on."""
    width: Count = 128
    """Of the transformer."""
    hidden: Count = 512
    """Units of its MLP."""
    heads: Count = 4
    """Of its attention."""
    learning_rate: Rate = 1e-3
    """AdamW's."""
    weight_decay: Decay = 1.0
    """AdamW's, on all weights."""
    epochs: Epochs = 25_000
    """Full-batch steps."""
    evaluate_every: Epochs = 50
    """Epochs between two evaluations."""
    num_seeds: Runs = 5
    """Runs of each arm."""
    seed: Seed = 42
    """The first of the seeds."""
    controls: Annotated[tuple[Control, ...], Several()] = ("no-rule", "no-decay")
    """Arms that should not generalise."""
    sigma: Sigma = 0.1
    """Standard deviation of the absolute noise."""
    relative_sigma: Sigma = 0.3
    """Standard deviation of the relative noise, in units of the embedding's RMS."""
    num_draws: Draws = 5
    """Draws of the noise at every evaluation."""
    parity_bits: Count = 30
    """Bits of the second task."""
    parity_degree: Count = 3
    """How many of them count."""
    parity_train: Count = 1_500
    """Training examples."""
    parity_hidden: Count = 128
    """Units of the MLP."""
    parity_decay: Decay = 1.0
    """AdamW's weight decay; the learning rate is 0.001."""
    parity_epochs: Annotated[int, Range(0, 10**7)] = 6_000
    """Full-batch steps; 0 leaves the task out."""

    def check(self) -> None:
        """Raises ValueError for tasks that do not exist or do not fit into memory."""
        if self.p % 2 == 0:
            raise ValueError(f"p must be odd; got {self.p}; the nearest is {self.p + 1}")
        if int(self.train_share * self.p**2) < 1:
            raise ValueError(
                f"train_share={self.train_share} of {self.p**2} pairs leaves none to train on; "
                f"choose at least {1 / self.p**2:.2g}"
            )
        if self.width % self.heads:
            raise ValueError(f"heads must divide width; got heads={self.heads}, width={self.width}")
        if self.seed + self.num_seeds > 2**32:
            raise ValueError(
                f"the {self.num_seeds} seeds from seed={self.seed} on must be below {2**32}; "
                f"choose a --seed of at most {2**32 - self.num_seeds}"
            )
        if not self.parity_degree < self.parity_bits or self.parity_train < 2:
            raise ValueError(
                f"sparse parity needs 0 < parity_degree < parity_bits and 2 examples; got "
                f"{self.parity_degree}, {self.parity_bits} and {self.parity_train}"
            )
        lanes = self.num_seeds * (1 + len(self.controls))
        weights = 4 * self.width**2 + 2 * self.width * (self.hidden + self.p)
        # Logits of the training pairs; weights, gradients and AdamW's two moments: all float32.
        memory.require(
            4 * lanes * (int(self.train_share * self.p**2) * self.p + 4 * weights),
            f"training {lanes} transformers with p={self.p}, width={self.width}, "
            f"hidden={self.hidden}",
            remedy="choose smaller ones or a smaller --num-seeds",
        )
        examples, bits = self.parity_train + NUM_PARITY_TEST, self.parity_bits
        if not self.parity_epochs:
            return
        # Examples of each lane, once more as they are stacked; weights as above.
        memory.require(
            lanes * (8 * examples * bits + 16 * bits * self.parity_hidden),
            f"training {lanes} MLPs with parity_bits={bits}, parity_train={self.parity_train}, "
            f"parity_hidden={self.parity_hidden}",
            remedy="choose smaller ones or a smaller --num-seeds",
        )

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of data and weights."""
        return tuple(range(self.seed, self.seed + self.num_seeds))

    def arms(self, weight_decay: float) -> tuple[Arm, ...]:
        """The runs that should generalise, then the controls."""
        controls = {
            "no-rule": Arm("no-rule", "labels without a rule", weight_decay, rule=False),
            "no-decay": Arm("no-decay", "no weight decay", 0.0),
        }
        with_rule = Arm("rule", "labels with a rule", weight_decay)
        return with_rule, *(controls[name] for name in self.controls)

    @property
    def addition(self) -> Training:
        """The first task."""
        model = BareTransformer(self.p + 1, 3, self.width, self.heads, self.hidden)
        return Training(
            name="addition",
            task=Addition(model, self.train_share, self.sigma, self.relative_sigma, self.num_draws),
            arms=self.arms(self.weight_decay),
            seeds=self.seeds,
            learning_rate=self.learning_rate,
            epochs=self.epochs,
            every=self.evaluate_every,
        )

    @property
    def parity(self) -> Training:
        """The second task."""
        return Training(
            name="parity",
            task=Parity(
                self.parity_bits,
                self.parity_degree,
                self.parity_train,
                NUM_PARITY_TEST,
                self.parity_hidden,
            ),
            arms=self.arms(self.parity_decay),
            seeds=self.seeds,
            learning_rate=1e-3,
            epochs=self.parity_epochs,
            every=self.evaluate_every,
        )


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

COST = {
    "quick": "a + b mod 43 and parity of 3 of 20 bits, 12 runs each; minutes on 2 cores",
    "small": "a + b mod 59, the paper's model and optimiser, 6 runs, 10,000 epochs: 25 CPU minutes",
    "paper": "a + b mod 113, 30 %, 25,000 epochs, 15 runs: 5 to 6 hours of one core, or a GPU",
}


def load(config: Config, data_dir: Path | None) -> None:
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


def run(config: Config, data: None, folder: RunFolder) -> Results:
    """Trains, times, draws."""
    training = config.addition
    train(training, folder, key=jax.random.key(config.seed))
    title = f"Addition mod {config.p}"
    outcomes = [Outcome.of(training, title, ADDITION, curves(training, folder))]
    if config.parity_epochs:
        training = config.parity
        train(training, folder, key=jax.random.key(config.seed))
        title = f"Parity of {config.parity_degree} of {config.parity_bits} bits"
        outcomes.append(Outcome.of(training, title, PARITY, curves(training, folder)))
    addition, claims = outcomes[0], []
    for outcome in outcomes:
        claims += views.grokking_claims(outcome)
        if outcome is addition:
            claims += [views.mirror_claim(outcome), *views.hump_claims(outcome)]
        claims += views.lead_claims(outcome) if outcome.jumps else []
    return Results(
        experiment="grokking",
        title="Grokking: what announces the jump of test accuracy",
        summary=" ".join([*map(views.verdict, outcomes), views.hump_verdict(addition)]),
        claims=tuple(claims),
        tables=tuple(
            table(outcome)
            for outcome in outcomes
            for table in (views.runs_table, views.lead_table, views.seed_table)
            if outcome.jumps or table is views.runs_table
        ),
        figures=tuple(figure for outcome in outcomes for figure in _figures(outcome, folder)),
        values={outcome.training.name: views.values(outcome) for outcome in outcomes},
        config=dataclasses.asdict(config),
        environment=environment(),
        seconds=seconds(folder),
    )


def _figures(outcome: Outcome, folder: RunFolder) -> list[drawings.Figure]:
    draw = [drawings.training_figure]
    if outcome.training.name == "addition":
        draw.append(drawings.unit_figure)
    draw.append(drawings.measures_figure)
    if outcome.jumps:
        draw += [drawings.normalised_figure, drawings.leads_figure]
    return [each(outcome, folder) for each in draw]
