r"""Text datasets as files in a folder: GLUE's tsv, jsonl, the original MRPC and the original IMDB.

A tsv file is UTF-8 with a header, one row per line and a tab between columns. Quotes are ordinary
characters: GLUE has lone ones, so a csv reader with quoting would silently join rows. Lines end in
`\n` or `\r\n` only; other line separators of Unicode occur inside texts.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError
from jaxsens.data.sources import files
from jaxsens.data.sources.strict_json import parse as parse_json
from jaxsens.data.text.rows import BadRowError, Example, collect, decoded, example
from jaxsens.data.text.spec import TEXT_SPLITS, TextSpec
from jaxsens.data.text.texts import Texts

_logger = logging.getLogger("jaxsens")
_MSR_TRAIN = "msr_paraphrase_train.txt"
_MSR_DEV_IDS = ("mrpc_dev_ids.tsv", "dev_ids.tsv", "data_mrpc_dev_ids.tsv")
_MSR_ID_COLUMNS = ("#1 ID", "#2 ID")
_IMDB_CLASSES = ("neg", "pos")
#: The largest file of the datasets here has 60 MB, the longest row 20 kB.
MAX_FILE = 1 << 28
_MAX_ROW = 1 << 20


def read(
    folder: PurePath, split: str, spec: TextSpec, *, skip_bad_rows: bool = False
) -> Texts | None:
    """Returns the split, None if the folder has no file of this dataset.

    Files called just `train.tsv` are read only from a folder named after the dataset, for every
    GLUE task has one; `mrpc_train.tsv` or `imdb_train_2000.tsv` are read from any folder.

    Args:
      folder: where the files lie.
      split: "train" or "validation".
      spec: the dataset's facts.
      skip_bad_rows: leave bad rows out and warn, instead of an error.

    Raises:
      DatasetNotFoundError: there are files of the dataset, but not of the split.
      CorruptDataError: a header or a row is bad, or several files could be the split's.
    """
    found = {each: _find(folder, each, spec) for each in TEXT_SPLITS}
    if not any(found.values()):
        return _read_original(folder, split, spec, skip_bad_rows)
    path = found[split]
    if path is None:
        names = " or ".join(f"{stem}.tsv" for stem in spec.file_stems(split))
        raise DatasetNotFoundError(
            f"{folder} has the other split of {spec.title}, but not the {split} split: "
            f"expected {names}"
        )
    read_file = read_jsonl if path.suffix == ".jsonl" else read_tsv
    texts = read_file(path, spec, skip_bad_rows=skip_bad_rows)
    _logger.info(
        "%s %s: %d of %d examples in %s",
        *(spec.name, split, len(texts), spec.num_examples(split), path),
    )
    return texts


def read_tsv(path: PurePath, spec: TextSpec, *, skip_bad_rows: bool = False) -> Texts:
    """Returns the rows of a tsv file, its columns found by the names in the header.

    Raises:
      CorruptDataError: a column is missing from the header, or a row is bad.
    """
    header, rows = _table(path)
    return _read_table(path, header, rows, spec, skip_bad_rows)


def read_jsonl(path: PurePath, spec: TextSpec, *, skip_bad_rows: bool = False) -> Texts:
    """Returns the rows of a file with one JSON object per line, like that of BoolQ.

    Raises:
      CorruptDataError: a row is not a JSON object or lacks a text or label.
    """

    def parse(line: bytes) -> Example:
        decoded(line)  # for its message
        try:
            row = parse_json(line)
        except ValueError as error:
            raise BadRowError(f"expected a JSON object, got {error}") from None
        if not isinstance(row, dict):
            raise BadRowError(f"expected a JSON object, got a {type(row).__name__}")
        return from_features(row, spec)

    rows = ((f"line {number}", line) for number, line in enumerate(_lines(path), 1))
    return collect(path, rows, parse, skip_bad_rows=skip_bad_rows)


def from_features(row: dict[str, Any], spec: TextSpec) -> Example:
    """Returns the example in a dictionary from feature names to texts and label.

    Raises:
      BadRowError: a feature is missing or bad.
    """
    values = []
    for names in (spec.first, spec.second or spec.first, spec.label):
        name = next((name for name in names if name in row), None)
        if name is None:
            got = ", ".join(map(str, row))[:200]
            raise BadRowError(f"expected a {' or '.join(names)}, got {got}")
        values.append(row[name])
    first, second, label = values
    for text in (first, second):
        if not isinstance(text, str | bytes):
            raise BadRowError(f"expected a text, got {repr(text)[:40]}")
    return example(first, second if spec.second else None, label, spec.classes)


def _find(folder: PurePath, split: str, spec: TextSpec) -> PurePath | None:
    named_after_it = {PurePath(name).name.lower() for name in spec.usual_folders()}
    is_its_own = files.real_name(folder).lower() in named_after_it
    for stem in spec.file_stems(split):
        for ending in ("tsv", "jsonl"):
            patterns = (f"{spec.name}_{stem}.{ending}", f"{spec.name}_{stem}_[0-9]*.{ending}")
            paths = sorted(path for pattern in patterns for path in files.listed(folder, pattern))
            if is_its_own and files.is_there(folder / f"{stem}.{ending}"):
                paths.insert(0, folder / f"{stem}.{ending}")
            if len(paths) > 1:
                names = ", ".join(path.name for path in paths)
                raise CorruptDataError(
                    f"{folder}: expected one file of the {split} split of {spec.title}, "
                    f"got {names}; keep one of them"
                )
            if paths:
                return paths[0]
    return None


def _read_original(
    folder: PurePath, split: str, spec: TextSpec, skip_bad_rows: bool
) -> Texts | None:
    if spec.name == "mrpc" and files.is_there(folder / _MSR_TRAIN):
        return _read_msr(folder, split, spec, skip_bad_rows)
    candidates = (folder / "aclImdb", folder)
    roots = [path for path in candidates if files.is_there(path / "train" / "pos")]
    if spec.name == "imdb" and roots:
        return _read_acl_imdb(roots[0], split, spec, skip_bad_rows)
    return None


def _read_msr(folder: PurePath, split: str, spec: TextSpec, skip_bad_rows: bool) -> Texts:
    """Microsoft's training file, cut into GLUE's train and validation by a list of pairs of ids."""
    lists = [folder / name for name in _MSR_DEV_IDS if files.is_there(folder / name)]
    if not lists:
        raise DatasetNotFoundError(
            f"{folder} has {_MSR_TRAIN}, but not {' or '.join(_MSR_DEV_IDS)}, which says which "
            f"of its pairs are GLUE's validation split; add it"
        )
    held_out = {tuple(line.split(b"\t")[:2]) for line in _lines(lists[0])}
    path = folder / _MSR_TRAIN
    header, rows = _table(path)
    ids = [_column(path, header, (name,)) for name in _MSR_ID_COLUMNS]

    def in_split(line: bytes) -> bool:
        columns = line.split(b"\t")
        if len(columns) != len(header):
            return True  # bad in any split, and reported as such
        return (tuple(columns[i] for i in ids) in held_out) == (split == "validation")

    kept = ((place, line) for place, line in rows if in_split(line))
    return _read_table(path, header, kept, spec, skip_bad_rows)


def _read_acl_imdb(root: PurePath, split: str, spec: TextSpec, skip_bad_rows: bool) -> Texts:
    """One review per file; negative ones first, each class in the order of file names."""
    folder = root / spec.file_stems(split)[0]

    def parse(path: PurePath) -> Example:
        label = _IMDB_CLASSES.index(path.parent.name)
        return example(files.read_bytes(path, _MAX_ROW), None, label, spec.classes)

    paths = [path for name in _IMDB_CLASSES for path in files.listed(folder / name, "*.txt")]
    rows = ((f"{path.parent.name}/{path.name}", path) for path in paths)
    return collect(folder, rows, parse, skip_bad_rows=skip_bad_rows)


def _read_table(
    path: PurePath,
    header: Sequence[str],
    rows: Iterator[tuple[str, bytes]],
    spec: TextSpec,
    skip_bad_rows: bool,
) -> Texts:
    first, label = (_column(path, header, names) for names in (spec.first, spec.label))
    second = _column(path, header, spec.second) if spec.second else None

    def parse(line: bytes) -> Example:
        columns = decoded(line).split("\t")
        if len(columns) != len(header):
            raise BadRowError(f"expected {len(header)} columns, got {len(columns)}")
        partner = None if second is None else columns[second]
        return example(columns[first], partner, columns[label], spec.classes)

    return collect(path, rows, parse, skip_bad_rows=skip_bad_rows)


def _table(path: PurePath) -> tuple[list[str], Iterator[tuple[str, bytes]]]:
    lines = _lines(path)
    header = lines[0].decode("utf-8", "replace").split("\t") if lines else []
    rows = ((f"line {number}", line) for number, line in enumerate(lines[1:], 2))
    return [name.strip() for name in header], rows


def _column(path: PurePath, header: Sequence[str], names: Sequence[str]) -> int:
    for name in names:
        if name in header:
            return header.index(name)
    raise CorruptDataError(
        f"{path}, line 1: expected a header with a column called {' or '.join(names)}, "
        f"got {', '.join(header)[:200] or 'an empty file'}"
    )


def _lines(path: PurePath) -> list[bytes]:
    lines: list[bytes] = []
    with files.opened(path, MAX_FILE) as file:
        while line := file.readline(_MAX_ROW + 1):
            if len(line) > _MAX_ROW:
                raise CorruptDataError(
                    f"{path}, line {len(lines) + 1}: expected at most {_MAX_ROW} bytes, got more"
                )
            lines.append(line.removesuffix(b"\n").removesuffix(b"\r"))
    if lines:
        lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
    return lines
