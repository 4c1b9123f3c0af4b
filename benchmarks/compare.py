"""One model by several methods: the same weights and inputs for all, and the same finding.

Every method must find clean logits within `LOGIT_TOLERANCE` of the first method's, and the same
sensitivity within the noise of both.

Assumption: inputs are noise and weights untrained. That changes no method's work, since none of
them looks at the values; the sensitivities here say nothing about trained models.
"""

import importlib.util
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks import cell
from benchmarks.frame import Options, Row, UsageError
from benchmarks.workload import Setting, Workload, load_arrays

#: What the ratios are against: the measurement as the paper's authors make it.
BASELINE = "torch-loop"
#: jaxsens without reuse.
PLAIN = "jaxsens-plain"


@dataclass(frozen=True)
class Side:
    """One side of the comparison.

    Attributes:
      factory: "module:function" that makes its `Method`, imported in the cell's own process.
      packages: without which it cannot run.
      architectures: the only ones it is for; default all.
    """

    factory: str
    packages: tuple[str, ...]
    architectures: tuple[str, ...] | None = None


SIDES = {
    BASELINE: Side("benchmarks.torch_reference:loop", ("torch",)),
    "torch-loop-all-tokens": Side(
        "benchmarks.torch_reference:loop_all_tokens", ("torch",), ("ViTSmall", "RoBERTa", "GPT2")
    ),
    "torch-batched": Side("benchmarks.torch_reference:batched", ("torch",)),
    "torch-compile-loop": Side("benchmarks.torch_reference:compiled_loop", ("torch",)),
    "torch-compile-batched": Side("benchmarks.torch_reference:compiled_batched", ("torch",)),
    # vmap has no rule for PyTorch's LSTM.
    "torch-vmap": Side(
        "benchmarks.torch_reference:vmapped",
        ("torch",),
        ("MLP", "CNN", "ViTSmall", "ResNet", "DenseNet", "ConvMixer", "RoBERTa", "GPT2"),
    ),
    "captum": Side("benchmarks.captum_method:ablation", ("torch", "captum")),
    "jaxsens-all-at-once": Side("benchmarks.jaxsens_methods:all_at_once", ("jax",)),
    PLAIN: Side("benchmarks.jaxsens_methods:plain", ("jax",)),
    "jaxsens": Side("benchmarks.jaxsens_methods:default", ("jax",)),
}


LOGIT_TOLERANCE = 1e-4
#: About once in 16,000 honest comparisons.
MAX_Z = 4.0


def compare(model: str, setting: Setting, methods: Sequence[str], options: Options) -> list[Row]:
    """Rows of one model, each checked against the first method that ran."""
    outcomes: dict[str, cell.Outcome] = {}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="jaxsens-bench-") as folder:
        path = Path(folder) / "workload.npz"
        weights, flops = prepare(setting, options, Path(folder))
        workload = make_workload(setting, weights, options)
        workload.save(path)
        for method in methods:
            _say(f"{model}: {method} …")
            row: Row = {"model": model, "method": method}
            rows.append(row)
            try:
                outcome = cell.launch(
                    SIDES[method].factory,
                    path,
                    workload.spec(),
                    num_threads=options.num_threads,
                    repeats=options.repeats,
                    seed=options.seed,
                )
            except cell.CellError as error:
                row["error"] = str(error)
                _say(f" failed: {error}\n")
                continue
            outcomes[method] = outcome
            row |= _numbers(outcome, workload, options.repeats, flops)
            row |= _agreement(outcomes, method, workload.num_samples * options.repeats)
            _say(f" {row['ms_per_image']:.3g} ms/image\n")
    if BASELINE in outcomes:
        slow = min(outcomes[BASELINE].seconds)
        for row in rows:
            if row["method"] in outcomes:
                row["ratio"] = slow / min(outcomes[row["method"]].seconds)
    return rows


