"""One number of devices of the suite "devices", in a process that pretends to have as many.

python -m benchmarks.devices_cell JOB.json     (started by `benchmarks.devices`)

Nothing is run: a step of training is compiled for the mesh, as `jaxsens.training` would compile it,
and the program of one device is read.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.workload import Setting

#: Bytes of a number, by the name that XLA has for it.
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "f64": 8}

#: What a device sends for each byte of a collective's result, of D devices in a ring.
_SENT = {
    "all-reduce": lambda d: 2 * (d - 1) / d,
    "all-gather": lambda d: (d - 1) / d,
    "reduce-scatter": lambda d: d - 1,
    "all-to-all": lambda d: (d - 1) / d,
    "collective-permute": lambda d: 1,
}

_COLLECTIVE = re.compile(rf" = (.*?) ({'|'.join(_SENT)})(?:-start)?\(")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")


def exchanged(program: str, num_devices: int) -> dict[str, float]:
    """What the collectives of a compiled program exchange.

    Args:
      program: the text of the program of one device.
      num_devices: D.

    Returns:
      "num_collectives", and "sent_bytes" of one device if each collective is a ring.

    >>> exchanged("%a = (f32[2,3]{1,0}, f32[]) all-reduce(%b, %c), to_apply=%add", 2)
    {'num_collectives': 1, 'sent_bytes': 28.0}
    """
    found = _COLLECTIVE.findall(program)
    sent = 0.0
    for result, kind in found:
        for dtype, shape in _ARRAY.findall(result):
            size = _BYTES[dtype]
            for side in filter(None, shape.split(",")):
                size *= int(side)
            sent += _SENT[kind](num_devices) * size
    return {"num_collectives": len(found), "sent_bytes": sent}


def compiled_step(setting: Setting, batch: int, optimizer: str) -> Any:
    """A step of training, compiled for all devices; and the number of parameters."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding

    from jaxsens import models
    from jaxsens.core import runtime
    from jaxsens.training.steps import step
    from jaxsens.training.trainer import Recipe, Trainer

    mesh, sizes = runtime.global_mesh(), dict(setting.sizes)
    model = getattr(models, setting.architecture)(**sizes)
    trainer = Trainer(model, Recipe(optimizer, 0.1, batch_size=batch), epochs=1)  # type: ignore[arg-type]
    example = jnp.zeros((batch, *setting.shape))
    state = jax.eval_shape(trainer.init, example, jax.random.key(0))
    whole = NamedSharding(mesh, runtime.REPLICATED)

    def on_all(tree: Any) -> Any:
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=whole), tree
        )

    def one(state: Any, x: Any, y: Any, rows: Any, key: Any) -> Any:
        # As in an epoch: the training set is on every device, which takes its rows of it.
        return step(trainer, x.shape[0], state, x[rows], y[rows], key, mesh)

    n = 4 * batch
    data = (
        jax.ShapeDtypeStruct((n, *setting.shape), jnp.float32),
        jax.ShapeDtypeStruct((n,), jnp.int32),
        jax.ShapeDtypeStruct((batch,), jnp.int32),
        jax.eval_shape(lambda: jax.random.key(0)),
    )
    program = jax.jit(one, donate_argnums=0).lower(on_all(state), *on_all(data)).compile()
    return program, sum(leaf.size for leaf in jax.tree.leaves(state.variables["params"]))


def row(setting: Setting, batch: int, optimizer: str, num_devices: int) -> dict[str, Any]:
    """FLOPs of a device and what it sends, for one step."""
    program, num_parameters = compiled_step(setting, batch, optimizer)
    return {
        "num_parameters": num_parameters,
        "flops": float(program.cost_analysis()["flops"]),
        **exchanged(program.as_text(), num_devices),
    }


def main(job: Path) -> int:
    """Compiles what the job asks for; the exit status."""
    asked = json.loads(job.read_text())
    rows = [
        {"model": each["model"], "batch": each["batch"]}
        | row(
            Setting.from_json(each["setting"]),
            each["batch"],
            each["optimizer"],
            asked["num_devices"],
        )
        for each in asked["steps"]
    ]
    Path(asked["out"]).write_text(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
