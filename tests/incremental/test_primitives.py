"""Every primitive of `jax.lax` is in a generated function, and those without a rule are known.

An operation without a rule takes its operands whole, which is right and not fast.
"""

import functools

import jax
import jax.extend.core.primitives
import jax.numpy as jnp
import pytest
from jax import lax

from jaxsens.core.jaxprs import equations
from jaxsens.incremental.propagate import RULES
from tests.incremental.layers import ALL, IMAGES, ROWS, TO_ROWS
from tests.incremental.rare import RARE

#: What no model that is measured is made of, and why.
NOT_IN_MODELS = {
    "between devices": "all_gather all_to_all axis_index pmax pmin ppermute psum ragged_all_to_all "
    "sharding_constraint",
    "of memory that is written to": "get swap empty2",
    "of effects and their order": "after_all create_token dce_sink stage",
    "of derivatives alone": "custom_lin select_and_scatter",
    "calls that JAX makes by itself": "call closed_call",
    "another number every time": "rng_uniform",
    "not on a CPU": "mulhi",
    "of one matrix, never of a batch": "cholesky_update",
    "of XLA's own rewrites": "eq_to ormqr",
}
#: Calls are replaced by what they call, before rules are asked.
CALLS = "call closed_call custom_jvp_call custom_vjp_call jit remat2"
WITHOUT_A_RULE = {
    "of an array that is made, not edited": "iota rng_bit_generator rng_uniform random_bits "
    "random_fold_in random_gamma random_seed random_split threefry2x32 empty2",
    "entry by entry": "bessel_i0e bessel_i1e bitcast_convert_type clz device_put eq_to "
    "igamma_grad_a le_to lt_to mulhi name optimization_barrier polygamma zeta "
    "sharding_constraint",
    "by another order": "rev stack tile unstack",
    "at indices": "dynamic_slice dynamic_update_slice get scatter scatter-add scatter-max "
    "scatter-min scatter-mul scatter-sub swap",
    "along an axis": "approx_top_k fft reduce reduce_window reduce_xor select_and_gather_add "
    "select_and_scatter select_and_scatter_add top_k",
    "loops and branches": "cond custom_lin custom_linear_solve while",
    "linear algebra": "cholesky cholesky_update eig eigh hessenberg householder_product lu "
    "lu_pivots_to_permutation ormqr qr schur svd symmetric_product triangular_solve tridiagonal "
    "tridiagonal_solve",
    "between devices": "all_gather all_to_all axis_index pmax pmin ppermute psum ragged_all_to_all",
    "of effects and their order": "after_all create_token dce_sink stage",
}


def names(table):
    return {name for line in table.values() for name in line.split()}


@functools.cache
def primitives():
    """The names of all primitives that `jax.lax` and JAX's list of them hold."""
    rooms = lax, lax.linalg, jax.extend.core.primitives
    return {getattr(room, name).name for room in rooms for name in dir(room) if name.endswith("_p")}


def generated():
    """The names of all primitives of all blocks."""
    image = jax.ShapeDtypeStruct((1, 12, 12, 4), jnp.float32)
    sequence = jax.ShapeDtypeStruct((1, 10, 4), jnp.float32)
    tables = [(image, table) for table in (*ALL.values(), IMAGES, TO_ROWS)]
    tables += [(sequence, table) for table in (ROWS, *RARE.values())]
    return {
        equation.primitive.name
        for x, table in tables
        for block in table.values()
        for equation in equations(jax.make_jaxpr(block)(x).jaxpr)
    }


def test_every_primitive_is_in_a_generated_function():
    assert primitives() - generated() == names(NOT_IN_MODELS)


def test_primitives_without_a_rule_are_known():
    assert primitives() - set(RULES) == names(WITHOUT_A_RULE) | set(CALLS.split())


@pytest.mark.parametrize("table", [NOT_IN_MODELS, WITHOUT_A_RULE], ids=["models", "rules"])
def test_tables_name_each_primitive_once(table):
    listed = [name for line in table.values() for name in line.split()]
    assert len(listed) == len(set(listed))
