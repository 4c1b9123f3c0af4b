"""What can go wrong with a dataset: an unknown name, not there, damaged, or of no use here.

Messages quote names and contents of files, which may hold anything: line breaks, terminal codes,
halves of characters that cannot be printed, megabytes of brackets. So every message is made one
printable line of bounded length here.
"""

import difflib
from collections.abc import Iterable

_MAX_LENGTH = 900
_END_LENGTH = 200


def one_line(message: str) -> str:
    r"""Returns the message with escapes for what cannot be printed, and without its middle if long.

    Example:
      >>> one_line("a\nb\x1b[2J")
      'a\\nb\\x1b[2J'
    """
    if not message.isprintable():
        message = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)
    if len(message) <= _MAX_LENGTH:
        return message
    # What was expected stands at the start, what to do at the end.
    return f"{message[: _MAX_LENGTH - _END_LENGTH]} … {message[-_END_LENGTH:]}"


def require_known(what: str, value: str, known: Iterable[str]) -> None:
    """Raises ValueError, with the nearest name, unless `value` is one of the known names.

    Example:
      >>> require_known("split", "tset", ("train", "test"))
      Traceback (most recent call last):
      ValueError: unknown split 'tset': expected one of train, test; did you mean 'test'?
    """
    names = tuple(known)
    if value in names:
        return
    nearest = difflib.get_close_matches(value, names, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise ValueError(f"unknown {what} {value!r}: expected one of {', '.join(names)}{hint}")


class DatasetNotFoundError(FileNotFoundError):
    """No source has the dataset, or a file that belongs to it is missing.

    Example:
      >>> from jaxsens import corruptions
      >>> corruptions.load("fog", 3, data_dir="no/such/folder")
      Traceback (most recent call last):
      jaxsens.data.errors.DatasetNotFoundError: no CIFAR-10-C or cifar10c folder in ...
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class CorruptDataError(ValueError):
    """A file of the dataset is there, but cannot be read or does not hold what it promises.

    Example:
      >>> import pathlib, tempfile
      >>> from jaxsens import corruptions
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     _ = pathlib.Path(folder, "frost1.png").write_text("no picture")
      ...     corruptions.load_frost(folder)
      Traceback (most recent call last):
      jaxsens.data.errors.CorruptDataError: ...frost1.png: expected a PNG or JPEG image, ...
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class UnusableSourceError(Exception):
    """One source cannot serve the dataset; `load` tries the next and quotes the reason at the end.

    Internal: it never leaves `jaxsens.data`.
    """
