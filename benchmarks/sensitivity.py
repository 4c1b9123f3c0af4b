"""Suite "sensitivity": the paper's measurement by PyTorch and by jaxsens.

Every method gets the same weights and the same images, and must find the same thing: clean logits
within `LOGIT_TOLERANCE` of the baseline's, and the same sensitivity within the noise of both.

Assumption: images are uniform noise and weights untrained. That changes no method's work, since
none of them looks at the values; the sensitivities here say nothing about trained models.
"""

import importlib.util
import json
import math
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks import cell
from benchmarks.frame import Column, Options, Result, Row, UsageError
from benchmarks.workload import Setting, Workload, load_arrays

#: The paper's models on Fashion-MNIST.
SETTINGS = {
    "mlp": Setting("MLP", {"num_classes": 10}),
    "cnn": Setting("CNN", {"num_classes": 10}),
    "vit": Setting(
        "ViTSmall", {"num_classes": 10, "patch": 4, "depth": 2, "heads": 8, "hidden": 256}
    ),
}


@dataclass(frozen=True)
class Side:
    """One side of the comparison.

    Attributes:
      factory: "module:function" that makes its `Method`, imported in the cell's own process.
      package: without which it cannot run.
      architectures: the only ones it is for; default all.
    """

    factory: str
    package: str
    architectures: tuple[str, ...] | None = None


SIDES = {
    "torch-loop": Side("benchmarks.torch_reference:loop", "torch"),
    "torch-loop-all-tokens": Side(
        "benchmarks.torch_reference:loop_all_tokens", "torch", ("ViTSmall",)
    ),
    "torch-batched": Side("benchmarks.torch_reference:batched", "torch"),
    "jaxsens-all-at-once": Side("benchmarks.jaxsens_methods:all_at_once", "jax"),
    "jaxsens": Side("benchmarks.jaxsens_methods:blocks", "jax"),
}

#: What the ratios are against: the measurement as the paper's authors make it.
BASELINE = "torch-loop"
DEFAULT_METHODS = (BASELINE, "torch-batched", "jaxsens-all-at-once", "jaxsens")

LOGIT_TOLERANCE = 1e-4
#: About once in 16,000 honest comparisons.
MAX_Z = 4.0

COLUMNS = (
    Column("model", "model"),
    Column("method", "method"),
    Column("ms/image", "ms_per_image", lambda ms: f"{ms:.3g}" if ms < 100 else f"{ms:,.0f}"),
    Column(f"speed vs {BASELINE}", "ratio", "{:.2f}×".format),
    Column("spread", "spread", "{:.0%}".format),
    Column("compile s", "compile_seconds", "{:.2f}".format),
    Column("peak MB", "peak_mb", "{:.0f}".format),
    Column("over idle MB", "work_mb", "{:.0f}".format),
    Column("draws/s", "draws_per_second", "{:,.0f}".format),
    Column("sensitivity", "sensitivity", "{:.4f}".format),
    Column("± noise", "noise", "{:.4f}".format),
    Column("max Δlogit", "logit_difference", "{:.0e}".format),
    Column("z", "z", "{:+.1f}".format),
    Column("same", "same"),
    Column("device", "device"),
)


def run(options: Options) -> Result:
    """All cells of the suite, one after the other."""
    names = options.methods or DEFAULT_METHODS
    _check_known("model", options.models, SETTINGS)
    _check_known("method", names, SIDES)
    runnable = [name for name in names if installed(SIDES[name].package)]
    notes = []
    if len(runnable) < len(names):
        left_out = ", ".join(name for name in names if name not in runnable)
        notes.append(
            f"torch is missing, so {left_out} could not run and there is no ratio: "
            "pip install -e '.[bench]'"
        )
    if not runnable:
        return Result([], COLUMNS, notes, agree=False)
    rows: list[Row] = []
    for model in options.models:
        setting = SETTINGS[model]
        rows += _compare(model, setting, [n for n in runnable if _is_for(n, setting)], options)
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
    blind = [
        f"{row['model']} {row['method']}: no draw changed a prediction, so z says nothing"
        for row in rows
        if row.get("sensitivity") == 0
    ]
    agree = not (failures or differing)
    return Result(rows, COLUMNS, [*notes, *failures, *differing, *blind], agree)


def installed(package: str) -> bool:
    """Whether the package can be imported; it is not."""
    return importlib.util.find_spec(package) is not None


def make_workload(setting: Setting, weights: dict[str, np.ndarray], options: Options) -> Workload:
    """Random images for these weights."""
    rng = np.random.default_rng(options.seed)
    x = rng.uniform(-1, 1, (options.num_images, *setting.shape)).astype(np.float32)
    return Workload(setting, x, weights, options.num_samples, options.batch)


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


def _compare(model: str, setting: Setting, methods: list[str], options: Options) -> list[Row]:
    """Rows of one model, each checked against the first method that ran."""
    outcomes: dict[str, cell.Outcome] = {}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="jaxsens-bench-") as folder:
        path = Path(folder) / "workload.npz"
        workload = make_workload(setting, _weights(setting, options, Path(folder)), options)
        workload.save(path)
        for method in methods:
            print(f"{model}: {method} …", file=sys.stderr, flush=True)
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
                continue
            outcomes[method] = outcome
            row |= _numbers(outcome, workload, options.repeats)
            row |= _agreement(outcomes, method, workload.num_samples * options.repeats)
    if BASELINE in outcomes:
        slow = min(outcomes[BASELINE].seconds)
        for row in rows:
            if row["method"] in outcomes:
                row["ratio"] = slow / min(outcomes[row["method"]].seconds)
    return rows


def _weights(setting: Setting, options: Options, folder: Path) -> dict[str, np.ndarray]:
    job, out = folder / "weights.json", folder / "weights.npz"
    job.write_text(json.dumps({"setting": asdict(setting), "seed": options.seed, "out": str(out)}))
    # On the CPU: an accelerator's random numbers may differ, and the cells need it for themselves.
    environment = cell.thread_environment(options.num_threads) | {"JAX_PLATFORMS": "cpu"}
    cell.run_module("benchmarks.jaxsens_methods", str(job), environment=environment)
    return load_arrays(out)


def _numbers(outcome: cell.Outcome, workload: Workload, repeats: int) -> Row:
    best, n = min(outcome.seconds), len(workload.x)
    num_draws = workload.num_samples * repeats
    noise = math.sqrt(noise_variance(outcome.flips, num_draws))
    return {
        "num_images": n,
        "num_positions": workload.setting.num_positions,
        "num_samples": workload.num_samples,
        "seconds": outcome.seconds,
        "ms_per_image": 1e3 * best / n,
        "draws_per_second": outcome.flips.size * workload.num_samples / best,
        "spread": max(outcome.seconds) / best - 1,
        "compile_seconds": outcome.compile_seconds,
        "peak_mb": outcome.peak_mb,
        "work_mb": outcome.peak_mb - outcome.idle_mb,
        "sensitivity": float(outcome.flips.mean()) / num_draws,
        "noise": None if math.isnan(noise) else noise,
        "device": outcome.device,
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
        "reference_sensitivity": float(theirs.flips.mean()) / num_draws,
        "logit_difference": difference,
        "z": z if math.isfinite(z) else None,
        "same": "yes" if same else "NO",
    }


def _is_for(method: str, setting: Setting) -> bool:
    only = SIDES[method].architectures
    return only is None or setting.architecture in only


def _check_known(kind: str, names: tuple[str, ...], known: dict) -> None:
    for name in names:
        if name not in known:
            raise UsageError(f"unknown {kind} {name!r}; choose from {', '.join(known)}")
