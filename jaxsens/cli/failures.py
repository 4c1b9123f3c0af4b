"""Errors that nobody foresaw: one line for the user, the traceback in a file."""

import contextlib
import os
import tempfile
import traceback
from collections.abc import Iterator

import jax

from jaxsens.core import peers
from jaxsens.reporting.run_folder import RunFolder, RunLostError


class UsageError(Exception):
    """Bad arguments, data or folders; the message is for the user."""


@contextlib.contextmanager
def of_usage() -> Iterator[None]:
    """What fails in here is the user's to mend: arguments, data, files, folders.

    Raises:
      UsageError: in place of ValueError and OSError, with their message.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error


class UnforeseenError(Exception):
    """Wraps an error whose traceback was written; the message is for the user."""


@contextlib.contextmanager
def logged(
    folder: RunFolder | None = None, expected: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Writes the traceback of any error to the folder's error.log and raises it as one line.

    Args:
      folder: the run's folder; None, or one that cannot be written to: a temporary file.
      expected: errors that explain themselves, which are let through.

    Raises:
      UnforeseenError: any other error happened.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (*expected, UnforeseenError)):
            raise
        if isinstance(error, jax.errors.JaxRuntimeError):
            # A device that waits for a process that is gone fails, too.
            peers.leave_if_lost(error)
        text = "".join(traceback.format_exception(error))
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise UnforeseenError(
            f"{said:.300}; the traceback is in {_written(text, folder)}"
        ) from error


def _written(text: str, folder: RunFolder | None) -> str:
    if folder is not None:
        with contextlib.suppress(OSError, RunLostError):
            return str(folder.log_error(text))
    try:
        descriptor, name = tempfile.mkstemp(prefix="jaxsens-error-", suffix=".log")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        return f"no file ({error.strerror})"
    return name
