"""What values the fields of a config may have: declared at the field, checked by one function.

    epochs: Epochs | None = None
    dropout: Annotated[float, Range(0, 1, "[)")] = 0.1
    depths: Annotated[tuple[Depth, ...], Several(at_least=0)] = ()

A number or a text without declared bounds is a mistake in the experiment and raises TypeError. The
upper ends are generous: beyond them lies what cannot have been meant (an epoch number of twenty
digits), what a 32-bit counter cannot hold, or what is infinite in float32. What several fields need
together, memory above all, is checked by the config itself (`ExperimentConfig.check`).
"""

import abc
import dataclasses
import functools
import math
import types
import typing
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from jaxsens.cli.wording import nearest, shown
from jaxsens.core import storage

#: Between them float32 is neither 0 nor infinite.
_TINY, _HUGE = 1e-30, 3e38


class Bound(abc.ABC):
    """What a single value must fulfil."""

    @abc.abstractmethod
    def problem(self, value: Any) -> tuple[str, str] | None:
        """What the value must be, and what to do; None if it is right."""


@dataclass(frozen=True)
class Range(Bound):
    """Numbers from `low` to `high`; finite ones, so nan and the infinities never are.

    Attributes:
      low: the lower end.
      high: the upper end.
      ends: which ends belong to it, as an interval is written.
      because: why it ends there, if that needs saying.
    """

    low: int | float
    high: int | float
    ends: Literal["[]", "[)", "()"] = "[]"
    because: str = ""

    def problem(self, value: Any) -> tuple[str, str] | None:
        """What the number must be, and the nearest one that is allowed."""
        if isinstance(value, float) and not math.isfinite(value):
            return "a finite number", f"give one between {self.low:g} and {self.high:g}"
        if self.low <= 0 and 0 < abs(value) < _TINY:
            return f"0 or at least {_TINY} (less is 0 in float32)", "the nearest is 0"
        above = value > self.low or (value == self.low and self.ends[0] == "[")
        below = value < self.high or (value == self.high and self.ends[1] == "]")
        if above and below:
            return None
        why = f" ({self.because})" if self.because else ""
        if self.ends != "[]":
            return f"in {self.ends[0]}{self.low:g}, {self.high:g}{self.ends[1]}{why}", ""
        if not above:
            positive = value <= 0 < self.low <= 1
            least = "positive" if positive else f"at least {self.low}"
            return least + why, f"the nearest is {self.low}"
        return f"at most {self.high}{why}", f"the nearest is {self.high}"


@dataclass(frozen=True)
class OneOf(Bound):
    """Some texts."""

    choices: tuple[str, ...]

    def problem(self, value: Any) -> tuple[str, str] | None:
        """The choice that was meant."""
        if value in self.choices:
            return None
        return "a known name", nearest(value, self.choices).removeprefix("; ")


@dataclass(frozen=True)
class FolderName(Bound):
    """Texts that can name a folder; whether there is one is seen when it is read.

    Attributes:
      remote: whether it may lie in an object store.
    """

    remote: bool = False

    def problem(self, value: Any) -> tuple[str, str] | None:
        """Empty, not a name that a file system can hold, or in a store that cannot be used."""
        try:
            if isinstance(value, str) and storage.is_remote(value):
                here = ("a folder of this machine", "copy it there")
                return storage.problem(value) if self.remote else here
            if isinstance(value, str) and value.startswith("gs:/"):
                return "a folder or gs://BUCKET/FOLDER", "write two slashes after gs:"
            if value.strip() and "\0" not in value and value.encode():
                return None
        except UnicodeEncodeError:
            pass
        return "the name of a folder", "leave the flag out for none"


@dataclass(frozen=True)
class Several:
    """Lists of at least so many values, each of them once."""

    at_least: int = 1

    def check(self, name: str, values: Collection[Any]) -> None:
        """Raises ValueError unless there are enough and none is there twice."""
        text = ", ".join(each if isinstance(each, str) else shown(each) for each in values)
        if len(values) < self.at_least:
            raise ValueError(
                f"{name} must have at least {self.at_least} of them; got {text or 'none'}; name "
                f"{self.at_least - len(values)} more"
            )
        twice = [each for i, each in enumerate(values) if each in list(values)[:i]]
        if twice:
            raise ValueError(f"{name}: {twice[0]} is named twice: {text}; name each once")


#: Beyond this no run counts anything, and 32-bit indices end soon.
LARGEST = 10**9

