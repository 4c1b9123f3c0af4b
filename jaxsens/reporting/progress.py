"""What a run says while it goes on: bars, on a terminal only, and single lines.

A bar is of one piece of work, such as training a model. `steps` puts one over all of them: what is
done, what goes on, what comes, and when all will be ready. Both fit the width of the terminal: what
matters least is left out first.

Of several processes the first one speaks, and no other.
"""

import datetime
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

from jaxsens.core import hosts
from jaxsens.reporting.terminal import TerminalLine, broken

ItemT = TypeVar("ItemT")
#: Seconds; whatever is done sooner was there already.
_BRIEF = 1.0


class Bar:
    """One bar, moved by `update(done, total, note)`; a context manager.

    Args:
      label: what is going on.
      unit: what is counted; empty if that is not always the same.
      total: how many there are, if known.
      done: how many were done before, for a run that resumes.

    Example:
      >>> with Bar("training", "step", total=2) as bar:  # a terminal shows it, on stderr
      ...     for step in (1, 2):
      ...         bar.update(step, 2, f"loss {1 / step:.1f}")
    """

    def __init__(self, label: str, unit: str, total: int | None = None, done: int = 0) -> None:
        self._bar = TerminalLine(desc=label, unit=f" {unit}".rstrip(), total=total, initial=done)

    def update(self, done: int, total: int, note: str) -> None:
        """Moves the bar to `done` of `total`."""
        self._bar.total = total
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(done - self._bar.n)
        if done == total:
            self._bar.refresh()

    def measured(self, done: int, total: int, mean: float) -> None:
        """The form of `update` that `jaxsens.sensitivity` calls."""
        self.update(done, total, f"sensitivity {mean:.4f}")

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()


class Steps:
    """The steps of a run, one after the other, and when the last will be done.

    Steps are taken to last equally long, so the time is a guess that gets better. One that lasts
    longer than expected is taken to need as long as it has lasted, times the share that is left.
    What an earlier session did takes no time, and tells nothing of the rest.

    Args:
      names: of all steps, in their order.
      clock: gives the time, in seconds.
    """

    def __init__(self, names: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._names, self._clock = list(names), clock
        self._worked = self._seconds = 0.0  # steps that this session has done, and their time
        self._current, self._since = 0, clock()
        # Of the current step: how much is done, and how much of that was there before.
        self._share = self._done_before = 0.0

    def begin(self) -> None:
        """The current step is done, and the next one begins."""
        if self._clock() - self._since >= _BRIEF:
            self._worked += 1 - self._done_before
            self._seconds += self._clock() - self._since
        self._current += 1
        self._since, self._share, self._done_before = self._clock(), 0.0, 0.0

    def moved(self, share: float) -> None:
        """The current step is done to this share; the first one may be an earlier session's."""
        if self._clock() - self._since < _BRIEF:
            self._done_before = share
        self._share = share

    def seconds_left(self) -> float | None:
        """How long the rest will take; None as long as nothing is known."""
        worked = self._worked + self._share - self._done_before
        if worked <= 0:
            return None
        elapsed = self._clock() - self._since
        each = (self._seconds + elapsed) / worked
        here = 1 - self._done_before
        rest = (1 - self._share) / here if here > 0 else 0.0
        return rest * max(each * here, elapsed) + each * (len(self._names) - self._current - 1)

    def text(self, width: int = 1000) -> str:
        """What is done, what goes on, what comes, and when all is ready.

        Args:
          width: columns; names that have no room are counted instead, those of what is done first.
        """
        done, then = self._names[: self._current], self._names[self._current + 1 :]
        left, ready = self.seconds_left(), ""
        if left is not None:
            at = datetime.datetime.now() + datetime.timedelta(seconds=left)
            ready = f"all ready in about {_rounded(left)}, at {at:%H:%M}"
        now = f"now: {self._names[self._current]}"
        for most_done, most_then in ((3, 3), (1, 3), (0, 3), (0, 2), (0, 1), (0, 0)):
            before, after = _listed("done", done, most_done), _listed("then", then, most_then)
            text = "; ".join(filter(None, [before, now, after, ready]))
            if len(text) <= width:
                return text
        text = "; ".join(filter(None, [now, ready]))
        return text if len(text) <= width else text[: width - 1] + "…"


class _StepsLine(TerminalLine):
    """The line of all steps."""

    def __init__(self, plan: Steps) -> None:
        self._plan = plan
        super().__init__(position=0)

    def __str__(self) -> str:
        return self._plan.text(self.format_dict["ncols"] or 1000)


#: The steps of the run that goes on, and their line.
_going_on: list[tuple[Steps, _StepsLine]] = []


def steps(items: Iterable[ItemT], name: Callable[[ItemT], str] = str) -> Iterator[ItemT]:
    """The items one by one, with a bar over all of them: models of a run, or its parts.

    Work inside tells how far it is by `step_moved`, else the bar moves from item to item. Steps
    inside a step have no bar.

    Args:
      items: what the run goes through.
      name: what readers call an item.

    Example:
      >>> [model for model in steps(["CNN", "ViT"])]
      ['CNN', 'ViT']
    """
    listed = list(items)
    if _going_on or not listed:
        yield from listed
        return
    plan = Steps(map(name, listed))
    line = _StepsLine(plan)
    _going_on.append((plan, line))
    try:
        for i, item in enumerate(listed):
            if i:
                plan.begin()
            line.refresh()
            yield item
    finally:
        _going_on.clear()
        line.close()


def step_moved(done: int, total: int) -> None:
    """Says how far the current step of `steps` is, if there is one.

    Example:
      >>> for model in steps(["CNN", "ViT"]):
      ...     for epoch in (1, 2):
      ...         step_moved(epoch, 2)
    """
    for plan, line in _going_on:
        plan.moved(done / max(total, 1))
        line.refresh()


def say(message: str) -> None:
    """One line for the user, above any bar, on stderr; a terminal breaks it between words.

    Example:
      >>> say("no CIFAR-10-C here: made anew")  # on stderr: jaxsens: no CIFAR-10-C here: made anew
    """
    if sys.stderr is not None and hosts.is_first():
        line = f"jaxsens: {' '.join(message.split())}"
        tqdm.write(broken(line, sys.stderr, "  "), file=sys.stderr)


def _listed(what: str, names: list[str], most: int) -> str:
    """The first names, and how many more there are; their number if there is no room for any.

    >>> [_listed("done", ["a", "b", "c", "d", "e"], most) for most in (3, 0)]
    ['done: a, b, c and 2 more', 'done: 5']
    >>> _listed("then", ["CNN, seed 1", "ViT, seed 1"], 3)
    'then: CNN, seed 1 / ViT, seed 1'
    """
    if not names:
        return ""
    if not most:
        return f"{what}: {len(names)}"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    between = " / " if any("," in name for name in names) else ", "
    return f"{what}: {between.join(names[:most])}{more}"


def _rounded(seconds: float) -> str:
    """A time that nobody knows exactly.

    >>> [_rounded(s) for s in (0.2, 48.0, 100.0, 5e3)]
    ['10 s', '50 s', '2 min', '1 h 23 min']
    """
    if seconds < 55:
        return f"{max(10, round(seconds, -1)):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
