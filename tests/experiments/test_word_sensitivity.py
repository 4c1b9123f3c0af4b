"""A tiny run of `word_sensitivity`, resumed, and with the models and embeddings of other files."""

import importlib
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens.figures
from jaxsens.run import load_experiment, main

EXPERIMENT = load_experiment("word_sensitivity")
TINY = (
    "--exp word-sensitivity --d 8 --n 4 8 --depths 1 2 --num-seeds 2 --num-starts 2 --num-steps 10 "
    "--num-random 4 --dense-limit 32 --all-words-n 4 --all-words-limit 32 --stuck-n 4 "
    "--stuck-seeds 2 --context-d 16 --context-n 4 --context-train 8 --context-seeds 2"
)


def part(name):
    return importlib.import_module(f"{EXPERIMENT.__name__}.{name}")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One tiny run: (results, folder)."""
    folder = tmp_path_factory.mktemp("words") / "run"
    assert main([*TINY.split(), "--workdir", str(folder)]) == 0
    return json.loads((folder / "results.json").read_text()), folder


def test_every_claim_of_the_spec_is_there_with_its_numbers(finished, check_claims):
    results, _ = finished
    check_claims(results["claims"])
    names = {claim["statement"].split(":")[0].split(",")[0] for claim in results["claims"]}
    assert names == {*(f"W{i}" for i in (1, 2, 4, 5, 6)), *(f"G{i}" for i in range(1, 6))}
    (exact,) = [c for c in results["claims"] if c["statement"].startswith("G1, exactly")]
    assert exact["holds"]


def test_all_maps_are_on_one_grid_with_random_moves_beside(finished):
    results, _ = finished
    cells = results["values"]["first_word"]
    own = [c for c in cells if c["texts"] == "independent rows"]
    assert {c["map"] for c in own if c["n"] == 4} == {"rf", "drf-1", "drf-2", "raf", "relu-raf"}
    assert {c["map"] for c in own if c["n"] == 8} == {"rf", "raf", "relu-raf"}
    for cell in cells:
        worst = np.array(cell["starts"]).max(axis=1)
        assert (worst >= np.array(cell["random_mean"])).all()
    assert {c["texts"] for c in cells} == {"independent rows", "common mean, α = 0.3"}


def test_random_moves_stand_beside_the_worst_in_every_table(finished):
    results, _ = finished
    for row in results["values"]["all_words"]:
        words, random = np.array(row["words"]), np.array(row["random_means"])
        assert words.shape == random.shape == (2, 4)
        assert (words >= random).all()
        assert (random > 0).all()
    grid, ends, words, stuck = results["tables"][:4]
    assert sum("random moves" in row[1] for row in grid["rows"]) == len(grid["rows"]) / 2
    for table in (ends, words, stuck):
        assert any("random" in column for column in table["columns"]), table["title"]


def test_contexts_have_both_trainings_and_three_objectives(finished):
    results, _ = finished
    points = results["values"]["contexts"]
    # Four maps (deep random features among them), two seeds, two trainings, three objectives.
    assert len(points) == 4 * 2 * 6
    for point in points:
        assert point["excess"] <= 1e-6
    by = {(p["map"], p["seed"], p["training"], p["objective"]): p for p in points}
    for (name, seed, training, objective), point in by.items():
        # Nothing has a smaller error than the move that was made for it.
        least = by[name, seed, training, "loss"]["err"]
        assert least <= point["err"] + 0.3, (name, seed, training, objective)


def test_figures_are_drawn(finished):
    results, folder = finished
    assert len(results["figures"]) == 4
    for figure in results["figures"]:
        assert (folder / figure["file"]).stat().st_size > 2_000


def test_a_killed_run_goes_on_to_the_same_bits(finished, tmp_path, monkeypatch):
    results, folder = finished
    (tmp_path / "run").mkdir()
    shutil.copy(folder / "config.json", tmp_path / "run")
    lines = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    # Killed in the middle of a line: two stages are left to do.
    torn = b"".join(lines[:-2]) + lines[-2][:20]
    (tmp_path / "run" / "metrics.jsonl").write_bytes(torn)
    measured = []
    points = part("context")._points
    monkeypatch.setattr(
        part("context"), "_points", lambda *given: measured.append(given) or points(*given)
    )
    monkeypatch.setattr(part("measuring"), "_first_words", lambda *_: pytest.fail("done before"))
    assert main([*TINY.split(), "--workdir", str(tmp_path / "run")]) == 0
    again = json.loads((tmp_path / "run" / "results.json").read_text())
    assert again["values"] == results["values"]
    assert len(measured) == 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--n 10", "n must have at least 2 of them"),
        ("--n 10 20 --all-words-n 30", "all_words_n=30 is not one of n=10, 20"),
        ("--n 2 10", "n must be at least 4 (ReLU attention to fewer is often 0); got 2"),
        ("--context-train 5000", "context_train=5000 texts cannot be interpolated with n·d"),
        ("--mean-share 1", "mean_share must be in (0, 1)"),
        ("--d 90000", "random features of d=90000 and n=160 needs"),
        (
            "--n 250 10 --d 768 --all-words-n 250 --all-words-limit 1000000",
            "192000 × 192000 weights of random features, for the worst of all words needs",
        ),
        ("--stuck-n 10000 --stuck-seeds 10000", "texts of 19200000000 numbers needs"),
        ("--preset paper", "8 layers of 61440 × 61440 weights needs"),
        ("--reuse nowhere", "nowhere is not the folder of a run"),
        ("--embeddings nowhere", "expected model.safetensors and vocab.txt"),
    ],
)
def test_bad_arguments_end_with_one_line(flags, message, capsys):
    assert main(["--exp", "word-sensitivity", *flags.split()]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err


def test_a_run_of_another_experiment_is_refused(finished, capsys):
    _, folder = finished
    assert main(["--exp", "word-sensitivity", "--reuse", str(folder)]) == 2
    assert "is a run of word_sensitivity; reuse takes runs of language" in capsys.readouterr().err


def test_fitted_features_are_those_of_the_whole_map(monkeypatch):
    maps, texts = part("maps"), part("texts")
    x = texts.Gaussian().texts(jax.random.key(0), 5, 4, 6)
    # Several blocks of units.
    monkeypatch.setattr(maps, "_WEIGHTS_AT_ONCE", 200)
    for each in (maps.RF, maps.deep(2), maps.RAF, maps.RELU):
        features, of_word = each.fitted(jax.random.key(1), x)
        assert features.shape == (5, 24)
        np.testing.assert_allclose(of_word(x[-1, 0]), features[-1], atol=1e-5)


def test_rows_have_the_norm_of_a_word_and_a_common_mean():
    texts = part("texts")
    for share in (0.0, 0.3):
        x = texts.Gaussian(share).texts(jax.random.key(0), 20, 30, 50)
        np.testing.assert_allclose(jnp.linalg.norm(x, axis=-1), 50**0.5, rtol=1e-5)
        products = jnp.einsum("snd,smd->nms", x, x).mean(axis=2) / 50
        off = float(products[~np.eye(30, dtype=bool)].mean())
        assert off == pytest.approx(share, abs=0.05)
    one, many = (texts.Gaussian().texts(jax.random.key(0), num, 3, 4) for num in (1, 5))
    np.testing.assert_array_equal(one[0], many[0])


def test_texts_of_a_pool_are_long_enough_and_different():
    table = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    tokens = [np.array(ids) for ids in ([1, 2, 3], [1, 2, 4, 5], [1, 2, 4, 6], [7], [8, 1, 2])]
    pool = part("texts").Pool("p", tokens, np.array([1, -1, 1, 1, -1]), 5, lambda ids: table[ids])
    # The second and third text begin alike.
    assert [pool.num_of(n) for n in (1, 3, 4, 5)] == [3, 3, 2, 0]
    x, labels = pool.labelled(jax.random.key(0), 3, 3, 4)
    assert x.shape == (3, 3, 4)
    assert sorted(labels.tolist()) == [-1.0, -1.0, 1.0]
    np.testing.assert_allclose(jnp.linalg.norm(x, axis=-1), 2.0, rtol=1e-5)


def test_single_starts_that_are_stuck_are_counted():
    row = {"starts": [[1.0, 0.4], [2.0, 1.9]], "released": [0.2, 4.2]}
    random, theirs = part("claims").stuck_shares(row)
    # The best of all is 1.0 and 4.2.
    assert (random, theirs) == (0.75, 0.5)


def test_texts_on_which_attention_is_zero_are_left_out():
    found = {"starts": jnp.array([[1.0, 2.0], [jnp.nan, 1.0]]), "random_mean": jnp.ones(2)}
    row = part("measuring")._plain(found)
    assert row == {"starts": [[1.0, 2.0]], "random_mean": [1.0], "num_vanishing": 1}
    assert part("measuring").with_seeds([row], "starts") == []


def test_a_claim_holds_only_if_its_whole_interval_is_inside():
    claims = part("claims")
    interval = jaxsens.core.intervals.Interval
    found = {"a": interval(1.0, 0.98, 1.02), "b": interval(1.0, 0.93, 1.07)}
    claim = claims.range_claim("s", "p", found, (0.95, 1.05), 5)
    assert not claim.holds
    assert claim.decided_by == "b"
    assert claims.range_claim("s", "p", {"a": found["a"]}, (0.95, 1.05), 5).holds


def context_rows(seeds, **errs):
    """Points of some seeds, with these errors for each map."""
    return [
        {"texts": "independent rows", "n": 16, "num_train": 100, "map": name, "seed": seed}
        | {"training": training, "objective": objective, "gamma": 0.5, "err": err + 0.01 * seed}
        | {"alignment": 0.95, "excess": 0.0}
        for name, err in errs.items()
        for seed in seeds
        for training in ("fine-tuned", "retrained")
        for objective in ("features", "feat_align", "loss")
    ]


def test_claims_about_contexts_are_never_empty():
    claims = part("context_claims")
    names = {"rf": 3.0, "relu-raf": 1.0, "raf": 0.1}
    rows = context_rows(range(4), **names)
    by_id = {claim.statement.split(":")[0]: claim for claim in claims.context_claims(rows)}
    assert by_id["G5"].holds
    assert by_id["G4"].holds
    # One seed has a text without features of ReLU attention.
    fewer = [row for row in rows if (row["map"], row["seed"]) != ("relu-raf", 2)]
    (order,) = [c for c in claims.context_claims(fewer) if c.statement.startswith("G5")]
    assert (order.holds, order.num_seeds) == (True, 3)
    # Half of the points are no majority.
    half = [row | {"err": 4.0} if row["seed"] < 2 else row for row in rows]
    (below,) = [c for c in claims.context_claims(half) if c.statement.startswith("G4")]
    assert not below.holds
    # On the axis there is nothing to compare with.
    axis = [row | {"gamma": 2.0} for row in rows]
    (bound, *_) = claims.context_claims(axis)
    assert (bound.holds, bound.values["points"]) == (False, 0)


def test_softmax_must_be_above_relu_at_every_n():
    seeds = np.arange(3)[:, None]

    def rows(middle):
        levels = {"rf": (0.3, 0.2, 0.1), "raf": (3.0, 3.0, 3.0), "relu-raf": (2.0, middle, 0.5)}
        return [
            {"texts": "independent rows", "map": name, "label": name, "d": 64, "n": n}
            | {"starts": (level * (1 + 0.01 * seeds)).tolist()}
            for name, of_n in levels.items()
            for n, level in zip((10, 20, 40), of_n, strict=True)
        ]

    for middle, holds in ((1.0, True), (3.5, False)):
        found = part("claims").sensitivity_claims(rows(middle))
        (claim,) = [
            c for c in found if "at every n (d = 64)" in c.statement and "W5" in c.statement
        ]
        assert claim.holds == holds
        assert "n = 20" in claim.decided_by or holds


LANGUAGE = (
    "--exp language --models roberta-softmax --epochs 1 --evaluate-every 1 --num-train 64 "
    "--num-measured 4 --num-along 4 --width 16 --hidden 16 --heads 2 --depth 1 --vocab-size 300 "
    "--no-authors --num-samples 1 --max-length 24"
)
VISION = (
    "--exp vision --dataset shapes --models mlp-leaky --epochs 1 --evaluate-every 1 "
    "--num-train 64 --num-measured 4 --tolerance 0.3"
)


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "model"), [(LANGUAGE, "roberta-softmax"), (VISION, "mlp-leaky")])
def test_models_of_other_runs_are_measured_untrained_and_trained(
    flags, model, capsys, check_claims
):
    assert main([*flags.split(), "--workdir", "other"]) == 0
    reused = "--num-measured 3 --num-places 2 --reuse other --workdir run"
    assert main([*TINY.split(), *reused.split()]) == 0
    with open("run/results.json") as file:
        results = json.load(file)
    check_claims(results["claims"])
    rows = results["values"]["models"]
    assert [(row["model"], row["state"]) for row in rows] == [
        (model, "untrained"),
        (model, "trained"),
    ]
    for row in rows:
        for metric in ("relative_l2", "label_flip"):
            worst = np.array(row[metric]["worst"])
            assert worst.shape == (3, 2)
            assert (worst.mean(axis=1) >= np.array(row[metric]["random"]) - 1e-4).all()
    # Training has moved the weights.
    assert rows[0]["relative_l2"]["worst"] != rows[1]["relative_l2"]["worst"]
    kinds = {cell["texts"] for cell in results["values"]["first_word"]}
    assert any("embeddings of RoBERTa" in kind for kind in kinds) == (model == "roberta-softmax")
    stuck = {row["texts"] for row in results["values"]["stuck"]}
    assert any("embeddings of RoBERTa" in kind for kind in stuck) == (model == "roberta-softmax")


@pytest.mark.slow
def test_reviews_in_the_embeddings_of_bert(tmp_path):
    numpy_files = pytest.importorskip("safetensors.numpy")
    rng = np.random.default_rng(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh"]
    shapes = {
        "word_embeddings.weight": (len(words), 8),
        "position_embeddings.weight": (20, 8),
        "token_type_embeddings.weight": (2, 8),
        "LayerNorm.gamma": (8,),
        "LayerNorm.beta": (8,),
    }
    tensors = {
        f"bert.embeddings.{name}": rng.normal(size=shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    (tmp_path / "bert").mkdir()
    numpy_files.save_file(tensors, tmp_path / "bert" / "model.safetensors")
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(words))
    (tmp_path / "imdb").mkdir()
    for split in ("train", "test"):
        rows = [f"{i}\t{i % 2}\t{' '.join(rng.choice(list('abcdefgh'), 9))}" for i in range(8)]
        text = "\n".join(["file\tlabel\ttext", *rows]) + "\n"
        (tmp_path / "imdb" / f"{split}.tsv").write_text(text)
    flags = "--embeddings bert --data-dir . --workdir run"
    assert main([*TINY.split(), *flags.split()]) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    cells = [c for c in results["values"]["first_word"] if c["texts"].startswith("IMDB")]
    assert {(c["d"], c["n"]) for c in cells} == {(8, 4), (8, 8)}
    assert any(p["texts"].startswith("IMDB") for p in results["values"]["contexts"])
