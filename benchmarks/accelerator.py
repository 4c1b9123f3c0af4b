"""What an accelerator could do at best, by a roofline of the programs that would run on it.

    python -m benchmarks.accelerator       writes results/accelerator.json and accelerator.md

The programs of the ten models, plain and by reuse, are traced and lowered for CUDA and for TPUs on
any machine; nothing is compiled or run. Their operations and the bytes that products move are
counted, and divided by what the makers publish of their devices: lower bounds of the time, for
comparing devices and precisions, not a forecast.
"""

import functools
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from benchmarks.frame import Column, Row, markdown_table
from benchmarks.jaxsens_methods import apply_function, first_input, make_model, perturbation
from benchmarks.models import SETTINGS
from jaxsens.core.files import write_atomic
from jaxsens.core.jaxprs import bytes_of
from jaxsens.incremental import flops
from jaxsens.measurement.batching import (
    MAX_DRAWS,
    BatchPlan,
    byte_budget,
    make_draw_plan,
    make_plan,
    make_reuse_plan,
    max_batch_within,
)
from jaxsens.measurement.chunk_program import device_totals
from jaxsens.measurement.draw_program import device_changes
from jaxsens.measurement.jobs import MeasurementSpec
from jaxsens.measurement.metrics import label_flip
from jaxsens.measurement.reuse import choose_draw_reuse, choose_reuse

FOLDER = Path(__file__).parent
PAGE, RESULTS = FOLDER / "accelerator.md", FOLDER / "results" / "accelerator.json"

#: Examples that programs are made for.
_NUM_EXAMPLES = 1000

#: JAX's names of the platforms that programs are lowered for, by the kind of hardware.
PLATFORMS = {"gpu": "cuda", "tpu": "tpu"}


class Device(NamedTuple):
    """What a maker publishes of one device: FLOP/s at each precision, and bytes/s of its memory."""

    platform: str
    highest: float
    default: float
    bandwidth: float


#: NVIDIA: float32 without tensor cores for "highest", TensorFloat-32 without sparsity for the
#: others. Google: bfloat16, of which "highest" takes six products and "default" one.
DEVICES = {
    "A100 80 GB": Device("gpu", 19.5e12, 156e12, 2.039e12),
    "H100 SXM": Device("gpu", 67e12, 494.7e12, 3.35e12),
    "TPU v5e": Device("tpu", 197e12 / 6, 197e12, 0.819e12),
    "TPU v5p": Device("tpu", 459e12 / 6, 459e12, 2.765e12),
}


