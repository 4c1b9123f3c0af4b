"""Flax nnx modules: the module's own outputs, its state as parameters, eval mode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxsens
from jaxsens import Gaussian, Patches, Perturbation, Tokens, adapters
from tests.adapters.same import KEY, check_same

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.normal(size=(5, 8, 8, 3)).astype(np.float32)
NOISE = Perturbation(Patches(4), Gaussian(sigma=3.0))


class Net(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 4, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.out = nnx.Linear(256, 3, rngs=rngs)

    def __call__(self, x):
        x = self.dropout(nnx.relu(self.norm(self.conv(x))))
        return self.out(x.reshape(len(x), -1))


class Reader(nnx.Module):
    """An RNN, which counts in its random stream whenever it is called."""

    def __init__(self, rngs):
        self.rnn = nnx.RNN(nnx.GRUCell(4, 8, rngs=rngs))
        self.out = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x):
        return self.out(self.rnn(x)[:, -1])


def trained_net():
    model = Net(nnx.Rngs(0))
    model(jnp.asarray(IMAGES))  # moves the running statistics
    model.eval()
    return model


def test_a_network_with_batch_norm_and_dropout_is_the_same():
    model = trained_net()
    check_same(adapters.nnx(model), IMAGES, NOISE, model(jnp.asarray(IMAGES)))


def test_training_mode_is_refused_and_says_what_to_switch_off():
    model = trained_net()
    model.dropout.deterministic = False
    with pytest.raises(ValueError, match=r"training mode: dropout \(Dropout\) draws numbers") as e:
        jaxsens.sensitivity(model, IMAGES, NOISE, key=KEY)
    assert "call model.eval() first" in str(e.value)
    assert "\n" not in str(e.value)
    model.dropout.deterministic, model.norm.use_running_average = True, False
    with pytest.raises(ValueError, match=r"Net is in training mode: norm \(BatchNorm\) mixes"):
        adapters.nnx(model)


def test_modules_of_one_graph_share_their_function():
    first, second = (Net(nnx.Rngs(seed)) for seed in (0, 1))
    first.eval()
    second.eval()
    assert adapters.nnx(first).apply_fn == adapters.nnx(second).apply_fn
    assert hash(adapters.nnx(first).apply_fn) == hash(adapters.nnx(second).apply_fn)


def test_an_rnn_may_count_and_leaves_the_users_module_alone():
    model = Reader(nnx.Rngs(0))
    x = GENERATOR.normal(size=(4, 5, 4)).astype(np.float32)
    before = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(model, nnx.RngCount)))
    noise = Perturbation(Tokens(), Gaussian(sigma=3.0))
    adapted = adapters.nnx(model)
    check_same(adapted, x, noise, jax.jit(adapted.apply_fn)(adapted.params, x))
    after = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(model, nnx.RngCount)))
    assert jax.tree.leaves(before) == jax.tree.leaves(after)
    np.testing.assert_allclose(adapted.apply_fn(adapted.params, x), model(jnp.asarray(x)), 1e-5)


def test_a_module_inside_apply_fn_that_counts_says_what_to_do():
    model = Reader(nnx.Rngs(0))
    x = GENERATOR.normal(size=(4, 5, 4)).astype(np.float32)
    noise = Perturbation(Tokens(), Gaussian(sigma=3.0))
    with pytest.raises(ValueError, match=r"jaxsens.adapters.nnx\(model\)") as error:
        jaxsens.sensitivity(lambda params, x: model(x), (), x, noise, key=KEY)
    assert "\n" not in str(error.value)
    graph, state = nnx.split(model)
    with pytest.raises(ValueError, match=r"jaxsens.adapters.nnx\(model\)"):
        jaxsens.sensitivity(lambda state, x: nnx.merge(graph, state)(x), state, x, noise, key=KEY)


def test_what_is_no_module_is_refused():
    with pytest.raises(ValueError, match=r"adapters.nnx needs a flax.nnx.Module; got 3"):
        adapters.nnx(3)
