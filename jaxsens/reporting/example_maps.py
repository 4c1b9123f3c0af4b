"""Where in single examples each model is sensitive: heat maps of images, coloured tokens of texts.

    v_{m,i,τ} = mean change of model m at position τ of example i

for at most `MAX_EXAMPLES` of the measured examples, from the most to the least sensitive, so that a
page can show every one of them. They are kept in the run folder as maps.json, beside results.json;
`jaxsens.reporting.report` shows what it finds there.

Assumption: all models were measured on the same examples, in the same order.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
from jaxtyping import Array, Int, Num, UInt8
from PIL import Image

from jaxsens.core import storage
from jaxsens.measurement import SensitivityEstimate
from jaxsens.reporting.plain_json import dumps
from jaxsens.reporting.run_folder import RunFolder

#: The file of a run folder.
FILE = "maps.json"
#: A page of more of them would be too long and too large.
MAX_EXAMPLES = 24
#: Values of all models and examples together; long inputs are shown for fewer examples.
MAX_VALUES = 20_000
#: Larger pictures are made smaller, to so many pixels.
MAX_SIDE = 96
_DIGITS = 4


@dataclasses.dataclass(frozen=True)
class ExampleMap:
    """One measured example: a picture or the texts of its tokens, and every model's values on it.

    Attributes:
      label: what it is called, such as "image 12".
      values: for every model, the mean change at each position; None where it was not measured.
      picture: a PNG as a data URI; empty for a text.
      tokens: the text of each position; empty for a picture.

    Example:
      >>> ExampleMap("text 0", {"LSTM": (0.0, None, 0.5)}, tokens=("not", " so", " bad")).means
      {'LSTM': 0.25}
    """

    label: str
    values: dict[str, tuple[float | None, ...]]
    picture: str = ""
    tokens: tuple[str, ...] = ()

    @property
    def means(self) -> dict[str, float]:
        """For every model, the mean over the positions that were measured; 0 if none was."""
        known = {name: [v for v in each if v is not None] for name, each in self.values.items()}
        return {name: math.fsum(each) / max(len(each), 1) for name, each in known.items()}


@dataclasses.dataclass(frozen=True)
class ExampleMaps:
    """Some examples of one measurement, with every model's values at each of their positions.

    Attributes:
      title: a heading.
      examples: pictures, or texts.
      layout: rows and columns of positions in a picture, T = rows·columns; None for texts.
      note: what was done to a position and how often, in a sentence.

    Raises:
      ValueError: there is no example, or the number of values of one is not that of its positions.

    Example:
      >>> text = ExampleMap("text 0", {"LSTM": (0.0, 0.5)}, tokens=("not", " bad"))
      >>> maps = ExampleMaps("Which words", (text,))
      >>> maps.models, maps.largest, text.means
      (('LSTM',), 0.5, {'LSTM': 0.25})
    """

    title: str
    examples: tuple[ExampleMap, ...]
    layout: tuple[int, int] | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if not self.examples:
            raise ValueError(f"{self.title!r}: expected at least one example, got none")
        for example in self.examples:
            expected = len(example.tokens) if self.layout is None else math.prod(self.layout)
            for model in self.models:
                got = len(example.values.get(model, ()))
                if got != expected or example.values.keys() != set(self.models):
                    raise ValueError(
                        f"{self.title!r}, {example.label}: expected {expected} values of each of "
                        f"{', '.join(self.models)}, got {got} of {model}"
                    )
            if bool(example.picture) != (self.layout is not None):
                what = "a text has none" if self.layout is None else "it has none"
                raise ValueError(f"{self.title!r}, {example.label}: picture and layout: {what}")

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models, in their order."""
        return tuple(self.examples[0].values)

    @property
    def largest(self) -> float:
        """The largest value, at which all colours end; at least 1e-12."""
        values = (v for e in self.examples for each in e.values.values() for v in each)
        return max([v for v in values if v is not None] + [1e-12])


