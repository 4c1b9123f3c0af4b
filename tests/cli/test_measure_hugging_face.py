"""`python -m jaxsens.measure --hf`: folders with random weights, as transformers saves them."""

import json
from pathlib import Path

import numpy as np
import pytest

from jaxsens.measure import main
from jaxsens.reporting.results import Results

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
IMAGE_MODELS = {
    "vit": ("ViT", {**SMALL, "intermediate_size": 32, "image_size": 16, "patch_size": 4}),
    "deit": ("DeiT", {**SMALL, "intermediate_size": 32, "image_size": 16, "patch_size": 4}),
    "convnext": ("ConvNext", {"hidden_sizes": [8, 8], "depths": [1, 1], "num_stages": 2}),
    "resnet": ("ResNet", {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1]}),
}
TEXT_MODELS = {
    "bert": ("Bert", {**SMALL, "intermediate_size": 32, "max_position_embeddings": 32}),
    "roberta": ("Roberta", {**SMALL, "intermediate_size": 32, "max_position_embeddings": 34}),
    "distilbert": ("DistilBert", {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}),
    "gpt2": ("GPT2", {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}),
}
WORDS = ["[PAD]", "[UNK]", "the", "film", "was", "good", "bad", "not", "at", "all"]
TEXTS = ["the film was good", "not bad at all", "the film was not good at all", "bad"]


def made(kind, task, sizes, folder, seed=0):
    """A model with random weights, larger than usual so that predictions change, in a folder."""
    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(**sizes, num_labels=3)
    model = getattr(transformers, f"{kind}For{task}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3)
    model.save_pretrained(folder)
    assert (Path(folder) / "model.safetensors").is_file()
    return model


def results_of(words):
    assert main(words.split()) == 0
    (file,) = Path("runs").rglob("results.json")
    return Results.from_json(file.read_text()), file.parent


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_image_models_are_measured(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = made(*IMAGE_MODELS[name][:1], "ImageClassification", IMAGE_MODELS[name][1], "model")
    side = 16 if name in ("vit", "deit") else 32
    x = np.random.default_rng(0).normal(size=(6, 3, side, side)).astype(np.float32)
    np.save("x.npy", x)
    results, folder = results_of("--hf model --data x.npy --edit gaussian:sigma=2 --samples 2")
    (estimate,) = results.values["estimates"].values()
    assert estimate["num_positions"] == (16 if name in ("vit", "deit") else 4)
    with torch.no_grad():
        predicted = model(torch.tensor(x)).logits.argmax(dim=1).tolist()
    for example, prediction, *_ in results.tables[1].rows:
        assert prediction == f"class {predicted[int(example)]}"
    assert (folder / "report.html").read_text().count("<img") == 2


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_text_models_are_measured_in_their_embeddings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind, sizes = TEXT_MODELS[name]
    model = made(kind, "SequenceClassification", {**sizes, "vocab_size": 10}, "model")
    Path("texts.txt").write_text("\n".join(TEXTS) + "\n")
    _write_tokenizer(Path("model/tokenizer.json"))
    results, folder = results_of("--hf model --data texts.txt --edit gaussian:sigma=2 --samples 3")
    (estimate,) = results.values["estimates"].values()
    assert (estimate["num_examples"], estimate["num_positions"]) == (4, 7)
    assert estimate["num_draws"] == 3 * sum(len(text.split()) for text in TEXTS)
    for example, prediction, *_, at, _ in results.tables[1].rows:
        ids = [WORDS.index(word) for word in TEXTS[int(example)].split()]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits
        assert prediction == f"class {int(logits.argmax())}"
        position, word = at.split(": ")
        assert word == TEXTS[int(example)].split()[int(position)]
    assert (folder / "report.html").read_text().count("<img") == 2


def test_two_folders_are_compared_and_a_language_model_is_read_at_its_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = {**TEXT_MODELS["gpt2"][1], "vocab_size": 10}
    for seed, folder in enumerate(("one", "two")):
        torch.manual_seed(seed)
        config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
        transformers.GPT2LMHeadModel(config).eval().save_pretrained(folder)
    np.savez(
        "ids.npz",
        input_ids=np.array([[2, 3, 4, 0], [5, 6, 7, 8]]),
        attention_mask=np.array([[1, 1, 1, 0], [1, 1, 1, 1]]),
    )
    results, _ = results_of("--hf one --compare two --data ids.npz --edit gaussian:sigma=1")
    assert results.tables[1].rows[0][0] == "one - two"
    assert {each["num_draws"] for each in results.values["estimates"].values()} == {35}


def test_a_module_of_pytorch_may_be_the_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(
        "import torch\n"
        "net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3)).eval()\n"
        "training = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5))\n"
    )
    np.save("x.npy", np.random.default_rng(0).normal(size=(5, 1, 8, 8)).astype(np.float32))
    words = "--data x.npy --grid patches:4,channels=first --samples 2 --model net.py:"
    results, _ = results_of(f"{words}net")
    assert results.values["estimates"]["net.py:net"]["num_draws"] == 5 * 4 * 2
    assert main(f"{words}training".split()) == 2
    assert "is in training mode" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors"),
        (lambda f: (f / "config.json").unlink(), "config.json is not there"),
        (lambda f: (f / "config.json").write_text("{"), "config.json cannot be read"),
        (lambda f: _edit(f, model_type="llama"), "a model of type 'llama'; --hf knows"),
        (lambda f: _edit(f, architectures=["ViTModel"]), "names ViTModel, which has no logits"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x" * 99), "cannot be loaded"),
    ],
)
def test_folders_that_cannot_be_measured_are_one_line(change, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made("ViT", "ImageClassification", IMAGE_MODELS["vit"][1], "model")
    np.save("x.npy", np.zeros((2, 3, 16, 16), np.float32))
    change(Path("model"))
    capsys.readouterr()
    assert main(["--hf", "model", "--data", "x.npy"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert said in lines[-1], lines
    assert not Path("runs").exists()


def test_images_with_the_channels_last_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made("ViT", "ImageClassification", IMAGE_MODELS["vit"][1], "model")
    np.save("x.npy", np.zeros((2, 16, 16, 3), np.float32))
    assert main(["--hf", "model", "--data", "x.npy"]) == 2
    assert capsys.readouterr().err.strip().count("\n") == 0


def test_pictures_of_a_folder_go_through_the_processor(tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    made("ViT", "ImageClassification", IMAGE_MODELS["vit"][1], "model")
    processor = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.5, 0.25]}
    Path("model/preprocessor_config.json").write_text(json.dumps(processor))
    Path("images").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    for name in ("a", "b"):
        Image.fromarray(pixels).save(f"images/{name}.png")
    from jaxsens.measuring.config import Config
    from jaxsens.measuring.hugging_face import load_folder

    examples = load_folder(Path("model")).examples(Config(hf="model", data="images"), None)
    expected = (pixels / 255 - processor["image_mean"]) / processor["image_std"]
    np.testing.assert_allclose(examples.x[1], expected.transpose(2, 0, 1), atol=1e-5)


def _edit(folder, **fields):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def _write_tokenizer(file):
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(file))
