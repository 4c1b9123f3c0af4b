"""A page over all runs: `python -m jaxsens.gallery [RUNS]` writes RUNS/index.html.

    python -m jaxsens.gallery           all run folders below runs/
    python -m jaxsens.gallery DIR       all run folders below DIR

The page is one file that asks nothing of the network and works from a disk: a table to sort and to
filter, small pictures, and two runs side by side with what differs in their configs and numbers.
Without script it shows everything, unsorted. Unfinished and damaged folders are shown as such. The
folders are only read; the same command again brings the page up to date.

Exit status: 0 done, 2 bad arguments or folders.
"""

import argparse
import datetime
import sys
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from jaxsens.cli.wording import shown
from jaxsens.core.files import write_atomic
from jaxsens.reporting import report
from jaxsens.reporting.progress import say
from jaxsens.reporting.run_cards import RunCard, find_runs, is_run, read_card

EXIT_USAGE = 2
_TEMPLATE = "gallery.html.jinja"
#: Every page of this module has it, so that no other file is written over.
_MARK = '<meta name="generator" content="jaxsens gallery">'


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    try:
        root = _parsed(sys.argv[1:] if arguments is None else arguments)
        print(write(root))
    except (ValueError, OSError) as error:
        say(" ".join(str(error).split()))
        return EXIT_USAGE
    return 0


def write(root: Path) -> str:
    """Writes the page and says in one line what is on it.

    Args:
      root: the folder with the run folders.

    Raises:
      ValueError: there is no run folder below it, or its index.html is another's.
    """
    page = root / "index.html"
    if not root.is_dir():
        raise ValueError(f"{root} is not a folder; give the one that holds the run folders")
    if is_run(root):
        raise ValueError(f"{root} is a run folder itself; give the folder above it")
    if page.exists() and _MARK not in page.read_text("utf-8", errors="replace")[:2000]:
        raise ValueError(f"{page} was not made by jaxsens.gallery; move it away")
    cards = [read_card(folder, root) for folder in find_runs(root)]
    if not cards:
        raise ValueError(f"no run folder below {root}: none has a config.json or a results.json")
    cards.sort(key=lambda card: (-(card.when or 0.0), card.folder))
    write_atomic(page, render(cards, root.resolve().name))
    counts = {state: sum(card.state == state for card in cards) for state in _STATES}
    said = ", ".join(f"{num} {state}" for state, num in counts.items() if num)
    return f"{len(cards)} runs: {said}; page: {page}"


_STATES = ("finished", "failed", "unfinished", "damaged")


def render(cards: Sequence[RunCard], name: str) -> str:
    """The page as text: a function of what the folders say."""
    return report.template(_TEMPLATE).render(
        mark=_MARK,
        name=name,
        cards=cards,
        data=[_for_script(card) for card in cards],
        duration=report.duration,
        date=_date,
        quote=urllib.parse.quote,
    )


def _for_script(card: RunCard) -> dict[str, Any]:
    """What the script compares."""
    return {
        "folder": card.folder,
        "config": {"experiment": card.experiment, "commit": card.commit} | card.config,
        "numbers": card.numbers,
        "claims": {claim.statement: claim.holds for claim in card.claims},
    }


def _date(seconds: float) -> str:
    """A time for readers.

    >>> _date(0.0)
    '1970-01-01 00:00'
    """
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M")


class _Parser(argparse.ArgumentParser):
    """Raises what argparse would print in several lines and leave with."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; --help shows how it is called")


def _parsed(arguments: Sequence[str]) -> Path:
    """The folder; ValueError, in one line, for bad arguments."""
    parser = _Parser(
        prog="python -m jaxsens.gallery",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("runs", metavar="RUNS", nargs="?", default="runs", help="default: runs")
    options, rest = parser.parse_known_args(arguments)
    if rest:
        raise ValueError(f"expected one folder RUNS; got {shown(rest[0])} as well")
    return Path(options.runs).expanduser()


if __name__ == "__main__":
    sys.exit(main())