def image_maps(
    title: str,
    pictures: Num[Array | np.ndarray, "n H W C"],
    estimates: Mapping[str, SensitivityEstimate],
    layout: tuple[int, ...],
    *,
    labels: Sequence[str] | None = None,
    note: str = "",
) -> ExampleMaps:
    """Heat maps of measured images, all models side by side.

    Args:
      title: a heading.
      pictures: the images that were measured, with 1 or 3 channels; numbers of any range, which is
        stretched to that from black to white.
      estimates: for every model, what was measured on these images.
      layout: rows and columns of windows, as `perturbation.grid.layout(x.shape[1:])` gives them.
      labels: a name for each picture; by default its index.
      note: what was done to a window.

    Returns:
      At most `MAX_EXAMPLES` of them, from the most to the least sensitive over all models, evenly
      spaced in this order; fewer if there are very many windows.

    Raises:
      ValueError: shapes do not fit together.

    Example:
      >>> import jax, jaxsens
      >>> x = np.zeros((3, 4, 4, 1), np.float32)
      >>> change = jaxsens.Perturbation(jaxsens.Patches(2), jaxsens.Gaussian(sigma=1.0))
      >>> apply_fn = lambda params, x: x.reshape(len(x), -1)[:, :2]
      >>> est = jaxsens.sensitivity(apply_fn, (), x, change, key=jax.random.key(0))
      >>> maps = image_maps("Where", x, {"first pixels": est}, change.grid.layout(x.shape[1:]))
      >>> len(maps.examples), maps.layout, [v > 0 for v in maps.examples[0].values["first pixels"]]
      (3, (2, 2), [True, False, False, False])
    """
    images = np.asarray(pictures)
    if images.ndim != 4 or images.shape[-1] not in (1, 3) or len(layout) != 2:
        raise ValueError(
            "expected pictures of shape (n, H, W, 1 or 3) and a layout (rows, columns), got shape "
            f"{images.shape} and layout {layout}"
        )
    chosen = _chosen(estimates, len(images))
    low, high = float(images[chosen].min()), float(images[chosen].max())
    scale = 255.0 / (high - low) if high > low else 0.0
    examples = []
    for i in map(int, chosen):
        eight_bit = np.round((images[i].astype(np.float64) - low) * scale).astype(np.uint8)
        label = f"image {i}" if labels is None else labels[i]
        values = {name: _values(each, i) for name, each in estimates.items()}
        examples.append(ExampleMap(label, values, picture=png_uri(eight_bit)))
    return ExampleMaps(title, tuple(examples), (layout[0], layout[1]), note)


def text_maps(
    title: str,
    tokens: Sequence[Sequence[str]],
    estimates: Mapping[str, SensitivityEstimate],
    *,
    labels: Sequence[str] | None = None,
    note: str = "",
) -> ExampleMaps:
    """Texts whose tokens are coloured by how sensitive each model is to them.

    Args:
      title: a heading.
      tokens: for every measured text, the text of each of its tokens, with the spaces between them.
      estimates: for every model, what was measured on these texts: position τ is token τ.
      labels: a name for each text; by default its index.
      note: what was done to a token.

    Returns:
      Some of them, chosen as by `image_maps`.

    Raises:
      ValueError: there are not as many texts as measured examples, or one has more tokens than
        positions.

    Example:
      >>> import jax, jaxsens
      >>> x = np.array([[2, 1], [0, 3]])
      >>> change = jaxsens.Perturbation(jaxsens.Tokens(), jaxsens.Resample(4))
      >>> apply_fn = lambda params, x: jax.nn.one_hot(x[:, 0], 4)
      >>> est = jaxsens.sensitivity(apply_fn, (), x, change, "all", key=jax.random.key(0))
      >>> maps = text_maps("Which words", [["not", " bad"], ["a", " film"]], {"first word": est})
      >>> maps.examples[0].tokens, maps.examples[0].values["first word"]
      (('not', ' bad'), (0.75, 0.0))
    """
    chosen = _chosen(estimates, len(tokens))
    examples = []
    for i in map(int, chosen):
        label = f"text {i}" if labels is None else labels[i]
        values = {name: _values(each, i)[: len(tokens[i])] for name, each in estimates.items()}
        examples.append(ExampleMap(label, values, tokens=tuple(tokens[i])))
    return ExampleMaps(title, tuple(examples), None, note)