def runnable(names: Sequence[str], setting: Setting | None = None) -> list[str]:
    """The methods whose packages are there and, if a model is given, that are for it."""
    return [
        name
        for name in names
        if all(map(installed, SIDES[name].packages)) and (setting is None or _is_for(name, setting))
    ]


def installed(package: str) -> bool:
    """Whether the package can be imported; it is not."""
    return importlib.util.find_spec(package) is not None


def missing(names: Sequence[str]) -> list[str]:
    """A note for each package without which some methods cannot run."""
    needed = dict.fromkeys(package for name in names for package in SIDES[name].packages)
    return [
        f"{package} is missing, so "
        + ", ".join(name for name in names if package in SIDES[name].packages)
        + " could not run: pip install -e '.[bench]'"
        for package in needed
        if not installed(package)
    ]


def objections(rows: Iterable[Row]) -> list[str]:
    """What failed or does not agree, in words."""
    failures = [
        f"{row['model']} {row['method']} failed: {row['error']}" for row in rows if "error" in row
    ]
    differing = [
        f"{row['model']} {row['method']} does not measure what {row['reference']} measures: "
        f"logits differ by {row['logit_difference']:.1e}, the sensitivity is "
        f"{row['sensitivity']:.4f} against {row['reference_sensitivity']:.4f}"
        for row in rows
        if row.get("same") == "NO"
    ]
    return [*failures, *differing]


def check_known(kind: str, names: Sequence[str], known: Iterable[str]) -> None:
    """Raises UsageError for a name that is not known."""
    for name in names:
        if name not in known:
            raise UsageError(f"unknown {kind} {name!r}; choose from {', '.join(known)}")


def chosen_methods(options: Options, sides: Iterable[str]) -> tuple[list[str], list[str]]:
    """The methods to run of a suite whose "torch…" ones need PyTorch, and a note if it is missing.

    Raises:
      UsageError: options name a method that is not among `sides`.
    """
    methods = list(options.methods or sides)
    check_known("method", methods, sides)
    if installed("torch"):
        return methods, []
    left = [name for name in methods if not name.startswith("torch")]
    return left, ["torch is missing, so there is nothing to compare with"]


def of_each_model(
    measured: Callable[[str, Options], list[Row]], options: Options, known: Iterable[str]
) -> tuple[list[Row], list[str]]:
    """The rows of all models of a suite that measures jaxsens alone, and what failed.

    Args:
      measured: gives the rows of one model.
      options: of the command line; default all models.
      known: the suite's models.

    Raises:
      UsageError: options name a method, or a model that is not known.
    """
    if options.methods:
        raise UsageError(
            f"the suite {options.suite} compares jaxsens with itself: it takes no methods"
        )
    models = options.models or tuple(known)
    check_known("model", models, known)
    rows: list[Row] = []
    failures: list[str] = []
    for model in models:
        try:
            rows += measured(model, options)
        except cell.CellError as error:
            failures.append(f"{model} failed: {error}")
    return rows, failures


def prepare(
    setting: Setting, options: Options, folder: Path
) -> tuple[dict[str, np.ndarray], float]:
    """The weights, and the floating-point operations of one plain pass of one example."""
    weights, costs = folder / "weights.npz", folder / "costs.json"
    files = {"weights": str(weights), "costs": str(costs)}
    cell.run_on(
        "benchmarks.jaxsens_methods",
        {"setting": asdict(setting), "seed": options.seed, **files},
        folder,
        num_threads=options.num_threads,
        # An accelerator's random numbers may differ, and the cells need it for themselves.
        JAX_PLATFORMS="cpu",
    )
    return load_arrays(weights), json.loads(costs.read_text())["forward_flops"]


def make_workload(setting: Setting, weights: dict[str, np.ndarray], options: Options) -> Workload:
    """Random images, or texts of layer-normed embeddings, for these weights."""
    rng = np.random.default_rng(options.seed)
    shape = (options.num_images or setting.num_images, *setting.shape)
    x = rng.normal(size=shape) if setting.takes_mask else rng.uniform(-1, 1, shape)
    num_samples = options.num_samples or setting.num_samples
    return Workload(setting, x.astype(np.float32), weights, num_samples, options.batch)


