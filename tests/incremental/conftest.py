"""Every edit of a function, whole and incrementally."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens.incremental import make_program
from jaxsens.measurement import preparation


@pytest.fixture(autouse=True)
def _independent(request, monkeypatch):
    """Models are taken to treat examples independently, but for those of the project.

    Looking whether they do (tests/measurement/test_independence.py) takes a tenth of the time.
    """
    if request.module.__name__.rpartition(".")[2] != "test_models":
        monkeypatch.setattr(preparation, "check_independence", lambda job: None)


@pytest.fixture
def compare():
    """`compare(f, x, grid)`: asserts that f of every edited input is the same in both ways.

    Returns the program. `x` is one example; windows get new entries of the same kind. With several
    `contexts` the same program is asked in each.
    """

    def run(
        f, x, grid, *, params=(), contexts=((),), num_position_groups=1, scale=1.0, tolerance=1e-4
    ):
        x = jnp.asarray(x)
        shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (x, contexts[0]))
        program = make_program(f, params, *shapes, grid, "cpu", num_position_groups)
        window = grid.window_shape(x.shape)

        # Numbers drawn within the program would be a fifth of what there is to compile.
        rng = np.random.default_rng(7)
        is_whole = jnp.issubdtype(x.dtype, jnp.integer)
        news = [
            (rng.integers(0, 5, size) if is_whole else scale * rng.normal(size=size)).astype(
                x.dtype
            )
            for size in ((len(p), *window) for p, _ in program.position_groups)
        ]

        def whole(params, x, context, index, new):
            edited = jax.lax.dynamic_update_slice(x, new, grid.start(index, x.shape))
            return f(params, edited[None], *jax.tree.map(lambda a: a[None], context))[0]

        @jax.jit
        def both(params, x, context, news):
            clean = program.clean(params, x, context)
            outputs = []
            for group, ((positions, _), new) in enumerate(
                zip(program.position_groups, news, strict=True)
            ):
                plain = jax.vmap(lambda p, n: whole(params, x, context, p, n))(positions, new)
                edits = jax.vmap(lambda i, n, g=group: program.edit(clean, g, i, n))(
                    np.arange(len(positions)), new
                )
                outputs.append((plain, edits))
            return outputs

        for context in contexts:
            for plain, (edits, doubt) in both(params, x, context, news):
                assert np.isfinite(plain).all()
                assert not doubt.any()
                plain = np.asarray(plain, np.float64).reshape(len(plain), -1)
                worst = np.abs(plain - np.reshape(edits, plain.shape)).max(axis=1, initial=0)
                assert (worst <= tolerance * np.abs(plain).max(axis=1, initial=1)).all()
        return program

    return run