def write_maps(folder: RunFolder | PurePath | str, *maps: ExampleMaps) -> None:
    """Keeps maps in a run folder, or in any other, for its report; earlier ones are replaced.

    Example:
      >>> import tempfile
      >>> text = ExampleMap("text 0", {"LSTM": (0.0, 0.5)}, tokens=("not", " bad"))
      >>> maps = ExampleMaps("Which words", (text,))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     write_maps(folder, maps)
      ...     read_maps(folder) == (maps,)
      True
    """
    place = folder if isinstance(folder, RunFolder) else storage.at(folder)
    place.write(FILE, dumps([dataclasses.asdict(each) for each in maps], "maps") + "\n")


def read_maps(folder: PurePath | str) -> tuple[ExampleMaps, ...]:
    """The maps that a folder keeps; none if it has no maps.json.

    Raises:
      ValueError: the file is not what `write_maps` of this version writes.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     read_maps(folder)  # no maps.json there
      ()
    """
    try:
        text = storage.at(folder).read(FILE)
    except FileNotFoundError:
        return ()
    try:
        return tuple(_maps(**fields) for fields in json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{FILE} is not what this version of jaxsens writes ({error}); delete it, or run again"
        ) from error


def png_uri(pixels: UInt8[np.ndarray, "h w _"]) -> str:
    """A small picture as a data URI; one of more than `MAX_SIDE` pixels is made smaller."""
    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    image.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.LANCZOS)
    data = io.BytesIO()
    image.save(data, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode("ascii")


def _maps(*, examples: list[Any], layout: list[int] | None, **fields: Any) -> ExampleMaps:
    made = tuple(
        ExampleMap(
            label=str(each["label"]),
            values={str(name): tuple(values) for name, values in each["values"].items()},
            picture=str(each["picture"]),
            tokens=tuple(map(str, each["tokens"])),
        )
        for each in examples
    )
    return ExampleMaps(
        examples=made, layout=None if layout is None else (layout[0], layout[1]), **fields
    )


def _chosen(
    estimates: Mapping[str, SensitivityEstimate], num_examples: int
) -> Int[np.ndarray, " m"]:
    """The indices of the examples to show."""
    if not estimates:
        raise ValueError("expected at least one model, got none")
    for name, estimate in estimates.items():
        if len(estimate.totals) != num_examples:
            raise ValueError(
                f"expected {num_examples} measured examples of {name}, as many as are given, got "
                f"{len(estimate.totals)}"
            )
    per_example = np.stack([estimate.per_example for estimate in estimates.values()]).sum(axis=0)
    measured = np.flatnonzero(~np.isnan(per_example))
    if not measured.size:
        raise ValueError("expected an example that all models were measured on, got none")
    ranked = measured[np.argsort(-per_example[measured], kind="stable")]
    cells = sum(estimate.num_positions for estimate in estimates.values())
    num = max(1, min(MAX_EXAMPLES, len(ranked), MAX_VALUES // cells))
    return ranked[np.round(np.linspace(0, len(ranked) - 1, num)).astype(np.int64)]


def _values(estimate: SensitivityEstimate, example: int) -> tuple[float | None, ...]:
    row = estimate.totals[example], estimate.counts[example]
    return tuple(
        round(float(total) / int(count), _DIGITS) if count else None
        for total, count in zip(*row, strict=True)
    )
