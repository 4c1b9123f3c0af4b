"""Training: every example once, exactly optax, the same bits when stopped and continued."""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxsens.models import CNN, MLP, ViTSmall
from jaxsens.training.objectives import cross_entropy
from jaxsens.training.trainer import Recipe, Trainer, TrainingDivergedError, accuracy

KEY = jax.random.key(7)
#: Compiles faster than the default; for starting points, where any will do.
INIT = jax.random.key(0, impl="unsafe_rbg")

_random = np.random.default_rng(0)
X = jnp.asarray(_random.normal(size=(22, 3)), jnp.float32)
Y = jnp.asarray(_random.integers(0, 2, 22), jnp.int32)


class Dropped(nn.Module):
    """A linear map behind dropout."""

    @nn.compact
    def __call__(self, x, *, train=False):
        return nn.Dense(2)(nn.Dropout(0.3)(x, deterministic=not train))


#: Shared by many tests, because compiling takes most of their time.
TRAINER = Trainer(Dropped(), Recipe("adam", 0.05, batch_size=5, schedule="cosine"), epochs=4)


def run(trainer, x, y, *, epochs, key=KEY, state=None):
    """The state after some more epochs, and their losses."""
    state = trainer.init(x, INIT) if state is None else state
    losses = []
    for _ in range(epochs):
        state, loss = trainer.epoch(state, x, y, key)
        losses.append(loss)
    return state, losses


def batches(epoch, n, size, key=KEY):
    """The rows and the key of every step of an epoch, as the module's docstring tells them."""
    order, keys = order_and_keys(epoch, n, key)
    return [(order[t * size : (t + 1) * size], keys[t]) for t in range(n // size)]


@functools.partial(jax.jit, static_argnums=1)
def order_and_keys(epoch, n, key):
    order_key, steps_key = jax.random.split(jax.random.fold_in(key, epoch))
    keys = jax.vmap(jax.random.fold_in, (None, 0))(steps_key, jnp.arange(n))
    return jax.random.permutation(order_key, n), keys


def assert_same_bits(tree, expected):
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(tree), jax.device_get(expected))


# --- It learns ------------------------------------------------------------------------------------


def test_separable_classes_are_learned_to_the_last():
    y = jnp.asarray(np.arange(60) % 3, jnp.int32)
    x = jax.nn.one_hot(y, 3) * 4 + jnp.asarray(_random.normal(size=(60, 3)) * 0.3, jnp.float32)
    trainer = Trainer(MLP(3, widths=(16,)), Recipe("sgd", 0.1, batch_size=10), epochs=15)
    state, losses = run(trainer, x, y, epochs=15)
    assert losses[-1] < 0.1 * losses[0]
    assert accuracy(trainer.model.apply, state.variables, x, y) == 1.0
    assert int(state.epoch) == 15


@pytest.mark.parametrize(
    "model",
    [
        CNN(2, features=2, hidden=4),
        ViTSmall(2, patch=4, depth=1, heads=1, hidden=4, width=4, head_dim=4),
    ],
    ids=lambda model: type(model).__name__,
)
def test_image_models_fit_one_batch(model):
    x = jnp.asarray(_random.normal(size=(4, 8, 8, 1)), jnp.float32)
    y = jnp.array([0, 1, 0, 1], jnp.int32)
    trainer = Trainer(model, Recipe("adam", 0.02, batch_size=4), epochs=40)
    key = jax.random.key(7, impl="unsafe_rbg")
    _, losses = run(trainer, x, y, epochs=40, key=key)
    assert losses[-1] < 0.5 * losses[0]


# --- What an epoch is -----------------------------------------------------------------------------


class Ledger(nn.Module):
    """One parameter an example; x holds one-hot rows."""

    @nn.compact
    def __call__(self, x, *, train=False):
        return x @ self.param("w", nn.initializers.zeros, (x.shape[-1],))


def labels_seen(logits_fn, x, y, key):
    """Its gradient is the label, at the place of the example."""
    return jnp.sum(logits_fn(x, key) * y.astype(x.dtype))


def test_an_epoch_visits_each_example_once_but_the_remainder():
    trainer = Trainer(Ledger(), Recipe("sgd", 1.0, batch_size=5), 3, objective=labels_seen)
    x, y = jnp.eye(22), jnp.arange(1, 23)
    state, left_out = trainer.init(x, INIT), []
    before = np.zeros(22)
    for _ in range(3):
        state, _ = trainer.epoch(state, x, y, KEY)
        after = np.array(state.variables["params"]["w"])
        visited = before - after
        left_out.append(frozenset(np.flatnonzero(visited == 0)))
        np.testing.assert_array_equal(visited[visited != 0], y[visited != 0])
        before = after
    assert [len(rows) for rows in left_out] == [2, 2, 2]
    assert len(set(left_out)) > 1


def rate_by_hand(recipe, step, steps_per_epoch, epochs):
    return (
        recipe.learning_rate
        * {
            "constant": 1.0,
            "step": recipe.decay ** (step // (recipe.decay_epochs * steps_per_epoch)),
            "cosine": 0.5 * (1 + math.cos(math.pi * step / (steps_per_epoch * epochs))),
        }[recipe.schedule]
    )


def train_by_hand(model, recipe, epochs, params):
    """The plain loop in NumPy: SGD, Adam (Kingma & Ba) and AdamW (Loshchilov & Hutter)."""

    @jax.jit
    def grad_fn(params, x, y, key):
        def loss(params):
            logits = model.apply({"params": params}, x, train=True, rngs={"dropout": key})
            return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1).mean()

        return jax.value_and_grad(loss)(params)

    size, step, losses = recipe.batch_size, 0, []
    p, structure = jax.tree.flatten(jax.tree.map(np.float64, params))
    m, v = [np.zeros_like(leaf) for leaf in p], [np.zeros_like(leaf) for leaf in p]
    for epoch in range(epochs):
        for rows, key in batches(epoch, len(X), size):
            params = structure.unflatten([np.float32(leaf) for leaf in p])
            loss, grads = grad_fn(params, X[rows], Y[rows], key)
            losses.append(float(loss))
            rate = rate_by_hand(recipe, step, len(X) // size, epochs)
            step += 1
            for i, g in enumerate(map(np.float64, jax.tree.leaves(grads))):
                if recipe.optimizer == "sgd":
                    p[i] = p[i] - rate * g
                    continue
                m[i] = 0.9 * m[i] + 0.1 * g
                v[i] = 0.999 * v[i] + 0.001 * g**2
                update = m[i] / (1 - 0.9**step) / (np.sqrt(v[i] / (1 - 0.999**step)) + 1e-8)
                decay = recipe.weight_decay if recipe.optimizer == "adamw" else 0.0
                p[i] = p[i] - rate * (update + decay * p[i])
    return structure.unflatten(p), losses


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe("sgd", 0.5, batch_size=5, schedule="step", decay=0.3, decay_epochs=2),
        TRAINER.recipe,
        Recipe("adamw", 0.05, batch_size=5, weight_decay=0.3),
    ],
    ids=lambda recipe: f"{recipe.optimizer}-{recipe.schedule}",
)
def test_equals_a_plain_loop(recipe):
    trainer = Trainer(Dropped(), recipe, epochs=4)
    start = trainer.init(X, INIT)
    expected, step_losses = train_by_hand(trainer.model, recipe, 4, start.variables["params"])
    state, losses = run(trainer, X, Y, epochs=4, state=start)
    np.testing.assert_allclose(losses, np.reshape(step_losses, (4, -1)).mean(axis=1), rtol=1e-4)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        state.variables["params"],
        expected,
    )


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="sgd, adam or adamw; got 'lion'"):
        Recipe.build(unchecked(optimizer="lion"), 1, 1)
    with pytest.raises(ValueError, match="constant, step or cosine; got 'linear'"):
        Recipe.rate(unchecked(schedule="linear"), 1, 1)


