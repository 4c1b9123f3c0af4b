"""The text datasets by name.

Sources are tried in the same order as for images: generated, files, a folder prepared by TensorFlow
Datasets, a download. The first source that has the dataset is used, even if it holds only a part of
it: look at the number of examples. A damaged or half-present copy is an error, never skipped.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path

from jaxsens.data.errors import require_known
from jaxsens.data.generated import paraphrases
from jaxsens.data.sources.folders import download_roots, first_found, not_found, search_roots
from jaxsens.data.text import files
from jaxsens.data.text.fetch import fetch_text
from jaxsens.data.text.prepared import read_prepared
from jaxsens.data.text.spec import TEXT_SPLITS, text_spec
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
      name: one of `TEXT_NAMES`, or what `register_text` was given.
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
        return paraphrases.make(split)

    roots, folders = search_roots(data_dir), spec.usual_folders()
    read_files = functools.partial(files.read, split=split, spec=spec, skip_bad_rows=skip_bad_rows)

    def downloaded(root: Path) -> Texts | None:
        return read_files(fetch_text(root, spec))

    sources: list[Callable[[], Texts | None]] = [
        *(
            functools.partial(read_files, root / folder)
            for root in roots
            for folder in (*folders, ".")
        ),
        *(
            functools.partial(read_prepared, root, split, spec, skip_bad_rows=skip_bad_rows)
            for root in roots
        ),
    ]
    if spec.archive_files:
        sources += [functools.partial(downloaded, root) for root in download_roots(data_dir)]
    texts, reasons = first_found(sources)
    if texts is None:
        prepared = f", or a prepared TFDS folder {' or '.join(spec.tfds_names)}"
        raise not_found(
            f"{spec.title} ({spec.name!r})",
            f"files in {', '.join(folders)}{prepared if spec.tfds_names else ''}",
            roots,
            reasons,
            f"{spec.files} into DIR/{folders[0]}",
            can_download=bool(spec.archive_files),
        )
    return texts
