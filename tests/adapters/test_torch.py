"""PyTorch modules: the same logits and flips, eval mode, and one line for what cannot be done."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens import Ball, Bits, Gaussian, Patches, Perturbation, Tokens, adapters
from tests.adapters.same import KEY, check_same

torch = pytest.importorskip("torch")
nn = torch.nn

PATCHES = Perturbation(Patches(4, channels="first"), Gaussian(sigma=3.0))
TOKENS = Perturbation(Tokens(), Gaussian(sigma=3.0))


def images(n=4, side=8):
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(1))


def outputs_of(module, *inputs):
    with torch.no_grad():
        return module(*inputs).numpy()


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


class Block(nn.Module):
    """A residual block, as torchvision's ResNets have them."""

    def __init__(self, old, new, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(old, new, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(new)
        self.conv2 = nn.Conv2d(new, new, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(new)
        self.short = nn.Sequential(nn.Conv2d(old, new, 1, stride, bias=False), nn.BatchNorm2d(new))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.norm1(self.conv1(x)))
        return self.relu(self.norm2(self.conv2(y)) + self.short(x))


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, 1, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
        Block(4, 8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 3),
    )  # fmt: skip


class ViT(nn.Module):
    """A vision transformer of PyTorch's own layers."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.place = nn.Parameter(torch.randn(1, 5, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.1, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.place
        return self.head(self.layers(x)[:, 0])


class Reader(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.recurrent = kind(4, 8, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.recurrent(x)[0][:, -1])


def test_a_convolutional_network_is_the_same():
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3)
    )
    module.eval()
    check_same(adapters.torch(module), images(), PATCHES, outputs_of(module, images()))


@pytest.mark.slow
def test_a_resnet_with_moved_statistics_is_the_same():
    module = resnet()
    module(images(8, 16))
    module.eval()
    x = images(4, 16)
    check_same(adapters.torch(module), x, PATCHES, outputs_of(module, x))


@pytest.mark.slow
def test_a_vision_transformer_is_the_same():
    module = ViT().eval()
    check_same(adapters.torch(module), images(), PATCHES, outputs_of(module, images()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_recurrent_network_is_the_same(kind):
    module, x = Reader(kind).eval(), torch.randn(4, 5, 4)
    check_same(adapters.torch(module), x, TOKENS, outputs_of(module, x))


class Scaled(nn.Module):
    """Holds a buffer, a tensor that is registered nowhere, and makes tensors as it runs."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("shift", torch.arange(4.0))
        self.scale = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, x):
        return self.linear((x + self.shift) * self.scale) + torch.arange(3, device=x.device)


def test_buffers_are_parameters_and_loose_tensors_are_kept():
    module, x = Scaled().eval(), torch.randn(5, 4)
    adapted = adapters.torch(module)
    assert set(adapted.params) == {"linear.weight", "linear.bias", "shift"}
    noise = Perturbation(Bits(), Gaussian(sigma=1.0))
    check_same(adapted, x, noise, outputs_of(module, x))


def test_params_are_copies_and_apply_fn_is_the_same_function():
    module, x = nn.Linear(4, 3).eval(), torch.ones(2, 4)
    first, before = adapters.torch(module), outputs_of(module, x)
    with torch.no_grad():
        module.weight += 1
    second = adapters.torch(module)
    assert first.apply_fn == second.apply_fn
    assert hash(first.apply_fn) == hash(second.apply_fn)
    np.testing.assert_allclose(first.apply_fn(first.params, jnp.ones((2, 4))), before, 1e-5)
    np.testing.assert_allclose(
        second.apply_fn(second.params, jnp.ones((2, 4))), outputs_of(module, x), 1e-5
    )


def test_a_module_is_taken_directly_by_every_measurement():
    module, x = nn.Linear(4, 3).eval(), torch.randn(5, 4)
    noise = Perturbation(Bits(), Gaussian(sigma=2.0))
    adapted = adapters.torch(module)
    direct = jaxsens.sensitivity(module, x, noise, 3, key=KEY)
    unpacked = jaxsens.sensitivity(*adapted, x, noise, 3, key=KEY)
    np.testing.assert_array_equal(direct.totals, unpacked.totals)
    assert jaxsens.explain(module, x.numpy(), noise).plain > 0
    assert jaxsens.sharpness(module, x, Gaussian(sigma=1.0), key=KEY).l1.mean > 0
    ball = Perturbation(Bits(), Ball(1.0))
    worst = jaxsens.worst_case(module, x, ball, key=KEY, num_starts=2, num_steps=2)
    assert worst.changes.shape == (5, 4)


def test_gradients_are_pytorchs():
    module, x = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1)).eval(), torch.randn(3, 4)
    x.requires_grad_(True)
    module(x).sum().backward()
    apply_fn, params = adapters.torch(module)
    found = jax.grad(lambda x: apply_fn(params, x).sum())(x.detach().numpy())
    np.testing.assert_allclose(found, x.grad.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    "module", [nn.Sequential(nn.BatchNorm1d(4)), nn.Dropout(), nn.Linear(4, 3)]
)
def test_training_mode_is_refused_and_says_what_to_call(module):
    noise = Perturbation(Bits(), Gaussian(sigma=1.0))
    with pytest.raises(ValueError, match=r"in training mode.*call module.eval\(\) first") as error:
        jaxsens.sensitivity(module.train(), torch.ones(3, 4), noise, key=KEY)
    assert "\n" not in str(error.value)


