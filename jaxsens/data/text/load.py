"""The text datasets by name, and the order in which their sources are tried.

The order is that of the images: generated, files, a folder prepared by TensorFlow Datasets, a
download. The first source that has the dataset is used, also if it holds a subset: look at the
number of examples. A damaged or half-present copy is an error, never skipped.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path

from jaxsens.data.errors import DatasetNotFoundError, UnusableSourceError
from jaxsens.data.generated import paraphrases
from jaxsens.data.registry import download_roots, require_known, search_paths
from jaxsens.data.sources.tfds import shared_roots
from jaxsens.data.text import files
from jaxsens.data.text.fetch import fetch_text
from jaxsens.data.text.prepared import read_prepared
from jaxsens.data.text.spec import TEXT_SPLITS, TextSpec, text_spec
from jaxsens.data.text.texts import Texts


def load_text(
    name: str,
    split: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    skip_bad_rows: bool = False,
) -> Texts:
    """Returns a split as texts, or pairs of texts, and labels.

    Texts are as stored but for white space at both ends. Labels are 0 or 1; `text_spec` names them.

    Args:
      name: one of `TEXT_NAMES`.
      split: "train" or "validation". IMDB has no validation split: its test split is read.
      data_dir: where to look first, and where to put a download. Default: the environment variable
        `JAXSENS_DATA`, and for a download the folder of TensorFlow Datasets (`TFDS_DATA_DIR` or
        `~/tensorflow_datasets`), which is looked at in any case.
      skip_bad_rows: leave out rows that are not UTF-8, have another number of columns than the
        header, an empty text or an unknown label, and warn which (after 20, how many more).

    Raises:
      ValueError: unknown name or split.
      DatasetNotFoundError: no source has it; the message says where it looked and how to get it.
      CorruptDataError: a file is there but damaged, or a row is bad; with file and line.

    Example:
      >>> texts = load_text("paraphrases", "validation")
      >>> len(texts), texts.labels.dtype, texts.labels.mean()
      (1000, dtype('int32'), np.float64(0.5))
    """
    spec = text_spec(name)
    require_known("split", split, TEXT_SPLITS)
    if name == "paraphrases":
        return paraphrases.read(split)

    roots = search_paths([data_dir or os.environ.get("JAXSENS_DATA"), *shared_roots()])
    read_files = functools.partial(files.read, split=split, spec=spec, skip_bad_rows=skip_bad_rows)

    def downloaded(root: Path) -> Texts | None:
        return read_files(fetch_text(root, spec))

    sources: list[Callable[[], Texts | None]] = [
        *(
            functools.partial(read_files, root / folder)
            for root in roots
            for folder in (*spec.folders, ".")
        ),
        *(
            functools.partial(read_prepared, root, split, spec, skip_bad_rows=skip_bad_rows)
            for root in roots
        ),
        *(functools.partial(downloaded, root) for root in download_roots(data_dir)),
    ]
    reasons = []
    for source in sources:
        try:
            if (texts := source()) is not None:
                return texts
        except UnusableSourceError as error:
            reasons.append(str(error))
    raise DatasetNotFoundError(_how_to_get(spec, roots, reasons))


def _how_to_get(spec: TextSpec, roots: list[Path], reasons: list[str]) -> str:
    return (
        f"{spec.title} ({spec.name!r}) was not found in {', '.join(map(str, roots))} "
        f"(files in {', '.join(spec.folders)}, or a prepared TFDS folder "
        f"{' or '.join(spec.tfds_names)}){''.join(f'; {reason}' for reason in reasons)}. "
        f"Two ways to get it: put {spec.files} into DIR/{spec.name} and pass --data-dir DIR or set "
        "JAXSENS_DATA=DIR; or load it once on a machine with a network, or copy a folder that "
        "TensorFlow Datasets prepared, and point the same option at it"
    )
