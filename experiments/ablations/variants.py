"""The ViT as it is, and with one thing changed at a time."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from jaxsens.training.trainer import Recipe

from .._images.models import ModelSpec


@dataclass(frozen=True)
class Variants:
    """The reference, the ViT as it is, and its variants by what was changed."""

    reference: ModelSpec
    base: ModelSpec
    adam: ModelSpec
    depths: tuple[ModelSpec, ...]
    heads: tuple[ModelSpec, ...]

    @classmethod
    def of(
        cls,
        vit: ModelSpec,
        reference: ModelSpec,
        *,
        adam: Recipe,
        depths: Iterable[int],
        heads: Iterable[int],
    ) -> "Variants":
        """The variants of a ViT.

        Args:
          vit: the ViT as it is.
          reference: the model that all of them should stay below.
          adam: how it is trained in place of its own recipe.
          depths: numbers of blocks.
          heads: numbers of heads.
        """
        base = dataclasses.replace(vit, label=f"{vit.label}, SGD")
        return cls(
            reference=reference,
            base=base,
            adam=dataclasses.replace(
                base, name="vit-small-adam", label="ViT-small, Adam", recipe=adam, paper=None
            ),
            depths=tuple(_with(base, "depth", value) for value in depths),
            heads=tuple(_with(base, "heads", value) for value in heads),
        )

    def all(self) -> list[ModelSpec]:
        """Every model once; the ViT as it is stands among its depths and heads too."""
        specs = (self.reference, self.base, self.adam, *self.depths, *self.heads)
        return list({spec.name: spec for spec in specs}.values())

    def vits(self) -> list[ModelSpec]:
        """All of them but the reference."""
        return [spec for spec in self.all() if spec is not self.reference]


def _with(base: ModelSpec, field: Literal["depth", "heads"], value: int) -> ModelSpec:
    if getattr(base.model, field) == value:
        return base
    changed: dict[str, Any] = {field: value}
    return dataclasses.replace(
        base,
        name=f"vit-small-{field}-{value}",
        label=f"{field} {value}",
        model=base.model.clone(**changed),
        paper=None,
    )
