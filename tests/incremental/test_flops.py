"""Operations are counted as XLA counts them; a loop counts as often as it turns."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from jaxsens.incremental import flops
from jaxsens.models import CNN, MLP, ViTSmall

IMAGE = jnp.zeros((1, 16, 16, 1))
MODELS = {
    "MLP": MLP(4),
    "CNN": CNN(4),
    "ViT": ViTSmall(4, patch=4, depth=2, heads=2, hidden=64, width=32, head_dim=16),
}


def counted(f, *arguments):
    return flops.count(jax.make_jaxpr(f)(*arguments).jaxpr)


def by_xla(f, *arguments):
    return jax.jit(f).lower(*arguments).cost_analysis()["flops"]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_without_loops_costs_what_xla_says(name):
    model = MODELS[name]
    variables = jax.eval_shape(model.init, jax.random.key(0), IMAGE)
    xla = by_xla(model.apply, variables, IMAGE)
    assert counted(model.apply, variables, IMAGE) == pytest.approx(xla, rel=0.1)


def test_a_loop_counts_as_often_as_it_turns():
    def scanned(num, x):
        return lax.scan(lambda a, _: (jnp.tanh(a @ a), None), x, length=num)[0]

    x = jnp.ones((32, 32))
    assert counted(lambda x: scanned(8, x), x) == 2 * counted(lambda x: scanned(4, x), x)
