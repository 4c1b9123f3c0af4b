"""Grids and edits as words of a command line: `patches:4`, `gaussian:variance=5`.

    NAME[:VALUE[,VALUE…][,FIELD=VALUE…]]

The values are those of the class that the name stands for, in its order or by its fields.
"""

import contextlib
import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from jaxsens import perturbations
from jaxsens.cli.bounds import Bound
from jaxsens.cli.wording import nearest, shown

GRIDS: Mapping[str, Any] = {
    "bits": perturbations.Bits,
    "overlapping": perturbations.OverlappingPatches,
    "patches": perturbations.Patches,
    "tokens": perturbations.Tokens,
    "whole": perturbations.Whole,
}
EDITS: Mapping[str, Any] = {
    "ball": perturbations.Ball,
    "donor": perturbations.Donor,
    "flip": perturbations.Flip,
    "gaussian": perturbations.Gaussian,
    "replace": perturbations.Replace,
    "resample": perturbations.Resample,
}


def made_of(word: str, kinds: Mapping[str, Any]) -> Any:
    """The grid or edit that a word stands for.

    Args:
      word: as above.
      kinds: the classes by name.

    Raises:
      ValueError: there is none of that name, or it does not take these values.

    >>> made_of("patches:4", GRIDS), made_of("gaussian:variance=4", EDITS)
    (Patches(size=4), Gaussian(sigma=2, variance=4))
    """
    name, _, rest = word.partition(":")
    if name not in kinds:
        raise ValueError(f"there is no {shown(name)}{nearest(name, kinds)}")
    known = inspect.signature(kinds[name]).parameters
    parts = rest.split(",") if rest else []
    given = dict(zip(known, (part for part in parts if "=" not in part), strict=False))
    given |= dict(part.split("=", 1) for part in parts if "=" in part)
    for field in given:
        if field not in known:
            raise ValueError(f"{name} has no field {shown(field)}{nearest(field, known)}")
    if len(given) < len(parts):
        takes = ", ".join(known) or "nothing"
        raise ValueError(f"{name} takes {takes}; got {shown(rest)}")
    try:
        return kinds[name](**{field: _value(given[field], known[field]) for field in given})
    except TypeError as error:
        raise ValueError(f"{name} takes {', '.join(known)}; got {shown(rest)} ({error})") from None


def _value(text: str, parameter: inspect.Parameter) -> Any:
    """A number, whole unless the field takes others, or the text itself."""
    kinds = (float,) if "float" in str(parameter.annotation) else (int, float)
    for kind in kinds:
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


@dataclasses.dataclass(frozen=True)
class WordOf(Bound):
    """Words that stand for a grid, or for an edit.

    Attributes:
      what: "grid" or "edit"; which of the two.
    """

    what: str

    def problem(self, value: Any) -> tuple[str, str] | None:
        """What the class itself says of these values."""
        kinds = GRIDS if self.what == "grid" else EDITS
        example = "patches:4" if self.what == "grid" else "gaussian:variance=5"
        try:
            made_of(value, kinds)
        except ValueError as error:
            return f"a{'n' if self.what == 'edit' else ''} {self.what} such as {example}", str(
                error
            )
        return None


@dataclasses.dataclass(frozen=True)
class Samples(Bound):
    """A number of draws, or all replacements."""

    most: int = 10_000

    def problem(self, value: Any) -> tuple[str, str] | None:
        """Neither a whole number in range nor "all"."""
        if value == "all" or (value.isdecimal() and 1 <= int(value) <= self.most):
            return None
        return f"a whole number from 1 to {self.most}, or all", ""


@dataclasses.dataclass(frozen=True)
class FileName(Bound):
    """Texts that can name a file or a folder, a function, or both."""

    what: str

    def problem(self, value: Any) -> tuple[str, str] | None:
        """Empty, or no name that a file system can hold."""
        if value.strip() and "\0" not in value and value.isprintable():
            return None
        return self.what, "leave the flag out for none"
