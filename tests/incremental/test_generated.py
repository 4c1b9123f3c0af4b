"""Hundreds of generated functions: every value that an edit reaches is what a whole pass gives."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import Patches, Tokens
from jaxsens.incremental import propagate, values
from jaxsens.incremental.rules.rule_call import RuleCall
from tests.incremental.generated import Own, first_wrong, make_chain
from tests.incremental.layers import ALL, IMAGES, ROWS, TO_ROWS, conv_of
from tests.incremental.rare import RARE

IMAGE = np.random.default_rng(0).normal(size=(12, 12, 4)).astype(np.float32)
SEQUENCE = np.random.default_rng(1).normal(size=(10, 4)).astype(np.float32)
COUNTED_FROM_THE_END = Own((3, 0), 6, (-1, 0), (-2, 0))
ALONE = {
    **{name: (family, IMAGE, Patches(2)) for name, family in ALL.items()},
    "images": (IMAGES, IMAGE, Patches(3)),
    "to rows": (TO_ROWS, IMAGE, Patches(2)),
    "rows": (ROWS, SEQUENCE, Tokens()),
    **{name: (family, SEQUENCE, COUNTED_FROM_THE_END) for name, family in RARE.items()},
}


#: Chains whose every edit meets a jump: sums of small integers, `rem`, then `searchsorted` among
#: integers; the bits of a running sum, the last of which rounding decides. Whole passes decide all
#: of their edits, which is right, and saves nothing.
ALL_TIES = {289, 1647}


def wrong_chains(seeds):
    """What is wrong with the chains of some seeds, in words."""
    found = []
    for seed in seeds:
        chain = make_chain(seed)
        with chain.precision():
            fault = first_wrong(chain, chain.x, chain.grid, seed=seed)
        expected = "every edit is in doubt" if seed in ALL_TIES else None
        found += [f"{chain}: {fault}"] if fault != expected else []
    return found


@pytest.mark.parametrize(
    "part", [0, 1, *(pytest.param(part, marks=pytest.mark.slow) for part in (2, 3))]
)
def test_chains_of_blocks(part):
    assert not wrong_chains(range(10 * part, 10 * (part + 1)))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_chains_of_blocks(part):
    assert not wrong_chains(range(100 * (part + 1), 100 * (part + 2)))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in RARE else ()) for n in ALONE]
)
def test_every_block_alone(name):
    family, x, grid = ALONE[name]
    faults = {
        block: first_wrong(lambda _, x, f=f: f(x).reshape(len(x), -1), x, grid, positions=3)
        for block, f in family.items()
    }
    assert not {block: fault for block, fault in faults.items() if fault}


def strided(_, x):
    return conv_of(3, strides=2)(conv_of(3, strides=2, padding=(1, 1))(x)).reshape(len(x), -1)


def test_a_change_out_of_bounds_is_found(monkeypatch):
    assert first_wrong(strided, IMAGE, Patches(3)) is None
    monkeypatch.setattr(values, "zero_out_of_bounds", lambda change, layout, position: change)
    assert "conv" in first_wrong(strided, IMAGE, Patches(3))


def test_what_is_not_reachable_is_found(monkeypatch):
    def rule(call: RuleCall):
        (value,) = call.inputs
        layout = dataclasses.replace(value.layout, reachable=np.zeros_like(value.layout.reachable))
        return [call.result(layout, new=call.operation.apply(value.new)[0])]

    monkeypatch.setitem(propagate.RULES, "sin", rule)
    fault = first_wrong(lambda _, x: jnp.sin(x).mean(axis=1), SEQUENCE, Tokens())
    assert "differs where it is not reachable" in fault


def test_a_wrong_entry_is_found(monkeypatch):
    monkeypatch.setitem(propagate.RULES, "sin", lambda call: call.inputs)
    fault = first_wrong(lambda _, x: jnp.sin(x).mean(axis=1), SEQUENCE, Tokens())
    assert fault.startswith("sin: windowed (1, 1, 4) of (1, 10, 4) is off by")
