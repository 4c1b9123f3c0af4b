"""A bucket of Google Cloud Storage: the few requests that jaxsens makes, with errors as OSError.

An object is replaced whole or not at all, and every reader sees the new content at once. Each
content has a number, its generation; a request may ask that the object still has a certain one,
0 for none at all. That is all the safety that an object store gives, and what locks are made of.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: How long a request is tried again while the store does not answer, or says that it is busy.
PATIENCE_SECONDS = 60.0
_TIMEOUT_SECONDS = 20.0


class ChangedError(OSError):
    """An object has not the generation that was asked for: somebody else has written it."""


class Bucket:
    """One bucket, and a connection to it; not to be shared by threads.

    Args:
      name: of the bucket.
      patience: seconds for which a request that fails is tried again.
    """

    def __init__(self, name: str, patience: float = PATIENCE_SECONDS) -> None:
        self.name = name
        with _errors(name):
            from google.cloud.storage import Client
            from google.cloud.storage.retry import DEFAULT_RETRY

            # No request is made for a project: the bucket's name is enough.
            self._client = Client(**_project())
            self._bucket = self._client.bucket(name)
        retry = DEFAULT_RETRY.with_timeout(patience).with_delay(0.2, 8.0) if patience else None
        self._how: dict[str, Any] = {"retry": retry, "timeout": _TIMEOUT_SECONDS}

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def read(self, key: str) -> bytes:
        """The content of an object; FileNotFoundError if there is none."""
        with _errors(key):
            return self._bucket.blob(key).download_as_bytes(**self._how)

    def read_with_generation(self, key: str) -> tuple[bytes, int]:
        """The content of an object and its generation; FileNotFoundError if there is none."""
        with _errors(key):
            blob = self._bucket.blob(key)
            blob.reload(**self._how)
            # Of this generation, unless another one has come since: then FileNotFoundError.
            return blob.download_as_bytes(**self._how), blob.generation

    def exists(self, key: str) -> bool:
        """Whether there is an object of that name."""
        with _errors(key):
            return self._bucket.blob(key).exists(**self._how)

    def size(self, key: str) -> int:
        """The bytes of an object; FileNotFoundError if there is none."""
        with _errors(key):
            blob = self._bucket.blob(key)
            blob.reload(**self._how)
            return int(blob.size)

    def write(self, key: str, data: bytes, generation: int | None = None) -> int:
        """Replaces an object; the store compares the content with its checksum.

        Args:
          key: the object.
          data: its content.
          generation: what the object must have, 0 if it must not exist; None: any.

        Returns:
          Its new generation.

        Raises:
          ChangedError: the object has another one.
        """
        blob = self._bucket.blob(key)
        try:
            with _errors(key):
                blob.upload_from_string(
                    data,
                    "application/octet-stream",
                    if_generation_match=generation,
                    checksum="crc32c",
                    **self._how,
                )
        except ChangedError:
            # It may have been this very request, of which the first answer was lost.
            with contextlib.suppress(FileNotFoundError):
                there, number = self.read_with_generation(key)
                if there == data:
                    return number
            raise
        return blob.generation

    def upload(self, path: Path, key: str) -> None:
        """Makes an object of a file; the store compares the content with its checksum."""
        with _errors(key):
            blob = self._bucket.blob(key)
            blob.upload_from_filename(
                str(path), "application/octet-stream", checksum="crc32c", **self._how
            )

    def download(self, key: str, path: Path) -> None:
        """Makes a file of an object; FileNotFoundError if there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with _errors(key):
            self._bucket.blob(key).download_to_filename(str(path), **self._how)

    def delete(self, key: str, generation: int | None = None) -> None:
        """Deletes an object, if it is there; ChangedError if it has another generation."""
        with contextlib.suppress(FileNotFoundError), _errors(key):
            self._bucket.blob(key).delete(if_generation_match=generation, **self._how)

    def sizes(self, prefix: str) -> dict[str, int]:
        """The bytes of every object whose name begins so, by the rest of its name."""
        with _errors(prefix):
            blobs = self._client.list_blobs(self._bucket, prefix=prefix, **self._how)
            return {blob.name.removeprefix(prefix): blob.size for blob in blobs}

    def entries(self, prefix: str) -> set[str]:
        """The parts up to the next slash of every name that begins so."""
        with _errors(prefix):
            pages = self._client.list_blobs(self._bucket, prefix=prefix, delimiter="/", **self._how)
            found = {blob.name for blob in pages} | set(pages.prefixes)
        return {name.removeprefix(prefix).rstrip("/") for name in found} - {""}


def bucket(name: str) -> Bucket:
    """A bucket, over the connection that this process has."""
    return _connected(name, os.environ.get("STORAGE_EMULATOR_HOST"))


@functools.cache
def _connected(name: str, host: str | None) -> Bucket:
    return Bucket(name)


def _project() -> dict[str, str]:
    """A client wants a project, which some credentials do not have and objects do not need."""
    return {"project": os.environ.get("GOOGLE_CLOUD_PROJECT", "none")}


@contextlib.contextmanager
def _errors(key: str) -> Iterator[None]:
    """Errors of the client as OSError, in one line."""
    import google.api_core.exceptions as api
    import google.auth.exceptions as auth
    import requests

    try:
        yield
    except api.PreconditionFailed as error:
        raise ChangedError(errno.EAGAIN, "somebody else has written it", key) from error
    except api.NotFound as error:
        raise FileNotFoundError(errno.ENOENT, "no such bucket or object", key) from error
    except (api.Forbidden, api.Unauthorized, auth.GoogleAuthError) as error:
        raise PermissionError(errno.EACCES, _line(error), key) from error
    except (api.GoogleAPIError, requests.RequestException) as error:
        raise OSError(errno.EIO, _line(error), key) from error


def _line(error: Exception) -> str:
    return f"{' '.join(str(error).split()):.200}" or type(error).__name__
