"""What half precision does to a measurement: how many draws end so close to a tie that it decides.

In bfloat16 numbers differ by 1 in 128 at least. Two logits that are closer than that are equal, and
the first class wins, whatever the model would prefer: such draws count as flips, or not, by
rounding. How many there are says how far the sensitivity is that of the model, and not of its
number format.
"""

import functools

import jax
import numpy as np
from jaxtyping import Array, Bool

from jaxsens.core import runtime
from jaxsens.measurement.independence import rounding_of, some_draws
from jaxsens.measurement.jobs import MeasurementJob
from jaxsens.measurement.metrics import Metric
from jaxsens.measurement.whole_passes import outputs_of

#: Coarser numbers than this are half precision: float16 has 0.001, float32 1e-7.
_HALF = 1e-4
#: Draws that are looked at.
_NUM_DRAWS = 256


def near_ties(job: MeasurementJob) -> float | None:
    """The share of draws whose outputs, clean or edited, lie within rounding of a tie.

    Args:
      job: what was measured.

    Returns:
      The share among 256 draws spread over examples and positions; None for a model without half
      precision, and for a metric that does not jump.
    """
    rounding = rounding_of(job)
    if rounding < _HALF or job.spec.metric.jumps_within is None:
        return None
    draws = some_draws(job, _NUM_DRAWS)
    with jax.default_matmul_precision(runtime.PRECISION):
        clean, edited = (outputs_of(job, draws, is_edited=bit) for bit in (False, True))
        return float(np.mean(_are_close(job.spec.metric, rounding, clean, edited)))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _are_close(metric: Metric, rounding: float, clean: Array, edited: Array) -> Bool[Array, " B"]:
    return jax.vmap(functools.partial(metric.is_close, share=rounding))(clean, edited)
