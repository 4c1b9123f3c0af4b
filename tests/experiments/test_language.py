"""The language experiment: what is compared, how embeddings are entered, a whole tiny run."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers.pre_tokenizers import ByteLevel

from jaxsens.incremental import costs
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.run import load_experiment, main
from tests.helpers.weights import weights_of

language = load_experiment("language")
loading, measuring, tables = language.loading, language.measuring, language.tables
model_specs = language.models.model_specs
TINY = (
    "--exp language --epochs 1 --evaluate-every 1 --num-train 64 --num-measured 4 --num-along 2 "
    "--depth 1 --width 8 --heads 2 --hidden 16 --max-length 16 --num-samples 2 --variances 15 4"
)


def config(**changes):
    return language.Config(**changes).resolved("quick")


def test_the_paper_s_models_at_the_paper_s_sizes():
    specs = model_specs(language.PRESETS["paper"].resolved("paper"), 50_265)
    counts = {each.name: tables.num_parameters(each) for each in specs}
    assert counts["roberta-softmax"] == counts["roberta-relu"] == 20_428_034
    assert counts["roberta-softmax-depth-8"] == 27_789_570
    assert counts["roberta-softmax-depth-12"] == 35_151_106
    assert counts["lstm"] == counts["lstm-frozen"] == 14_974_210
    assert {each.name: each.paper for each in specs}["lstm"] == 0.0912
    recipe = specs[0].recipe
    rate = recipe.rate(steps_per_epoch=10, epochs=20)
    expected = 1e-4 * np.array([1, 1, 0.9, 0.81])
    np.testing.assert_allclose([rate(0), rate(9), rate(10), rate(25)], expected, rtol=1e-5)


def test_the_authors_train_the_recurrent_weights_alone():
    frozen = {each.name: each for each in model_specs(config(), 300)}["lstm-frozen"].recipe
    assert frozen.frozen == ("words", "norm", "head")
    assert frozen.schedule == "constant"


def test_flags_reach_the_models_and_their_training():
    changed = config(dropout=0.3, prenorm=False, decay=0.5, learning_rate=0.01, hidden=40)
    specs = {each.name: each for each in model_specs(changed, 300)}
    assert {each.model.dropout for each in specs.values()} == {0.3}
    assert not specs["gpt2"].model.normalised
    assert specs["roberta-relu"].model.attention == "relu"
    assert specs["roberta-relu"].model.hidden == 40
    rate = specs["lstm"].recipe.rate(steps_per_epoch=10, epochs=3)
    np.testing.assert_allclose([rate(0), rate(10)], [0.01, 0.005], rtol=1e-6)


def test_the_other_depths_are_of_roberta_and_the_lstm():
    specs = model_specs(config(depths=(1, 4)), 300)
    other = {each.name: each.model.depth for each in specs if "-depth-" in each.name}
    assert other == {
        f"{name}-depth-{depth}": depth for depth in (1, 4) for name in ("roberta-softmax", "lstm")
    }
    assert {each.name for each in specs if each.in_full} == set(language.paper.LABELS)


@pytest.mark.parametrize(
    ("dataset", "expected"), [("qqp", (4, 1, 640, 128)), ("mrpc", (10, 2, 408, 128))]
)
def test_the_small_preset_has_other_depths_and_enough_texts(dataset, expected):
    changed = dataclasses.replace(language.PRESETS["small"], dataset=dataset).resolved("small")
    fields = ("epochs", "evaluate_every", "num_measured", "num_along")
    assert tuple(getattr(changed, name) for name in fields) == expected
    depths = {each.name: each.model.depth for each in model_specs(changed, 300)}
    for name in ("roberta-softmax", "lstm"):
        found = [depths[name], depths[f"{name}-depth-1"], depths[f"{name}-depth-4"]]
        assert found == [2, 1, 4]


def test_few_texts_take_more_epochs_whatever_the_dataset_s_name():
    epochs = {
        (preset, dataset): language.Config(dataset=dataset).resolved(preset).epochs
        for preset in ("small", "paper")
        for dataset in ("mrpc", "rte", "qqp", "boolq")
    }
    assert list(epochs.values()) == [10, 10, 4, 4, 41, 41, 20, 20]


def test_training_texts_are_drawn_whatever_the_order_of_the_files(tmp_path):
    rows = [f"{label}\ttext {i}\n" for label in (0, 1) for i in range(50)]
    (tmp_path / "imdb").mkdir()
    for split in ("train", "test"):
        (tmp_path / "imdb" / f"{split}.tsv").write_text("label\ttext\n" + "".join(rows))
    some, same, other, all_ = (
        loading.load(config(dataset="imdb", **flags), tmp_path)
        for flags in ({"num_train": 40}, {"num_train": 40}, {"num_train": 40, "seed": 2}, {})
    )
    assert 0.25 < some.train.labels.mean() < 0.75
    assert some.train.first == same.train.first == all_.train.first[:40]
    assert some.train.first != other.train.first
    assert sorted(zip(all_.train.labels.tolist(), all_.train.first, strict=True)) == sorted(
        zip(all_.validation.labels.tolist(), all_.validation.first, strict=True)
    )


def test_without_the_authors_nothing_is_measured_their_way():
    for authors in (True, False):
        changed = config(authors=authors)
        specs = model_specs(changed, 300)
        assert ("lstm-frozen" in [each.name for each in specs]) == authors
        assert ("authors" in measuring.ways(changed, specs[0])) == authors


def test_given_vocabulary_files_take_the_place_of_training_a_bpe(tmp_path):
    tokens = [*sorted(ByteLevel.alphabet()), "th", "<|endoftext|>"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    (tmp_path / "encoder.json").write_text(json.dumps(vocabulary))
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\nt h\n")
    given = config(tokenizer=str(tmp_path), num_train=4, batch_size=4, num_along=2, num_measured=3)
    corpus = loading.load(given, None)
    with RunFolder.open(tmp_path / "run", "language", {}) as folder:
        data = loading.encode(given, corpus, folder)
        again = loading.encode(given, corpus, folder)
    assert data.vocab_size == 256 + 1 + 5
    assert [len(data.along[split].labels) for split in ("train", "validation")] == [2, 2]
    assert len(data.measured["validation"].labels) == 3
    for a, b in zip(data.train.sequences, again.train.sequences, strict=True):
        np.testing.assert_array_equal(a, b)


def test_buckets_of_an_eighth_of_the_texts_are_not_given_up():
    sizes = [20] * 7 + [40] * 2 + [60] * 6 + [100]
    texts = loading.Encoded([np.full(n, 5, np.int32) for n in sizes], np.zeros(16, np.int32))
    assert texts.training_lengths == (32, 48, 64, 128)
    assert [b.tokens.shape for b in texts.buckets] == [(7, 32), (8, 64), (1, 128)]


@pytest.fixture(scope="module")
def spec():
    small = config(depth=1, width=8, heads=2, hidden=16)
    return model_specs(small, 300)[0]


@pytest.mark.parametrize("variance", [4.0, 15.0])
def test_without_noise_the_direct_route_is_the_model_itself(spec, variance):
    tokens = jnp.array([[0, 7, 8, 2], [0, 9, 2, 1]])
    variables = weights_of(spec.model, tokens)
    found = {}
    for route in ("direct", "renormalised", "authors"):
        entrance = measuring.Entrance.make(variables, variance)
        x = jax.jit(measuring.embedding(spec.model))(entrance, tokens)
        found[route] = jax.jit(measuring.entry(spec.model, route))(entrance, x, tokens != 1)
    expected = jax.jit(spec.model.apply)(variables, tokens)
    np.testing.assert_allclose(found["direct"], expected, rtol=1e-5, atol=1e-6)
    assert np.abs(found["authors"] - expected).max() > 1e-6


def test_unit_noise_on_scaled_embeddings_has_the_variance_asked_for(spec):
    tokens = jnp.array([[0, 7, 8, 2]])
    variables = weights_of(spec.model, tokens)
    e = spec.model.apply(variables, tokens, method="embed")
    noise = jax.random.normal(jax.random.key(1), e.shape)
    entrance = measuring.Entrance.make(variables, 4.0)
    x = measuring.embedding(spec.model)(entrance, tokens) + noise
    expected = spec.model.apply(variables, e + 2 * noise, tokens != 1, method="from_embeddings")
    found = measuring.entry(spec.model)(entrance, x, tokens != 1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def measure(spec, lengths=(4, 4), **options):
    tokens = [np.full(length, 7, np.int32) for length in lengths]
    texts = loading.Encoded(tokens, np.zeros(len(tokens), np.int32))
    variables = weights_of(spec.model, jnp.ones((1, 4), jnp.int32))
    options = {"key": jax.random.key(1)} | options
    return measuring.measure(config(num_samples=2), spec, variables, texts, **options)


def test_every_variance_is_the_same_program(spec):
    from jaxsens.measurement import exhaustive

    def num_programs(**options):
        measure(spec, **options)
        return exhaustive.chunk_totals._cache_size()

    once = num_programs()
    assert num_programs(variance=4.0) == once
    assert num_programs(edit="sentence") == once + 1
    assert num_programs(route="renormalised") == once + 2


@pytest.mark.parametrize("name", [pytest.param("gpt2", marks=pytest.mark.slow), "lstm"])
def test_what_noise_cannot_reach_is_reused(name, monkeypatch):
    # For two texts compiling position by position would never pay.
    monkeypatch.setattr(costs, "_SECONDS_PER_EQUATION", 0.0)
    specs = {each.name: each for each in model_specs(config(), 300)}
    assert measure(specs[name], lengths=(20, 30)).provenance.incremental


def test_other_words_are_never_special_nor_are_their_places(spec):
    vocab_size = spec.model.vocab_size
    tokens = np.array([0, 7, 2, 2, vocab_size - 1, 9, 2], np.int32)
    texts = loading.Encoded([tokens], np.zeros(1, np.int32))
    variables = weights_of(spec.model, jnp.ones((1, 4), jnp.int32))
    found = measuring.measure(
        config(num_samples=2), spec, variables, texts, key=jax.random.key(1), edit="word"
    )
    np.testing.assert_array_equal(found.counts[0, :7], [0, 2, 0, 0, 0, 2, 0])
    drawn = f"Resample(vocabulary={vocab_size - 1}, first=4)"
    assert drawn in found.provenance.perturbation


@pytest.mark.parametrize(("edit", "grid"), [("token", "Tokens()"), ("sentence", "Whole()")])
def test_an_estimate_says_which_noise_it_was(spec, edit, grid):
    measured = {variance: measure(spec, edit=edit, variance=variance) for variance in (4.0, 15.0)}
    described = [measured[variance].provenance.perturbation for variance in (4.0, 15.0)]
    assert described == [
        f"Perturbation(grid={grid}, edit=Gaussian(sigma={sigma}, variance={variance}))"
        for sigma, variance in (("2", "4"), ("3.87298", "15"))
    ]


def test_the_same_noise_moves_less_where_it_is_layer_normed_again(spec):
    tokens = jnp.array([[0, 7, 8, 2]])
    variables = weights_of(spec.model, tokens)
    e = spec.model.apply(variables, tokens, method="embed")
    noisy = e.at[0, 1].add(1000.0 * jnp.linspace(-1, 1, 8))
    embedded = {
        method: spec.model.apply(variables, noisy, *mask, method=method)
        for method, mask in (("embed_again", (tokens != 1,)), ("normalise", ()))
    }
    assert all(np.abs(values).max() < 10 for values in embedded.values())


def test_functions_are_made_once(spec):
    for route in ("direct", "renormalised", "authors"):
        assert measuring.entry(spec.model, route) is measuring.entry(spec.model, route)
    lstm = {each.name: each for each in model_specs(config(), 300)}["lstm"].model
    assert measuring.entry(lstm, "authors") is measuring.entry(lstm, "direct")
    assert measuring.embedding(spec.model) is measuring.embedding(spec.model)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--heads 3", "heads=3 do not divide width=64"),
        ("--variances 0", "variances must be positive"),
        ("--models lstm lstm", "each once"),
        ("--depths 0", "depths must be positive"),
        ("--depths 8 8", "depths: 8 is named twice: 8, 8; name each once"),
        ("--dropout 1", "dropout must be in [0, 1)"),
        ("--dataset mrpc", "was not found"),
        ("--tokenizer nowhere", "nowhere"),
    ],
)
def test_bad_flags_are_one_line(flags, message, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert main(["--exp", "language", *flags.split(), "--data-dir", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.fixture
def run_tiny(tmp_path, check_claims):
    """`run_tiny(flags) -> results`."""

    def run(flags):
        assert main(f"{TINY} {flags} --workdir run".split()) == 0
        results = json.loads((tmp_path / "run" / "results.json").read_text())
        check_claims(results["claims"])
        return results

    return run


@pytest.mark.slow
def test_other_depths_have_rows_a_figure_and_a_claim(run_tiny):
    results = run_tiny("--models roberta-softmax lstm --depths 2")
    assert [row[0] for row in results["tables"][0]["rows"]] == [
        *("RoBERTa", "LSTM", "RoBERTa, 2 layers", "LSTM, 2 layers", "LSTM, frozen")
    ]
    assert "figures/training_depths.png" in [figure["file"] for figure in results["figures"]]
    statements = [claim["statement"] for claim in results["claims"]]
    assert "Every RoBERTa is less sensitive than every LSTM, whatever their depths" in statements


def test_a_tiny_run(run_tiny, tmp_path, capsys):
    results = run_tiny("--models roberta-softmax lstm")
    sensitivity, ways, authors = results["tables"]
    assert [row[0] for row in sensitivity["rows"]] == ["RoBERTa", "LSTM", "LSTM, frozen"]
    assert [row[0] for row in ways["rows"]] == ["RoBERTa", "LSTM"]
    assert len(authors["rows"]) == 5
    assert (tmp_path / "run" / "tokenizer.json").exists()
    main_ = results["values"]["main"]
    weighted = main_["lstm"]["token_weighted"]
    assert weighted["low"] <= weighted["mean"] <= weighted["high"]
    gap = main_["lstm"]["mean"] - main_["roberta-softmax"]["mean"]
    assert float(authors["rows"][3][3]) == pytest.approx(gap, abs=1e-4)
    assert "is less sensitive than LSTM: validation" in capsys.readouterr().out
    names = [figure["file"] for figure in results["figures"]]
    assert names == [
        f"figures/{name}.png"
        for name in (
            *("training_curves", "training_variance_4", "training_validation"),
            *("equal_accuracy", "positions", "ways"),
        )
    ]
    # One epoch of so few texts teaches nothing, and the claims say so.
    assert "RoBERTa predicts no better than a constant" in results["claims"][0]["measured"]


def test_a_share_of_a_gap_has_an_interval_if_there_is_a_gap():
    whole = np.linspace(0.5, 1.5, 50)
    assert tables._share(whole / 2, whole) == "0.50 (0.50 – 0.50)"
    assert tables._share(whole / 2, whole - 1.0) == "–"
