"""The arms of a run: trainings that do not depend on each other.

One process makes them one after the other. With `--parallel-arms` other processes make them at the
same time in the same folder (`jaxsens.cli.arms`); then the first one goes through all of them, and
finds what they left.

Assumption: what an arm leaves in the folder has names of its own, and depends on no other arm.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from jaxsens.reporting.progress import steps
from jaxsens.reporting.run_folder import RunFolder


@runtime_checkable
class Arm(Protocol):
    """A training that depends on no other one of its run."""

    @property
    def name(self) -> str:
        """The key of its training in records and checkpoints."""

    @property
    def label(self) -> str:
        """Its name for readers."""


ArmT = TypeVar("ArmT", bound=Arm)
#: `make(folder, arms)`: has other processes make arms, all or some, and waits for them.
MakeAhead = Callable[[RunFolder, Sequence[Arm]], None]

#: What `in_parallel` was given, and what `alone` was; empty without.
_ahead: list[MakeAhead] = []
_alone: list[str] = []


class ArmDone(BaseException):
    """The arm that this process was to make is made; not an error, and for no handler of errors."""


def in_parallel(make: MakeAhead) -> None:
    """Has `make` called before the arms of this process's run are gone through."""
    _ahead[:] = [make]


def alone(name: str) -> None:
    """Has `arms` give this process one arm, after which `ArmDone` is raised."""
    _alone[:] = [name]


def one_after_the_other() -> None:
    """Takes back what `in_parallel` and `alone` have said: this process makes all arms in turn."""
    _ahead.clear()
    _alone.clear()


def arms(folder: RunFolder, items: Iterable[ArmT]) -> Iterator[ArmT]:
    """The arms of a run one by one, as `jaxsens.reporting.steps` gives them.

    Args:
      folder: the run's folder.
      items: all of them; the same ones in every process.

    Raises:
      ArmDone: this process makes one arm, and has.
    """
    listed = list(items)
    if _alone:
        yield from (item for item in listed if item.name == _alone[0])
        folder.write(mark_of(_alone[0]), "done\n")
        raise ArmDone
    for make in _ahead:
        make(folder, listed)
    yield from steps(listed, lambda item: item.label)


def mark_of(name: str) -> str:
    """The file of the run's folder that says that another process has made an arm."""
    return f"arms/{name}.txt"
