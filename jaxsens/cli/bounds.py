"""What values the fields of a config may have: declared at the field, checked by one function.

    epochs: Epochs | None = None
    dropout: Annotated[float, Range(0, 1, "[)")] = 0.1
    depths: Annotated[tuple[Depth, ...], Several(at_least=0)] = ()

A number or a text without declared bounds is a mistake in the experiment and raises TypeError. The
upper ends are generous: beyond them lies what cannot have been meant (an epoch number of twenty
digits), what a 32-bit counter cannot hold, or what is infinite in float32. What several fields need
together, memory above all, is checked by the config itself (`ExperimentConfig.check`).
"""

import functools
import math
import types
import typing
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from jaxsens.cli.wording import nearest, shown


@runtime_checkable
class Bound(Protocol):
    """What a single value must fulfil."""

    def problem(self, value: Any) -> tuple[str, str] | None:
        """What the value must be, and what to do; None if it is right."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`; finite ones, so nan and the infinities never are.

    Attributes:
        low: The lower end.
        high: The upper end.
        ends: Which ends belong to it, as an interval is written.
        because: Why it ends there, if that needs saying.
    """

    low: int | float
    high: int | float
    ends: Literal["[]", "[)", "()"] = "[]"
    because: str = ""

    def problem(self, value: Any) -> tuple[str, str] | None:
        """What the number must be, and the nearest one that is allowed."""
        if not math.isfinite(value):
            return "a finite number", f"give one between {self.low:g} and {self.high:g}"
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
class OneOf:
    """Some texts."""

    choices: tuple[str, ...]

    def problem(self, value: Any) -> tuple[str, str] | None:
        """The choice that was meant."""
        if value in self.choices:
            return None
        return "a known name", nearest(value, self.choices).removeprefix("; ")


@dataclass(frozen=True)
class FolderName:
    """Texts that can name a folder; whether there is one is seen when it is read."""

    def problem(self, value: Any) -> tuple[str, str] | None:
        """Empty, or not a name that a file system can hold."""
        try:
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
        text = ", ".join(shown(each) if isinstance(each, float) else str(each) for each in values)
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
#: Between them float32 is neither 0 nor infinite.
_TINY, _HUGE = 1e-30, 3e38

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


def check_fields(config: Any) -> None:
    """Raises ValueError, in one line, for a field of a config dataclass that is out of its bounds.

    Raises:
        TypeError: A field declares none.
    """
    for name, hint in field_types(type(config)).items():
        _check(name, getattr(config, name), hint, ())


def field_types(config: type) -> dict[str, Any]:
    """The fields of a dataclass and their annotations, with the declared bounds."""
    return _field_types(config)


@functools.cache
def _field_types(config: type) -> dict[str, Any]:
    hints = typing.get_type_hints(config, include_extras=True)
    return {name: hints[name] for name in config.__dataclass_fields__}  # type: ignore[attr-defined]


def _check(name: str, value: Any, hint: Any, declared: tuple[Any, ...]) -> None:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _check(name, value, arguments[0], (*declared, *hint.__metadata__))
    if origin in (typing.Union, types.UnionType):
        (given,) = (each for each in arguments if each is not type(None))
        return None if value is None else _check(name, value, given, declared)
    if origin is tuple:
        (several,) = (each for each in declared if isinstance(each, Several))
        several.check(name, value)
        for each in value:
            _check(name, each, arguments[0], ())
        return None
    if origin is Literal:
        return _one_of(name, value, arguments)
    return _check_single(name, value, hint, declared)


def _one_of(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise ValueError(
            f"{name} has no choice {shown(value)}{nearest(str(value), map(str, choices))}"
        )


def _check_single(name: str, value: Any, kind: type, declared: tuple[Any, ...]) -> None:
    accepted: Any = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name} must be of type {kind.__name__}; got {shown(value)}")
    bounds = [each for each in declared if isinstance(each, Bound)]
    if not bounds and kind is not bool:
        raise TypeError(f"{name} declares no bounds; see jaxsens/cli/bounds.py")
    for bound in bounds:
        problem = bound.problem(value)
        if problem is not None:
            expected, advice = problem
            raise ValueError(
                f"{name} must be {expected}; got {shown(value)}" + (f"; {advice}" if advice else "")
            )