def unchecked(**changes):
    """A recipe as it comes without the type checks of the tests."""
    recipe = Recipe()
    for name, value in changes.items():
        object.__setattr__(recipe, name, value)
    return recipe


# --- The same bits --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uninterrupted():
    state, losses = run(TRAINER, X, Y, epochs=4)
    return jax.device_get(state), losses


def test_the_same_key_gives_the_same_bits(uninterrupted):
    state, losses = run(TRAINER, X, Y, epochs=4)
    assert_same_bits(state, uninterrupted[0])
    assert losses == uninterrupted[1]


def test_another_key_gives_another_run(uninterrupted):
    _, losses = run(TRAINER, X, Y, epochs=1, key=jax.random.key(8))
    assert losses[0] != uninterrupted[1][0]


@pytest.mark.parametrize("stop", [1, 3])
def test_stopped_saved_and_continued_gives_the_same_bits(uninterrupted, stop):
    state, first = run(TRAINER, X, Y, epochs=stop)
    saved = jax.tree.map(np.copy, jax.device_get(state))
    del state
    again = Trainer(Dropped(), TRAINER.recipe, epochs=4)  # as a new process would make it
    state, rest = run(again, X, Y, epochs=4 - stop, state=jax.device_put(saved))
    assert_same_bits(state, uninterrupted[0])
    assert first + rest == uninterrupted[1]


def test_a_saved_state_outlives_the_next_epoch():
    state, _ = run(TRAINER, X, Y, epochs=1)
    saved = jax.device_get(state)
    copy = jax.tree.map(np.copy, saved)
    TRAINER.epoch(state, X, Y, KEY)
    assert_same_bits(saved, copy)


# --- Running statistics ---------------------------------------------------------------------------


class Normed(nn.Module):
    """Batch norm alone: its output is the logits."""

    @nn.compact
    def __call__(self, x, *, train=False):
        return nn.BatchNorm(use_running_average=not train, momentum=0.9, epsilon=0.0)(x)


def two_passes(logits_fn, x, y, key):
    """As a regulariser does: the batch, and a perturbed copy of it."""
    first = cross_entropy(logits_fn, x, y, key)
    return first + logits_fn(2 * x, key).var()


