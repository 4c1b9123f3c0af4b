"""Models that cannot be measured as they are: one line each, and nothing is measured."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from jaxsens import Bits, Gaussian, Patches, Perturbation, sensitivity

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
W = jnp.asarray(np.random.default_rng(1).normal(size=(8, 3)), jnp.float32)
NOISE = Perturbation(Bits(), Gaussian(sigma=1.0))


def refused(apply_fn, params=W, x=X, noise=NOISE, **options):
    with pytest.raises(ValueError) as error:  # noqa: PT011  the caller looks at the line
        sensitivity(apply_fn, params, x, noise, key=KEY, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_batch_written_into_a_reshape():
    def model(params, x):
        return x.reshape(32, 8) @ params

    assert "apply_fn takes batches of 32 alone, and must take any number" in refused(model)

    def halved(params, x):  # two examples become 16 rows, and fail nowhere
        return x.reshape(16, -1) @ params[: x.size // 16]

    assert "apply_fn takes batches of 16 alone" in refused(halved)
    # No usual number, and none that the error names: that of the examples.
    wide = jnp.ones((21, 3))
    line = refused(lambda w, x: x.reshape(6, -1) @ w, wide, np.ones((6, 21), np.float32))
    assert "apply_fn takes batches of 6 alone" in line


def exported(batch):
    shape = export.symbolic_shape(batch) if isinstance(batch, str) else batch
    inputs = jax.ShapeDtypeStruct((*shape, 8), jnp.float32)
    weights = jax.ShapeDtypeStruct(W.shape, W.dtype)
    return export.export(jax.jit(lambda params, x: x @ params))(weights, inputs).call


def test_an_exported_function_of_one_batch():
    assert "export the model with jax.export.symbolic_shape" in refused(exported((64,)))
    assert "apply_fn takes batches of 37 alone" in refused(exported((37,)))
    symbolic = exported("b")
    est = sensitivity(symbolic, W, X, NOISE, key=KEY, incremental=False)
    assert est.num_examples == 50


def test_channels_at_the_other_end():
    def convolved(order):
        def model(kernel, x):
            dims = (order, "HWIO", order)
            y = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=dims)
            return y.mean(axis=(order.index("H"), order.index("W")))

        return model

    kernel, x = jnp.ones((3, 3, 3, 2)), np.ones((5, 3, 8, 8), np.float32)
    last = Perturbation(Patches(4), Gaussian(sigma=1.0))
    first = Perturbation(Patches(4, channels="first"), Gaussian(sigma=1.0))
    line = refused(convolved("NHWC"), kernel, x, first)
    assert "fails for images (n, 3, 8, 8) and takes (n, 8, 8, 3): give x.transpose(0, 2, 3," in line
    line = refused(convolved("NCHW"), kernel, np.moveaxis(x, 1, 3), last)
    assert line.endswith('x.transpose(0, 3, 1, 2), and Patches(p, channels="first") as the grid')


def test_training_mode_that_flax_refuses():
    model = nn.Sequential([nn.BatchNorm(use_running_average=False), nn.Dense(3)])
    variables = model.init(KEY, X)
    assert "in training mode, in which BatchNorm and dropout act" in refused(model.apply, variables)


def test_an_exported_object_in_place_of_its_function(types_unchecked):
    whole = export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((2,), jnp.float32))
    assert refused(whole).endswith(": give its method call")


def test_several_outputs():
    line = refused(lambda params, x: (x @ params, x))
    assert "got tuple: return the logits alone" in line
    assert "apply_fn(params, x)[0]" in line
    assert "apply_fn(params, x)['logits']" in refused(lambda params, x: {"logits": x @ params})


def test_a_mask_drawn_while_it_is_traced():
    generator = np.random.default_rng(0)

    def dropout(params, x):  # the same for all examples, and another in every trace
        kept = jnp.asarray(generator.random((1, 8)) < 0.5, x.dtype)
        return (x * jnp.broadcast_to(kept, x.shape)) @ params

    assert "depends on chance" in refused(dropout)


def test_a_mask_drawn_while_it_runs():
    generator = np.random.default_rng(0)

    def draw(x):
        return x * (generator.random((1, 8)) < 0.5).astype(np.float32)

    def dropout(params, x):
        return jax.pure_callback(draw, jax.typeof(x), x, vmap_method="expand_dims") @ params

    assert "depends on" in refused(dropout, incremental=False)


def test_arrays_that_a_model_holds_are_not_chance():
    held = np.linspace(0, 1, 24, dtype=np.float32).reshape(8, 3)
    est = sensitivity(lambda params, x: x @ (params + held), W, X, NOISE, key=KEY)
    assert est.num_examples == 50


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of NumPy, when penzai is imported
def test_parameters_of_penzai():
    pz = pytest.importorskip("penzai.pz")
    layer = pz.nn.Linear.from_config("layer", KEY, {"in": 8}, {"out": 3})
    assert "pz.unbind_params(model, freeze=True)" in refused(lambda params, x: x, layer)
    unbound, params = pz.unbind_params(layer, freeze=True)

    def model(params, x):
        named = pz.nx.wrap(x).tag("n", "in")
        return pz.bind_variables(unbound, params)(named).unwrap("n", "out")

    assert sensitivity(model, params, X, NOISE, key=KEY).num_examples == 50


def test_tensors_of_torch_as_parameters():
    torch = pytest.importorskip("torch")
    state = torch.nn.Linear(8, 3).state_dict()
    assert "see jaxsens.adapters.torch" in refused(lambda params, x: x, dict(state))
