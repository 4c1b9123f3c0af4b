"""What every text dataset is in memory."""

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Int32, Integer


@dataclasses.dataclass(frozen=True, eq=False)
class Texts:
    """Labelled texts, or labelled pairs of texts.

    Attributes:
      first: n texts.
      second: the n partners of a pair task, None for a task of single texts.
      labels: int32 (n,).

    Raises:
      ValueError: the three differ in length.

    Example:
      >>> texts = Texts(("a b", "c d"), ("b a", "e"), np.array([1, 0], np.int32))
      >>> len(texts), texts[1:].first, texts.subset([1, 0]).second
      (2, ('c d',), ('e', 'b a'))
      >>> list(texts.strings())
      ['a b', 'c d', 'b a', 'e']
    """

    first: tuple[str, ...]
    second: tuple[str, ...] | None
    labels: Int32[np.ndarray, " n"]

    def __post_init__(self) -> None:
        num_second = len(self.first) if self.second is None else len(self.second)
        if not len(self.first) == num_second == len(self.labels):
            raise ValueError(
                "expected as many first as second texts and labels, "
                f"got {len(self.first)}, {num_second} and {len(self.labels)}"
            )

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, rows: slice) -> "Texts":
        second = None if self.second is None else self.second[rows]
        return Texts(self.first[rows], second, self.labels[rows])

    def subset(self, rows: Iterable[int] | Integer[np.ndarray, " m"]) -> "Texts":
        """Returns the given rows, in the order given."""
        chosen = [int(row) for row in rows]
        second = None if self.second is None else tuple(self.second[row] for row in chosen)
        first = tuple(self.first[row] for row in chosen)
        return Texts(first, second, self.labels[np.array(chosen, np.int64)])

    def strings(self) -> Iterator[str]:
        """Yields every text, all first ones and then all second ones: what a tokenizer learns."""
        yield from self.first
        yield from self.second or ()
