"""Models that cannot be measured as they are: one line each, and nothing is measured."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from jaxsens import Bits, Gaussian, Perturbation, sensitivity

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
W = jnp.asarray(np.random.default_rng(1).normal(size=(8, 3)), jnp.float32)
NOISE = Perturbation(Bits(), Gaussian(sigma=1.0))


def refused(apply_fn, params=W, **options):
    with pytest.raises(ValueError) as error:  # noqa: PT011  the caller looks at the line
        sensitivity(apply_fn, params, X, NOISE, key=KEY, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_batch_written_into_a_reshape():
    def model(params, x):
        return x.reshape(32, 8) @ params

    assert "apply_fn takes batches of 32 alone, and must take any number" in refused(model)

    def halved(params, x):  # two examples become 16 rows, and fail nowhere
        return x.reshape(16, -1) @ params[: x.size // 16]

    assert "apply_fn takes batches of 16 alone" in refused(halved)


def exported(batch):
    shape = export.symbolic_shape(batch) if isinstance(batch, str) else batch
    inputs = jax.ShapeDtypeStruct((*shape, 8), jnp.float32)
    weights = jax.ShapeDtypeStruct(W.shape, W.dtype)
    return export.export(jax.jit(lambda params, x: x @ params))(weights, inputs).call


def test_an_exported_function_of_one_batch():
    assert "export the model with jax.export.symbolic_shape" in refused(exported((64,)))
    symbolic = exported("b")
    est = sensitivity(symbolic, W, X, NOISE, key=KEY, incremental=False)
    assert est.num_examples == 50


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
