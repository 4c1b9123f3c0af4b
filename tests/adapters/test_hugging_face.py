"""Hugging Face's PyTorch models: images, and texts by their embeddings with a mask."""

import warnings

import numpy as np
import pytest

import jaxsens
from jaxsens import Gaussian, Patches, Perturbation, Tokens, adapters
from tests.adapters.same import KEY, check_same

torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
}  # fmt: skip
TEXT = {"vocab_size": 50, "max_position_embeddings": 16, "pad_token_id": 0}
VISION = {
    "ViT": {"image_size": 16, "patch_size": 4, **SIZES},
    "DeiT": {"image_size": 16, "patch_size": 4, **SIZES},
    "ResNet": {
        "embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1], "layer_type": "basic",
    },
    "ConvNext": {"hidden_sizes": [4, 8], "depths": [1, 1], "num_stages": 2, "patch_size": 2},
}  # fmt: skip
TEXTS = {
    "Bert": {**SIZES, **TEXT},
    "Roberta": {**SIZES, **TEXT},
    "DistilBert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, **TEXT},
    "GPT2": {
        "n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 50, "n_positions": 16,
        "pad_token_id": 0,
    },
}  # fmt: skip
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]], np.int32)


def made(kind, name, settings):
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(num_labels=3, **settings)
    return getattr(transformers, f"{kind}{name}")(config).eval()


@pytest.mark.parametrize("kind", VISION)
def test_an_image_model_is_the_same(kind):
    model, x = made(kind, "ForImageClassification", VISION[kind]), torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        expected = model(x).logits.numpy()
    noise = Perturbation(Patches(8, channels="first"), Gaussian(sigma=3.0))
    check_same(adapters.torch(model), x, noise, expected)


@pytest.mark.parametrize("kind", TEXTS)
def test_a_text_model_is_the_same_as_a_function_of_its_embeddings(kind):
    model, ids = made(kind, "ForSequenceClassification", TEXTS[kind]), torch.randint(1, 50, (3, 5))
    x = model.get_input_embeddings()(ids).detach()
    with torch.no_grad():
        expected = model(inputs_embeds=x, attention_mask=torch.tensor(MASK)).logits.numpy()
    noise = Perturbation(Tokens(), Gaussian(sigma=1.0))
    adapted = adapters.embeddings(model)
    est = check_same(adapted, x, noise, expected, context=MASK, mask=MASK)
    assert est.num_draws == 2 * MASK.sum()


def test_ids_go_in_as_ids_and_the_mask_by_its_name():
    model, ids = (
        made("Bert", "ForSequenceClassification", TEXTS["Bert"]),
        torch.randint(1, 50, (3, 5)),
    )
    with torch.no_grad():
        expected = model(ids, attention_mask=torch.tensor(MASK)).logits.numpy()
    apply_fn, params = adapters.torch(model)
    found = apply_fn(params, ids.numpy().astype(np.int32), {"attention_mask": MASK})
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_language_model_has_a_label_at_each_token():
    model, ids = made("GPT2", "LMHeadModel", TEXTS["GPT2"]), torch.randint(1, 50, (3, 5))
    x = model.get_input_embeddings()(ids).detach()
    noise = Perturbation(Tokens(), Gaussian(sigma=1.0))
    adapted = adapters.embeddings(model)
    with pytest.raises(ValueError, match=r"metric=jaxsens.label_flip_any"):
        jaxsens.sensitivity(adapted, x, noise, key=KEY)
    last = jaxsens.sensitivity(adapted, x, noise, key=KEY, metric=jaxsens.label_flip_at(0))
    # A causal model: what comes later does not reach the first token.
    assert last.per_position[0] > 0
    np.testing.assert_array_equal(last.per_position[1:], 0)


def test_a_model_without_a_head_is_a_question():
    model = made("Bert", "Model", TEXTS["Bert"])
    noise = Perturbation(Tokens(), Gaussian(sigma=1.0))
    x = torch.randn(3, 5, 16)
    with pytest.raises(ValueError, match=r"'pooler_output': .*: say which is the logits"):
        jaxsens.sensitivity(adapters.embeddings(model), x, noise, key=KEY)
    est = jaxsens.sensitivity(
        adapters.embeddings(model, output="pooler_output"), x, noise, key=KEY,
        metric=jaxsens.relative_l2,
    )  # fmt: skip
    assert est.mean > 0