class DeviceProgram(NamedTuple):
    """The program of one device.

    Attributes:
      function: of the arguments.
      arguments: their shapes.
      num_examples: how many examples one turn of its loop takes.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    num_examples: int

    def lowered(self, platform: str) -> str:
        """The program as StableHLO for cuda or tpu."""
        return export.export(jax.jit(self.function), platforms=(platform,))(
            *self.arguments
        ).mlir_module()


def device_programs(model: str, platform: str) -> dict[str, DeviceProgram]:
    """The programs of a model for gpu or tpu: all positions and random ones, plain and by reuse."""
    setting = SETTINGS[model]
    apply_fn = apply_function(setting)
    params = jax.eval_shape(make_model(setting).init, jax.random.key(0), first_input(setting))
    x = jax.ShapeDtypeStruct(setting.shape, jnp.float32)
    shapes: tuple[Any, ...] = (x,)
    if setting.takes_mask:
        shapes = (x, jax.ShapeDtypeStruct(setting.shape[:1], jnp.bool_))
    spec = MeasurementSpec(apply_fn, perturbation(setting), label_flip, setting.num_samples, False)
    budget = byte_budget(None, platform)
    max_batch = max_batch_within(budget.widest, apply_fn, params, shapes)
    given = (True, spec, params, shapes, platform, budget)
    reuse = choose_reuse(*given, setting.num_samples, _NUM_EXAMPLES)
    draws = choose_draw_reuse(*given)
    if reuse is None or draws is None:
        raise ValueError(f"{model} cannot be measured by reuse")
    totals = functools.partial(_totals_program, spec, params, shapes, platform)
    changes = functools.partial(_changes_program, spec, params, shapes, platform)
    return {
        "plain": totals(make_plan(max_batch, setting.num_positions * setting.num_samples + 1)),
        "reuse": totals(
            make_reuse_plan(
                reuse.max_batch,
                setting.num_positions,
                setting.num_samples,
                reuse.num_position_groups,
                _NUM_EXAMPLES,
                reuse.max_examples,
            )
        ),
        "plain, random positions": changes(make_draw_plan(max_batch)),
        "reuse, random positions": changes(make_draw_plan(draws.max_batch, draws.max_examples)),
    }


def _chunk(shapes: Any, num: int) -> Any:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((num, *a.shape), a.dtype), shapes)


def _whole(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.int32)


def _totals_program(spec, params, shapes, platform, plan: BatchPlan) -> DeviceProgram:
    def function(params, x, context, examples, probes, num_valid, seed):
        key = jax.random.wrap_key_data(seed)
        arguments = (params, x, context, examples, probes, num_valid, key, None)
        return device_totals(spec, plan, platform, *arguments)

    x, *context = _chunk(shapes, plan.chunk)
    examples = (_whole(plan.chunk), _whole(plan.chunk, 1), _whole(1))
    seed = jax.ShapeDtypeStruct((2,), np.uint32)
    return DeviceProgram(function, (params, x, tuple(context), *examples, seed), plan.group)


def _changes_program(spec, params, shapes, platform, plan: BatchPlan) -> DeviceProgram:
    def function(params, x, context, examples, draws, counts, num_valid, seed):
        key = jax.random.wrap_key_data(seed)
        arguments = (params, x, context, examples, draws, counts, num_valid, key, None)
        return device_changes(spec, plan, platform, *arguments)

    x, *context = _chunk(shapes, plan.chunk)
    draws = (_whole(plan.chunk, MAX_DRAWS, 2), _whole(plan.chunk), _whole(1))
    seed = jax.ShapeDtypeStruct((2,), np.uint32)
    arguments = (params, x, tuple(context), _whole(plan.chunk), *draws, seed)
    return DeviceProgram(function, arguments, plan.group)


# What they cost.


def product_bytes(jaxpr: Any) -> float:
    """Bytes that products and convolutions read and write, as if all else were fused into them.

    A loop counts as often as it runs; one of unknown length once.
    """
    return math.fsum(_bytes(equation) for equation in jaxpr.eqns)


def _bytes(equation: Any) -> float:
    name, params = equation.primitive.name, equation.params
    if name == "scan":
        return params["length"] * product_bytes(params["jaxpr"].jaxpr)
    if name == "while":
        return product_bytes(params["body_jaxpr"].jaxpr)
    if name == "cond":
        return max(product_bytes(branch.jaxpr) for branch in params["branches"])
    inner = next((params[key] for key in ("jaxpr", "call_jaxpr") if key in params), None)
    if inner is not None:
        return product_bytes(getattr(inner, "jaxpr", inner))
    if name not in ("dot_general", "conv_general_dilated"):
        return 0.0
    return sum(bytes_of(atom.aval) for atom in (*equation.invars, *equation.outvars))


def costs_of(program: DeviceProgram) -> Row:
    """Operations and bytes of one example."""
    jaxpr = jax.make_jaxpr(program.function)(*program.arguments).jaxpr
    return {
        "gflop": flops.count(jaxpr) / program.num_examples / 1e9,
        "gb": product_bytes(jaxpr) / program.num_examples / 1e9,
    }


def counted(models: Sequence[str] = tuple(SETTINGS)) -> list[Row]:
    """A row for every model and way, on a GPU; programs for a TPU have the same products."""
    rows = []
    for model in models:
        with jax.default_matmul_precision("highest"):
            programs = device_programs(model, "gpu")
            rows += [
                {"model": model, "way": way, **costs_of(programs[way])}
                for way in ("plain", "reuse")
            ]
        print(rows[-1], flush=True)
    return rows


def bounds(row: Row) -> Row:
    """The least milliseconds per example on each device, at each precision."""
    found = {"intensity": row["gflop"] / row["gb"]}
    for name, device in DEVICES.items():
        memory = row["gb"] * 1e9 / device.bandwidth
        for precision in ("highest", "default"):
            compute = row["gflop"] * 1e9 / getattr(device, precision)
            found[f"{name} {precision}"] = 1e3 * max(compute, memory)
    return found


# The page.

_TABLE = re.compile(r"(<!-- table: roofline -->\n\n).*?(\n\n<!-- end of table -->)", re.DOTALL)


def roofline_table(rows: Sequence[Row]) -> str:
    """Every model, plain and by reuse, with its bounds."""
    columns = [
        Column("model", "model"),
        Column("way", "way"),
        Column("GFLOP", "gflop", "{:.3g}".format),
        Column("GB", "gb", "{:.2g}".format),
        Column("FLOP/byte", "intensity", "{:.0f}".format),
    ]
    columns += [
        Column(f"{name}, {precision}", f"{name} {precision}", "{:.2g}".format)
        for name in DEVICES
        for precision in ("highest", "default")
    ]
    return markdown_table(columns, [row | bounds(row) for row in rows])


def written(page: str, rows: Sequence[Row]) -> str:
    """The page with its table made anew."""
    return _TABLE.sub(lambda match: match[1] + roofline_table(rows) + match[2], page)


def main() -> None:
    """Counts all models anew and writes what was found."""
    rows = counted()
    write_atomic(RESULTS, json.dumps({"rows": rows}, indent=1) + "\n")
    write_atomic(PAGE, written(PAGE.read_text("utf-8"), rows))


if __name__ == "__main__":
    main()