def test_a_module_that_goes_back_to_training_is_noticed():
    module = nn.Linear(4, 3).eval()
    adapted = adapters.torch(module)
    module.train()
    noise = Perturbation(Bits(), Gaussian(sigma=1.0))
    with pytest.raises(ValueError, match="in training mode"):
        jaxsens.sensitivity(adapted, torch.ones(3, 4), noise, key=KEY)


class Two(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.linear, self.outputs = nn.Linear(4, 3), outputs

    def forward(self, x):
        return self.outputs(self.linear(x))


def measure(module, x=None, **options):
    noise = Perturbation(Bits(), Gaussian(sigma=1.0))
    x = torch.ones(3, 4) if x is None else x
    return jaxsens.sensitivity(adapters.torch(module.eval(), **options), x, noise, key=KEY)


def test_two_outputs_are_a_question_and_an_answer():
    pair = Two(lambda y: (y, y.sum()))
    with pytest.raises(
        ValueError, match=r"tuple\(0: \(n, 3\), 1: \(\)\): say which is the"
    ) as error:
        measure(pair)
    assert "\n" not in str(error.value)
    assert measure(pair, output=0).num_examples == 3
    named = Two(lambda y: {"features": y, "logits": y + 1})
    assert measure(named).num_examples == 3
    assert measure(named, output="features").num_examples == 3


class Branch(nn.Linear):
    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x)


def test_a_branch_on_values_is_one_line(capfd):
    with pytest.raises(TypeError, match="Branch asks for the values of a tensor") as error:
        measure(Branch(4, 3))
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_an_operation_without_translation_is_named():
    class Strange(nn.Linear):
        def forward(self, x):
            return torch.special.modified_bessel_i1(super().forward(x))

    with pytest.raises(TypeError, match=r"Strange uses aten.special_modified_bessel_i1, ") as error:
        measure(Strange(4, 3))
    assert "\n" not in str(error.value)


class FixedAfter(nn.Linear):
    def forward(self, x):
        return super().forward(x).view(7, 3)


class FixedBefore(nn.Linear):
    def forward(self, x):
        return super().forward(x.view(2, -1))


class Length(nn.Linear):
    def forward(self, x):
        return super().forward(x) + torch.arange(3.0).expand(len(x), -1)


@pytest.mark.parametrize("kind", [FixedAfter, FixedBefore, Length])
def test_a_number_of_examples_written_into_a_view_is_one_line(kind, capfd):
    with pytest.raises(TypeError, match=r" has a number of examples written into it") as error:
        measure(kind(4, 3))
    assert "x.shape[0] for len(x)" in str(error.value)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_channels_in_the_wrong_place_are_one_line():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 3)).eval()
    last = images().numpy().transpose(0, 2, 3, 1)
    noise = Perturbation(Patches(4), Gaussian(sigma=1.0))
    with pytest.raises(TypeError, match=r"images are \(n, C, H, W\)") as error:
        jaxsens.sensitivity(module, last, noise, key=KEY)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"\(3, 8, 8\) is \(C, H, W\), give Patches channels="):
        jaxsens.sensitivity(module, images(), noise, key=KEY)


def test_nan_weights_are_named():
    module = nn.Linear(4, 3).eval()
    with torch.no_grad():
        module.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"adapters.torch: 1 of 12 weights in weight are nan"):
        adapters.torch(module)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_kept_and_its_near_ties_counted(dtype):
    module = nn.Linear(4, 3).to(dtype).eval()
    adapted = adapters.torch(module)
    x = torch.randn(5, 4)
    found = adapted.apply_fn(adapted.params, x.numpy())
    expected = outputs_of(module.float(), x)
    np.testing.assert_allclose(np.asarray(found, np.float32), expected, atol=0.05)
    assert found.dtype == {torch.bfloat16: jnp.bfloat16, torch.float16: jnp.float16}[dtype]
    noise = Perturbation(Bits(), Gaussian(sigma=1.0))
    est = jaxsens.sensitivity(adapted, x, noise, key=KEY)
    assert 0 <= est.provenance.near_ties <= 1
    assert "half precision: " in str(est)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.project(x).chunk(3, dim=-1)
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)[:, -1]


def test_attention_in_half_precision_is_that_of_pytorch_and_is_recognised():
    module, x = Attention().eval().to(torch.bfloat16), torch.randn(3, 6, 8, dtype=torch.bfloat16)
    adapted = adapters.torch(module)
    with torch.no_grad():
        expected = module(x).float().numpy()
    inputs = jnp.asarray(x.float().numpy(), jnp.bfloat16)
    found = adapted.apply_fn(adapted.params, inputs)
    np.testing.assert_allclose(found.astype(jnp.float32), expected, atol=0.02)
    steps = jaxsens.explain(adapted, inputs, TOKENS).steps
    assert "attention (recognised)" in [step.name for step in steps]


def test_what_is_no_module_is_refused(types_unchecked):
    with pytest.raises(ValueError, match=r"adapters.torch needs a torch.nn.Module; got 3"):
        adapters.torch(3)
    with pytest.raises(ValueError, match=r"output=\) must be the name of a field"):
        adapters.torch(nn.Linear(2, 2).eval(), output=1.5)
    with pytest.raises(ValueError, match="needs a model of transformers that takes inputs_embeds"):
        adapters.embeddings(nn.Linear(2, 2).eval())


def test_pytorchs_own_settings_stay():
    fast = torch.backends.mha.get_fastpath_enabled()
    measure(nn.Linear(4, 3))
    assert torch.backends.mha.get_fastpath_enabled() == fast