def test_running_statistics_are_averaged_in_training_and_used_in_evaluation():
    trainer = Trainer(Normed(), Recipe("sgd", 0.0, batch_size=5), 2, objective=two_passes)
    state, _ = run(trainer, X, Y, epochs=2)
    mean, var = np.zeros(3), np.ones(3)
    for epoch in range(2):
        for rows, _ in batches(epoch, len(X), 5):
            for scale in (1, 2):
                batch = scale * np.float64(X)[rows]
                mean = 0.9 * mean + 0.1 * batch.mean(axis=0)
                var = 0.9 * var + 0.1 * batch.var(axis=0)
    statistics = state.variables["batch_stats"]["BatchNorm_0"]
    np.testing.assert_allclose(statistics["mean"], mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(statistics["var"], var, rtol=1e-4)
    logits = jax.jit(trainer.model.apply)(state.variables, X)
    expected = (np.asarray(X) - mean) / np.sqrt(var)
    np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-5)


# --- What goes wrong ------------------------------------------------------------------------------


def test_the_step_of_a_nan_is_named():
    state, _ = run(TRAINER, X, Y, epochs=2)
    bad = 11
    (batch,) = (t for t, (rows, _) in enumerate(batches(2, len(X), 5)) if bad in rows)
    with pytest.raises(TrainingDivergedError) as error:
        TRAINER.epoch(state, X.at[bad].set(jnp.nan), Y, KEY)
    assert str(error.value) == (
        f"the loss is nan at step {8 + batch + 1} (epoch 3, batch {batch + 1} of 4); "
        "lower the learning rate (0.05)"
    )


def test_a_batch_larger_than_the_data_is_refused():
    trainer = Trainer(Dropped(), Recipe(batch_size=23), epochs=1)
    with pytest.raises(ValueError, match="batch_size=23 is larger than the 22 training examples"):
        trainer.init(X, INIT)


# --- One compilation ------------------------------------------------------------------------------


def test_all_epochs_share_one_compilation(compilations):
    recipe = Recipe("adam", 0.01, batch_size=6)
    state = Trainer(Dropped(), recipe, epochs=4).init(X, INIT)
    compilations.clear()
    state, _ = Trainer(Dropped(), recipe, epochs=4).epoch(state, X, Y, KEY)
    assert len(compilations) == 1
    for _ in range(3):
        state, _ = Trainer(Dropped(), recipe, epochs=4).epoch(state, X, Y, KEY)
    state = jax.device_put(jax.device_get(state))
    Trainer(Dropped(), recipe, epochs=4).epoch(state, X, Y, KEY)
    assert len(compilations) == 1


# --- Accuracy -------------------------------------------------------------------------------------


def identity(variables, x):
    return x


@pytest.mark.parametrize("batch_size", [1, 4, 7, 22, 500])
@pytest.mark.parametrize("last_is_right", [True, False])
def test_accuracy_is_exact_for_any_batch_size(batch_size, last_is_right):
    right = _random.random(22) < 0.6
    right[-1] = last_is_right
    prediction = np.argmax(np.asarray(X), axis=1)
    y = np.where(right, prediction, (prediction + 1) % 3)
    for x in (X, np.asarray(X)):
        assert accuracy(identity, (), x, y, batch_size=batch_size) == right.sum() / 22


def test_accuracy_compiles_once_for_all_batches():
    traces = []

    def apply_fn(variables, x):
        traces.append(x.shape)
        return x

    accuracy(apply_fn, (), np.asarray(X), np.asarray(Y), batch_size=5)
    assert traces == [(5, 3)]


def test_accuracy_is_in_eval_mode():
    trainer = Trainer(Dropped(), Recipe(batch_size=5), epochs=1)
    variables = trainer.init(X, INIT).variables
    logits = np.asarray(X) @ variables["params"]["Dense_0"]["kernel"]
    expected = np.mean(np.argmax(np.asarray(logits), axis=1) == np.asarray(Y))
    assert accuracy(trainer.model.apply, variables, X, Y) == pytest.approx(expected, abs=1e-12)


# --- Recipes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (Recipe(), optax.constant_schedule(0.1)),
        (Recipe(schedule="cosine"), optax.cosine_decay_schedule(0.1, 60)),
        (
            Recipe(schedule="step", decay=0.5, decay_epochs=2),
            optax.exponential_decay(0.1, 20, 0.5, staircase=True),
        ),
    ],
    ids=lambda value: getattr(value, "schedule", ""),
)
def test_rates_are_those_of_optax(recipe, expected):
    rate = recipe.rate(steps_per_epoch=10, epochs=6)
    steps = [0, 1, 19, 20, 39, 40, 59, 60]
    assert [float(rate(step)) for step in steps] == [float(expected(step)) for step in steps]
    by_hand = [rate_by_hand(recipe, step, 10, 6) for step in steps]
    np.testing.assert_allclose([float(rate(step)) for step in steps], by_hand, rtol=1e-5, atol=1e-8)
