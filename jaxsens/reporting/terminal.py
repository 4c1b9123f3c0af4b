"""Lines of a terminal: bars that fit its width and are drawn again every second.

While a program is compiled nothing moves a bar; one that stood still would look like a run that
does, and its time left would be that of then.

Assumption: every character is as wide as any other.
"""

import shutil
import sys
import textwrap
import threading
from typing import Any

from tqdm import tqdm

from jaxsens.core import hosts

#: Seconds between two drawings of what nothing moves.
_TICK = 1.0
#: Columns of a bar; a narrower one says nothing, a wider one no more.
_NARROW, _WIDE = 4, 30
#: A column of a bar, from empty to full.
_EIGHTHS = " ▏▎▍▌▋▊▉█"


class TerminalLine(tqdm):
    """A line of a terminal, drawn again every second until it is closed."""

    def __init__(self, **arguments: Any) -> None:
        disable = not on_terminal()
        super().__init__(leave=False, dynamic_ncols=True, disable=disable, **arguments)
        if not disable:
            _redrawn.add(self)

    @staticmethod
    def format_meter(
        n: float | int, total: float | int | None, elapsed: float | int, **said: Any
    ) -> str:
        """What tqdm shows: see `bar_line`."""
        return bar_line(n, total, elapsed, **said)

    def close(self) -> None:
        """Takes the line away."""
        _redrawn.discard(self)
        super().close()


class _Redrawn:
    """The lines that are on the terminal, and a thread that draws them as long as there are any."""

    def __init__(self) -> None:
        self._lines: list[TerminalLine] = []
        self._ended = threading.Event()

    def add(self, line: TerminalLine) -> None:
        """Draws the line every second from now on."""
        self._lines.append(line)
        if len(self._lines) == 1:
            self._ended = threading.Event()
            threading.Thread(target=self._draw, args=[self._ended], daemon=True).start()

    def discard(self, line: TerminalLine) -> None:
        """No longer draws the line."""
        self._lines = [each for each in self._lines if each is not line]
        if not self._lines:
            self._ended.set()

    def _draw(self, ended: threading.Event) -> None:
        while not ended.wait(_TICK):
            for line in self._lines:
                line.refresh()


_redrawn = _Redrawn()


def on_terminal() -> bool:
    """Whether somebody sees what this process shows while it goes on."""
    return sys.stderr is not None and sys.stderr.isatty() and hosts.is_first()


def broken(line: str, stream: Any, indent: str = "") -> str:
    """A line, broken between words if the stream is a terminal that is not as wide.

    Args:
      line: the line.
      stream: where it will be written.
      indent: before all but its first part.
    """
    if not stream.isatty():
        return line
    return textwrap.fill(
        line,
        shutil.get_terminal_size().columns,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def bar_line(
    n: float | int,
    total: float | int | None,
    elapsed: float | int,
    *,
    ncols: int | None = None,
    prefix: str = "",
    unit: str = "",
    rate: float | int | None = None,
    postfix: str | None = None,
    initial: float | int = 0,
    ascii: bool = False,
    **_: Any,
) -> str:
    """Label, bar, share, count, what was found so far, time left and rate, as far as there is room.

    The arguments are those of tqdm's `format_meter`.

    >>> said = {"prefix": "ViT: measuring", "unit": " examples", "postfix": "sensitivity 0.03"}
    >>> for width in (90, 80, 50):
    ...     print(bar_line(272, 1437, 2.4, ncols=width, **said))
    ViT: measuring ██▋             19%  272/1437 examples  sensitivity 0.03  00:10 left  113/s
    ViT: measuring ▊     19%  272/1437 examples  sensitivity 0.03  00:10 left  113/s
    ViT: measuring ██▎           19%  sensitivity 0.03
    >>> bar_line(0, None, 12.0, prefix="ViT: measuring")
    'ViT: measuring  00:12 so far'
    """
    label, note, width = prefix.removesuffix(": "), postfix or "", ncols or 1000
    speed = rate or ((n - initial) / elapsed if elapsed > 0 else 0.0)
    if not total or n <= initial or not speed:
        waited = f"{tqdm.format_interval(elapsed)} so far"
        parts = [label, f"{n:.0f}/{total:.0f}{unit}" if total else "", note, waited]
        return "  ".join(filter(None, parts))[:width]
    left = f"{tqdm.format_interval((total - n) / speed)} left"
    pace = f"{speed:.{0 if speed >= 10 else 1}f}/s" if speed >= 1 else f"{1 / speed:.1f} s each"
    count, share = f"{n:.0f}/{total:.0f}", f"{n / total:4.0%}"
    for parts in (
        [count + unit, note, left, pace],
        [count, note, left, pace],
        [count, note, left],
        [note, left],
        [note],
    ):
        behind = "  ".join(filter(None, [share, *parts]))
        room = min(width - len(label) - len(behind) - 2, _WIDE)
        if room >= _NARROW:
            break
    return f"{label} {blocks(n / total, room, ' #' if ascii else _EIGHTHS)} {behind}"[:width]


def blocks(share: float, width: int, steps: str = _EIGHTHS) -> str:
    """A bar of so many columns.

    Args:
      share: how much of it is filled.
      width: its columns.
      steps: what a column looks like, from empty to full.

    >>> blocks(0.4, 4) + "|", blocks(0.4, 4, " #") + "|"
    ('█▋  |', '##  |')
    """
    full = len(steps) - 1
    whole, rest = divmod(round(full * max(width, 0) * min(share, 1.0)), full)
    return (steps[-1] * whole + steps[rest] * (rest > 0)).ljust(width)
