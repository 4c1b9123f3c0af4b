"""The flags of the experiment `grokking`, and the two trainings that a config asks for."""

from dataclasses import dataclass
from typing import Annotated, Literal

from jaxsens.cli.bounds import Count, Decay, Draws, Epochs, Range, Rate, Runs, Seed, Several, Sigma
from jaxsens.cli.config import ExperimentConfig
from jaxsens.core import memory
from jaxsens.models import BareTransformer

from .tasks import Addition, Parity
from .training import Arm, Training

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