Count = Annotated[int, Range(1, LARGEST)]
Epochs = Annotated[int, Range(1, 10**7)]
Draws = Annotated[int, Range(1, 10_000)]
Runs = Annotated[int, Range(2, 10_000, because="an interval needs two")]
#: A deeper network takes hours to compile.
Depth = Annotated[int, Range(1, 100)]
Rate = Annotated[float, Range(_TINY, _HUGE)]
Decay = Annotated[float, Range(0, 1e6)]
Variance = Annotated[float, Range(0, 1e6)]
Sigma = Annotated[float, Range(0, 1e3)]
Seed = Annotated[int, Range(0, 2**32 - 1, because="random keys are made from 32 bits")]
Folder = Annotated[str, FolderName()]
#: Of a run: on this machine, or gs://BUCKET/FOLDER.
RunName = Annotated[str, FolderName(remote=True)]


@dataclass(frozen=True)
class Declared:
    """What a field may hold, read from its annotation.

    Attributes:
      kind: type of a single value.
      choices: all single values, if they are listed.
      bounds: what a single value must fulfil.
      optional: whether None stands for "left open".
      several: how many values a list has; None for a single value.
    """

    kind: Any
    choices: tuple[Any, ...] = ()
    bounds: tuple[Bound, ...] = ()
    optional: bool = False
    several: Several | None = None

    @classmethod
    def of(cls, hint: Any) -> "Declared":
        """Reads an annotation; TypeError for one that is not a flag's."""
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is Annotated:
            return cls.of(arguments[0])._with(arguments[1:])
        if origin is Literal:
            return cls(type(arguments[0]), choices=arguments)
        if origin is tuple and arguments[1:] == (...,):
            return dataclasses.replace(cls.of(arguments[0]), several=Several(at_least=0))
        if origin in (typing.Union, types.UnionType) and type(None) in arguments:
            (given,) = (each for each in arguments if each is not type(None))
            return dataclasses.replace(cls.of(given), optional=True)
        if origin is not None:
            raise TypeError(f"expected a number, a text, choices or a tuple of them, got {hint}")
        return cls(hint)

    def _with(self, metadata: tuple[Any, ...]) -> "Declared":
        bounds = tuple(each for each in metadata if isinstance(each, Bound))
        several = next((each for each in metadata if isinstance(each, Several)), self.several)
        return dataclasses.replace(self, bounds=self.bounds + bounds, several=several)

    @property
    def bounded(self) -> bool:
        """Whether the annotation says what values there are; a bool's are known."""
        return bool(self.kind is bool or self.choices or self.bounds)

    def check(self, name: str, value: Any) -> None:
        """Raises ValueError, in one line that names the field, for a value that is not allowed."""
        if value is None and self.optional:
            return
        if self.several is not None:
            self.several.check(name, value)
        for each in (value,) if self.several is None else value:
            self._check_single(name, each)

    def _check_single(self, name: str, value: Any) -> None:
        if self.choices:
            if value not in self.choices:
                raise ValueError(
                    f"{name} has no choice {shown(value)}{nearest(str(value), self.choices)}"
                )
            return
        accepted: Any = (int, float) if self.kind is float else self.kind
        if not isinstance(value, accepted) or (isinstance(value, bool) and self.kind is not bool):
            raise ValueError(f"{name} must be of type {self.kind.__name__}; got {shown(value)}")
        for bound in self.bounds:
            problem = bound.problem(value)
            if problem is not None:
                raise ValueError(
                    f"{name} must be {problem[0]}; got {shown(value)}"
                    + (f"; {problem[1]}" if problem[1] else "")
                )


def check_fields(config: Any) -> None:
    """Raises ValueError, in one line, for a field of a config dataclass that is out of its bounds.

    Raises:
      TypeError: a field declares none.
    """
    for name, declared in declared_fields(type(config)).items():
        if not declared.bounded:
            raise TypeError(f"{name} declares no bounds; see jaxsens/cli/bounds.py")
        declared.check(name, getattr(config, name))


def declared_fields(config: type) -> dict[str, Declared]:
    """What the fields of a dataclass may hold."""
    return _declared_fields(config)


@functools.cache
def _declared_fields(config: type) -> dict[str, Declared]:
    hints = typing.get_type_hints(config, include_extras=True)
    return {field.name: Declared.of(hints[field.name]) for field in dataclasses.fields(config)}
