"""What the experiment `language` trains: the models, their other depths, the authors' LSTM."""

import dataclasses
from dataclasses import dataclass

from jaxsens.models import TextModel
from jaxsens.training.trainer import Recipe

from .config import Config
from .paper import LABELS, ModelName, paper_values


@dataclass(frozen=True)
class TextModelSpec:
    """One model and its way of training.

    Attributes:
      name: its key in records, checkpoints and results.
      label: its name in tables and figures.
      model: the network.
      recipe: optimiser and learning rate.
      key_index: which of the seed's random keys it uses.
      paper: the paper's sensitivity, if it gives one.
      seed: what is added to the run's seed.
    """

    name: str
    label: str
    model: TextModel
    recipe: Recipe
    key_index: int
    paper: float | None = None
    seed: int = 0

    @property
    def in_full(self) -> bool:
        """Whether it is measured in every way, or in the main way alone."""
        return self.name.removesuffix(f"-seed-{self.seed}") in LABELS


def model_specs(config: Config, vocab_size: int) -> list[TextModelSpec]:
    """What is trained: the models, their other depths, and the LSTM as the authors trained it."""
    size = config.size(vocab_size)
    recipe = Recipe(
        *("adamw", config.learning_rate or 0.0, config.batch_size, "step"),
        decay=config.decay,
        decay_epochs=1,
        weight_decay=config.weight_decay,
    )
    paper = paper_values(config.dataset, config.variances[0])
    found = [
        TextModelSpec(
            name=name,
            label=LABELS[name],
            model=size.build(name),
            recipe=recipe,
            key_index=list(LABELS).index(name),
            paper=paper.get(name),
        )
        for name in config.models
    ]
    by_name = {spec.name: spec for spec in found}
    for name, depth in ((n, d) for d in config.depths for n in ("roberta-softmax", "lstm")):
        if name in by_name and depth != config.depth:
            base = by_name[name]
            model = dataclasses.replace(size, depth=depth).build(_model_name(name))
            found.append(
                dataclasses.replace(
                    base,
                    name=f"{name}-depth-{depth}",
                    label=with_depth(base.label, depth),
                    model=model,
                    paper=None,
                )
            )
    if config.authors and "lstm" in by_name:
        frozen = dataclasses.replace(recipe, schedule="constant", frozen=("words", "norm", "head"))
        found.append(
            dataclasses.replace(
                by_name["lstm"], name="lstm-frozen", label="LSTM, frozen", recipe=frozen, paper=None
            )
        )
    return found


def with_depth(label: str, depth: int) -> str:
    """A model's label with its number of layers."""
    return f"{label}, {depth} layer{'s' * (depth > 1)}"


def _model_name(name: str) -> ModelName:
    return "lstm" if name == "lstm" else "roberta-softmax"
