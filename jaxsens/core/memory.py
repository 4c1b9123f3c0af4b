"""Refuses a computation that would not fit into memory before it starts, and says its bytes."""

import os


def physical_bytes() -> int:
    """Bytes of main memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def require(
    num_bytes: int, what: str, *, limit: int | None = None, remedy: str = "choose a smaller d"
) -> None:
    """Refuses a computation that needs more memory than there is.

    Args:
      num_bytes: bytes that it needs at its peak.
      what: what it computes, for the message.
      limit: bytes that may be used; default the main memory of this machine.
      remedy: what to do about it, for the message.

    Raises:
      ValueError: it needs more than the limit.

    >>> require(2**40, "the cube of d=40", limit=2**30)
    Traceback (most recent call last):
    ValueError: the cube of d=40 needs 1099511627776 bytes (1024.0 GiB), more than the 1073741824
    bytes (1.0 GiB) of memory; choose a smaller d
    """
    limit = physical_bytes() if limit is None else limit
    if num_bytes > limit:
        raise ValueError(
            f"{what} needs {num_bytes} bytes ({num_bytes / 2**30:.1f} GiB), more than the {limit} "
            f"bytes ({limit / 2**30:.1f} GiB) of memory; {remedy}"
        )
