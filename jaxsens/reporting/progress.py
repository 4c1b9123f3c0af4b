"""What a run says while it goes on: bars, on a terminal only, and single lines.

Of several processes the first one speaks, and no other.
"""

import sys

from tqdm import tqdm

from jaxsens.core import hosts


class Bar:
    """One bar, moved by `update(done, total, note)`; a context manager.

    Args:
      label: what is going on.
      unit: what is counted.
      total: how many there are, if known.
      done: how many were done before, for a run that resumes.
    """

    def __init__(self, label: str, unit: str, total: int | None = None, done: int = 0) -> None:
        self._bar = tqdm(
            desc=label,
            unit=f" {unit}",
            total=total,
            initial=done,
            leave=False,
            disable=sys.stderr is None or not sys.stderr.isatty() or not hosts.is_first(),
        )

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


def say(message: str) -> None:
    """One line for the user, above any bar, on stderr."""
    if sys.stderr is not None and hosts.is_first():
        tqdm.write(f"jaxsens: {' '.join(message.split())}", file=sys.stderr)