def noise_variance(flips: np.ndarray, num_draws: int) -> float:
    """Variance of mean(flips)/num_draws that the draws' noise alone causes, for fixed inputs.

    With p the flipped share of the k draws of an (example, position),

        Var = Σ p(1-p)/(k-1) / (n·T)²,

    which is unbiased. The inputs are the same for all methods, so their spread does not count.
    """
    if num_draws < 2:
        return math.nan
    p = flips / num_draws
    return float(np.sum(p * (1 - p)) / (num_draws - 1)) / flips.size**2


def z_score(flips: np.ndarray, others: np.ndarray, num_draws: int) -> float:
    """Difference of two sensitivities over the noise of both; nan with a single draw."""
    difference = float(flips.mean() - others.mean()) / num_draws
    noise = math.sqrt(noise_variance(flips, num_draws) + noise_variance(others, num_draws))
    if noise == 0:
        return math.copysign(math.inf, difference) if difference else 0.0
    return difference / noise


def _numbers(outcome: cell.Outcome, workload: Workload, repeats: int, flops: float) -> Row:
    best, n = min(outcome.seconds), len(workload.x)
    num_draws = workload.num_samples * repeats
    passes = workload.setting.num_positions * workload.num_samples + 1
    noise = math.sqrt(noise_variance(outcome.flips, num_draws))
    return {
        "num_images": n,
        "num_positions": workload.setting.num_positions,
        "num_samples": workload.num_samples,
        "forward_mflops": flops / 1e6,
        "seconds": outcome.seconds,
        "ms_per_image": 1e3 * best / n,
        "draws_per_second": outcome.flips.size * workload.num_samples / best,
        "gflops": n * passes * flops / best / 1e9,
        "matmul_gflops": outcome.matmul_gflops,
        "spread": max(outcome.seconds) / best - 1,
        "compile_seconds": outcome.compile_seconds,
        "peak_mb": outcome.peak_mb,
        "work_mb": outcome.peak_mb - outcome.idle_mb,
        "cpu_seconds": outcome.cpu_seconds,
        "page_faults": outcome.page_faults,
        "sensitivity": float(outcome.flips.mean()) / num_draws,
        "noise": None if math.isnan(noise) else noise,
        "device": outcome.device,
        **outcome.probed,
    }


def _agreement(outcomes: dict[str, cell.Outcome], method: str, num_draws: int) -> Row:
    reference = next(iter(outcomes))
    if reference == method:
        return {"reference": reference}
    mine, theirs = outcomes[method], outcomes[reference]
    scale = max(1.0, float(np.abs(theirs.logits).max()))
    difference = float(np.abs(mine.logits - theirs.logits).max()) / scale
    z = z_score(mine.flips, theirs.flips, num_draws)
    same = difference <= LOGIT_TOLERANCE and not abs(z) > MAX_Z
    return {
        "reference": reference,
        **_unlike_plain(outcomes, method),
        "reference_sensitivity": float(theirs.flips.mean()) / num_draws,
        "logit_difference": difference,
        "z": z if math.isfinite(z) else None,
        "same": "yes" if same else "NO",
    }


def _say(text: str) -> None:
    """Progress, and what a run that is stopped has found."""
    print(text, end="", file=sys.stderr, flush=True)


def _unlike_plain(outcomes: dict[str, cell.Outcome], method: str) -> Row:
    """Draws that came out differently: all ways of jaxsens draw the same noise."""
    if not method.startswith("jaxsens") or PLAIN not in outcomes or method == PLAIN:
        return {}
    return {"unlike_plain": int(np.abs(outcomes[method].flips - outcomes[PLAIN].flips).sum())}


def _is_for(method: str, setting: Setting) -> bool:
    only = SIDES[method].architectures
    return only is None or setting.architecture in only
