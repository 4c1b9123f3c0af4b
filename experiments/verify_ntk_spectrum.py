"""Checks Proposition 3.1 for one kernel: prints what is true, exits with 1 if a claim fails.

    python experiments/verify_ntk_spectrum.py --d 8 --tokens 1                  all claims hold
    python experiments/verify_ntk_spectrum.py --d 8 --tokens 2 --json out.json  not univariate: 1
    python experiments/verify_ntk_spectrum.py --d 128 --attention none --activation erf --depth 3

Up to d = 12 all pairs of points are enumerated. Beyond, only a kernel that is a function of ⟨x, y⟩
by construction (an MLP, or one token) can be checked, by its eigenvalues for each degree.

Exit status: 0 all claims hold, 1 a claim fails, 2 bad arguments.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from jaxsens import spectrum
from jaxsens.reporting.plain_json import dumps
from jaxsens.reporting.run_folder import write_atomic

#: Beyond it, the kernel matrix is not enumerated.
LARGEST_ENUMERATED = 12


@dataclass(frozen=True)
class Arguments:
    """Flags."""

    d: int = 8
    """Number of coordinates."""
    tokens: int = 1
    """T; tokens have d/T coordinates."""
    depth: int = 1
    """Blocks of the transformer, or hidden layers of the MLP."""
    kernel: Literal["ck", "ntk"] = "ntk"
    """Conjugate kernel (NNGP) or tangent kernel."""
    attention: Literal["linear", "none"] = "linear"
    """none: an MLP."""
    scaling: Literal["sqrt", "linear"] = "sqrt"
    """Attention scores are divided by √width or by width."""
    readout: Literal["flatten", "mean"] = "flatten"
    """How tokens are read out."""
    activation: Literal["none", "relu", "erf", "gelu"] = "none"
    """Of the MLPs in the blocks; none: no MLPs. An MLP without attention takes relu for none."""
    embed: bool = False
    """A dense layer before the first block."""
    residual: bool = False
    """Residual connections."""
    layer_norm: bool = False
    """Layer norm before attention and MLPs."""
    position_variance: float = 0.0
    """Variance of positional encodings."""
    precision: Literal["float32", "float64"] = "float64"
    """Of the kernel."""
    backend: Literal["recursion", "neural-tangents"] = "recursion"
    """Who computes the kernel."""
    json: Path | None = None
    """Where to write everything that was found."""

    def architecture(self) -> spectrum.MLP | spectrum.Transformer:
        """The network; raises ValueError for flags that do not fit each other."""
        if self.attention == "none":
            activation = "relu" if self.activation == "none" else self.activation
            return spectrum.MLP(depth=self.depth, activation=activation)
        architecture = spectrum.Transformer(
            tokens=self.tokens,
            depth=self.depth,
            scaling=self.scaling,
            readout=self.readout,
            activation=None if self.activation == "none" else self.activation,
            embed=self.embed or self.residual or self.layer_norm or self.position_variance > 0,
            residual=self.residual,
            layer_norm=self.layer_norm,
            position_variance=self.position_variance,
        )
        architecture.width(self.d)
        return architecture


@dataclass(frozen=True)
class Verdict:
    """A claim, whether it holds, and the number behind it."""

    claim: str
    holds: bool
    measured: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = tyro.cli(Arguments, args=arguments, description=__doc__)
    try:
        architecture = flags.architecture()
        found = _enumerated if flags.d <= LARGEST_ENUMERATED else _by_degree
        verdicts, record = found(flags, architecture)
    except (ValueError, ImportError) as error:
        print(f"verify_ntk_spectrum: {error}", file=sys.stderr)
        return 2
    print(f"{flags.kernel.upper()} of {architecture.label}, d = {flags.d}, {flags.precision}")
    for verdict in verdicts:
        print(f"  {'holds' if verdict.holds else 'FAILS'}  {verdict.claim}: {verdict.measured}")
    record = {
        "arguments": {**asdict(flags), "json": None},
        "architecture": architecture.label,
        "verdicts": [asdict(verdict) for verdict in verdicts],
        **record,
    }
    if flags.json is not None:
        write_atomic(flags.json, json.dumps(json.loads(dumps(record, "record")), indent=2) + "\n")
    return 0 if all(verdict.holds for verdict in verdicts) else 1


def _enumerated(flags: Arguments, architecture: Any) -> tuple[list[Verdict], dict[str, Any]]:
    kernel = spectrum.cube_kernels(
        architecture, flags.d, precision=flags.precision, backend=flags.backend
    )[flags.kernel]
    found = spectrum.check(kernel, tokens=getattr(architecture, "tokens", 1))
    u, v, coupling = found.strongest_coupling
    worst = float((found.mu_max - found.mu_min).max())
    verdicts = [
        Verdict(
            "K(x,y) is a function of ⟨x,y⟩",
            found.univariate,
            f"largest spread at one ⟨x,y⟩ is {found.spread:.3g} of max |K|",
        ),
        Verdict(
            "the χ_U are eigenfunctions",
            found.eigenfunctions,
            f"off-diagonal mass {found.off_diagonal_mass:.3g}, largest ⟨χ_U, K χ_V⟩ = "
            f"{coupling:.3g} at U = {set(u) or '{}'}, V = {set(v) or '{}'}",
        ),
        Verdict(
            "one eigenvalue for each degree", found.one_per_degree, f"they differ by {worst:.3g}"
        ),
        Verdict("μ_0 ≥ μ_2 ≥ …, μ_1 ≥ μ_3 ≥ …", found.ordered, _list(found.mu_mean)),
        Verdict(
            "the means over each degree are ordered",
            found.ordered_on_average,
            "fractions of the trace " + _list(found.trace_fraction),
        ),
    ]
    if found.univariate:
        verdicts.append(_same_as_krawtchouk(flags, architecture, found))
    record: dict[str, Any] = {"check": found.summary()}
    if flags.kernel == "ck" and architecture == spectrum.Transformer(
        tokens=flags.tokens, scaling=flags.scaling, readout=flags.readout, embed=False
    ):
        counter = spectrum.counterexample(architecture, min(flags.d, 8))
        record["counterexample"] = None if counter is None else str(counter)
    return verdicts, record


def _same_as_krawtchouk(flags: Arguments, architecture: Any, found: spectrum.Check) -> Verdict:
    values = spectrum.profile_values(architecture, flags.d, precision=flags.precision)
    sums = spectrum.eigenvalues(values[flags.kernel])
    gap = float(np.abs(sums.values - found.mu_mean).max()) / found.largest
    return Verdict(
        "the Krawtchouk sum gives the same eigenvalues",
        gap <= (1e-5 if flags.precision == "float32" else 1e-10),
        f"they differ by {gap:.2g} of max |K|",
    )


def _by_degree(flags: Arguments, architecture: Any) -> tuple[list[Verdict], dict[str, Any]]:
    if isinstance(architecture, spectrum.MLP):
        profile = spectrum.mlp_profile(architecture, flags.kernel)
    elif architecture.tokens == 1:
        profile = spectrum.transformer_profile(architecture, flags.kernel)
    else:
        raise ValueError(
            f"d={flags.d} with tokens={flags.tokens} is too large to enumerate: the kernel matrix "
            f"needs {8 * 4**flags.d} bytes; choose d <= {LARGEST_ENUMERATED}, or tokens=1"
        )
    mu = spectrum.eigenvalues_by_series(profile, flags.d)
    values = spectrum.profile_values(
        architecture, flags.d, precision=flags.precision, backend=flags.backend
    )
    sums = spectrum.eigenvalues(values[flags.kernel])
    gap = np.abs(sums.values - mu) - sums.error - 1e-9 * mu
    verdicts = [
        Verdict(
            "μ_0 ≥ μ_2 ≥ …, μ_1 ≥ μ_3 ≥ …",
            bool((mu[:-2] >= mu[2:]).all()),
            f"from {mu.max():.3g} down to {mu[mu > 0].min():.3g}",
        ),
        Verdict(
            "series and Krawtchouk sum agree within rounding",
            bool((gap <= 0).all()),
            f"{int(sums.resolved.sum())} of {flags.d + 1} degrees lie above rounding in "
            f"{flags.precision}",
        ),
    ]
    return verdicts, {"mu": mu, "krawtchouk": sums.values, "error": sums.error}


def _list(numbers: np.ndarray) -> str:
    return "[" + ", ".join(f"{number:.3g}" for number in numbers) + "]"


if __name__ == "__main__":
    sys.exit(main())
