"""Warnings that name the user's own line, and old names that still work with such a warning."""

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns with the line that called jaxsens, however deep inside of it the warning arises.

    Args:
      message: what to say.
      category: the kind of warning.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("jaxsens."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def renamed_keyword(old: str, new: str) -> Callable[[Function], Function]:
    """Lets a function, or the constructor of a class, take a keyword by its old name too.

    The old name gives a DeprecationWarning; both names at once are a TypeError.

    Args:
      old: the keyword's former name.
      new: its present name.

    >>> @renamed_keyword("colour", "color")
    ... def paint(color): return f"painted {color}"
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     print(paint(colour="red"), "|", caught[0].message)
    painted red | paint(colour=) is now paint(color=)
    """

    def decorate(function: Any) -> Any:
        called: Any = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]

        @functools.wraps(called)
        def translated(*args: Any, **kwargs: Any) -> Any:
            if old in kwargs:
                name = function.__name__
                if new in kwargs:
                    raise TypeError(f"{name} takes {new}=, formerly {old}=; got both")
                warn_user(f"{name}({old}=) is now {name}({new}=)", DeprecationWarning)
                kwargs[new] = kwargs.pop(old)
            return called(*args, **kwargs)

        if not isinstance(function, type):
            return translated
        function.__init__ = translated  # type: ignore[misc]
        return function

    return decorate


def renamed_attribute(old: str, new: str) -> Any:
    """A property that gives an attribute by its old name, with a DeprecationWarning.

    Args:
      old: the attribute's former name.
      new: its present name.
    """

    def read(self: Any) -> Any:
        kind = type(self).__name__
        warn_user(f"{kind}.{old} is now {kind}.{new}", DeprecationWarning)
        return getattr(self, new)

    return property(read, doc=f"The old name of `{new}`.")
