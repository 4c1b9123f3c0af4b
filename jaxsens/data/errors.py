"""What can go wrong with a dataset: not there, damaged, or one source cannot serve it.

Messages quote names and contents of files, which may hold anything: line breaks, terminal codes,
halves of characters that cannot be printed. So every message is made one printable line here.
"""


def one_line(message: str) -> str:
    r"""Returns the message with every character that cannot be printed written as an escape.

    Example:
      >>> one_line("a\nb\x1b[2J")
      'a\\nb\\x1b[2J'
    """
    if message.isprintable():
        return message
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)


class DatasetNotFoundError(FileNotFoundError):
    """No source has the dataset, or a file that belongs to it is missing."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class CorruptDataError(ValueError):
    """A file of the dataset is there, but cannot be read or does not hold what it promises."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class UnusableSourceError(Exception):
    """One source cannot serve the dataset; `load` tries the next and quotes the reason at the end.

    Internal: it never leaves `jaxsens.data`.
    """
