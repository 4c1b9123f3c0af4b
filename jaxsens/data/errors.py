"""What can go wrong with a dataset: not there, damaged, or one source cannot serve it."""


class DatasetNotFoundError(FileNotFoundError):
    """No source has the dataset, or a file that belongs to it is missing."""


class CorruptDataError(ValueError):
    """A file of the dataset is there but does not hold what its format promises."""


class UnusableSourceError(Exception):
    """One source cannot serve the dataset; `load` tries the next and quotes the reason at the end.

    Internal: it never leaves `jaxsens.data`.
    """
