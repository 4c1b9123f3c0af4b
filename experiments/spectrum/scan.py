"""The search behind `spectrum`: for which transformers does Proposition 3.1 hold?

Every tokenisation of every d of a range, both scalings of attention, both readouts, several stacks
of layers, conjugate and tangent kernel: each kernel is enumerated on the whole cube and checked.
Nothing is assumed about the outcome.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from jaxsens import spectrum
from jaxsens.spectrum import Transformer
from jaxsens.spectrum.architectures import KernelKind, Readout, Scaling
from jaxsens.spectrum.limits import Precision

Row = dict[str, Any]

ONE_TOKEN, ONE_BIT, WIDE = "one token", "tokens of one bit", "several wide tokens"
TOKENISATIONS = (ONE_TOKEN, ONE_BIT, WIDE)
SCALINGS: tuple[Scaling, ...] = ("sqrt", "linear")
READOUTS: tuple[Readout, ...] = ("flatten", "mean")
KINDS: tuple[KernelKind, ...] = ("ck", "ntk")

#: Stacks of layers; the first is the kernel of the proposition's proof.
STACKS: dict[str, dict[str, Any]] = {
    "attention": {"embed": False},
    "attention, positions": {"position_variance": 1.0},
    "attention, ReLU MLP": {"activation": "relu"},
    "2 × attention": {"depth": 2},
    "2 × attention, residual": {"depth": 2, "residual": True},
    "2 × (attention, ReLU MLP)": {"depth": 2, "activation": "relu"},
    "2 × (attention, ReLU MLP), residual, layer norm": {
        "depth": 2,
        "activation": "relu",
        "residual": True,
        "layer_norm": True,
    },
}
PURE = next(iter(STACKS))


def attention_after_mlp(stack: str) -> bool:
    """Whether a block with an MLP is followed by another block."""
    options = STACKS[stack]
    return options.get("depth", 1) > 1 and "activation" in options


def divisors(d: int) -> list[int]:
    """Every number of tokens into which d coordinates can be cut."""
    return [tokens for tokens in range(1, d + 1) if d % tokens == 0]


def tokenisation(d: int, tokens: int) -> str:
    """One token, tokens of one bit, or several tokens of several bits."""
    if tokens == 1:
        return ONE_TOKEN
    return ONE_BIT if tokens == d else WIDE


def scan(dimensions: Iterable[int], stack: str, precision: Precision) -> list[Row]:
    """Checks all kernels of one stack of layers."""
    rows = []
    for d in dimensions:
        for tokens, scaling, readout in itertools.product(divisors(d), SCALINGS, READOUTS):
            architecture = Transformer(
                tokens=tokens, scaling=scaling, readout=readout, **STACKS[stack]
            )
            kernels = spectrum.cube_kernels(architecture, d, precision=precision)
            for kind in KINDS:
                found = spectrum.check(kernels[kind], tokens=tokens)
                place = {
                    "tokenisation": tokenisation(d, tokens),
                    "tokens": tokens,
                    "scaling": scaling,
                    "readout": readout,
                    "stack": stack,
                    "kind": kind,
                }
                rows.append({**place, **found.summary()})
    return rows


def where(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def share(rows: Sequence[Row], verdict: str) -> str:
    """In how many rows a verdict is true: all, none, or k of n."""
    true = number(rows, verdict)
    if not rows:
        return "–"
    return {0: "none", len(rows): "all"}.get(true, f"{true} of {len(rows)}")


def number(rows: Sequence[Row], verdict: str) -> int:
    """In how many rows a verdict is true."""
    return sum(bool(row[verdict]) for row in rows)


def count(rows: Sequence[Row], verdict: str) -> str:
    """In how many rows a verdict is true: k of n."""
    return f"{number(rows, verdict)} of {len(rows)}"


def smallest_counterexample(largest_d: int, readout: Readout) -> spectrum.Counterexample | None:
    """The first counterexample with d = 2, 3, … among single attention layers on raw tokens."""
    for d in range(2, largest_d + 1):
        for tokens, scaling in itertools.product(divisors(d), SCALINGS):
            architecture = Transformer(tokens=tokens, scaling=scaling, readout=readout, embed=False)
            found = spectrum.counterexample(architecture, d)
            if found is not None:
                return found
    return None


def largest(rows: Sequence[Row], name: str) -> float:
    """The largest number of that name, nan without rows."""
    return max((float(row[name]) for row in rows), default=math.nan)
