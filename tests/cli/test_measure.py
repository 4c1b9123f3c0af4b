"""`python -m jaxsens.measure`: a user's model and files in, a run folder and its report out."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens.measure import command, main
from jaxsens.measuring.config import Config
from jaxsens.measuring.data import stored_arrays
from jaxsens.measuring.pictures import PictureFolder, picture_files
from jaxsens.measuring.weights import read_weights
from jaxsens.measuring.words import EDITS, GRIDS, made_of
from jaxsens.reporting.results import Results

NET = """
import flax.linen as nn
import jax
import jax.numpy as jnp

def apply_fn(params, x):
    return jnp.tanh(x.reshape(len(x), -1) @ params["first"]["w"]) @ params["second"]

class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.BatchNorm(use_running_average=not train)(x)
        return nn.Dense(3)(x.reshape(len(x), -1))

net = Net()
variables = net.init(jax.random.key(0), jnp.zeros((1, 8, 8, 1)))

def pair():
    return net.apply, variables

def training(params, x):
    return net.apply(variables, x, train=True, mutable=["batch_stats"])[0]

def two(params, x):
    return apply_fn(params, x), x

def branch(params, x):
    return x[:, 0, 0] if x.sum() > 0 else -x[:, 0, 0]

nothing = None
"""
GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, (12, 8, 8, 1)).astype(np.float32)
PARAMS = {
    "first/w": GENERATOR.normal(size=(64, 16)).astype(np.float32),
    "second": GENERATOR.normal(size=(16, 3)).astype(np.float32),
}
USUAL = (
    "--params w.npz --data x.npy --grid patches:4 --edit gaussian:variance=5 --samples 2 --shown 1"
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a model, its weights and data, in which the command is run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    np.savez(tmp_path / "w.npz", **PARAMS)
    np.savez(tmp_path / "other.npz", **{name: value[::-1] for name, value in PARAMS.items()})
    np.save(tmp_path / "x.npy", X)
    return tmp_path


def measured(words):
    """Exit status 0, and the results."""
    assert main(words.split()) == 0
    (file,) = (
        Path("runs").rglob("results.json")
        if "--workdir" not in words
        else [Path(words.split("--workdir ")[1].split()[0]) / "results.json"]
    )
    return Results.from_json(file.read_text()), file.parent


def expected(**options):
    def apply_fn(params, x):
        return jnp.tanh(x.reshape(len(x), -1) @ params["first/w"]) @ params["second"]

    noise = jaxsens.Perturbation(jaxsens.Patches(4), jaxsens.Gaussian(variance=5.0))
    return jaxsens.sensitivity(apply_fn, PARAMS, X, noise, 2, key=jax.random.key(0), **options)


def test_a_model_is_measured_and_reported(place, capsys):
    results, folder = measured(f"--model net.py:apply_fn {USUAL}")
    estimate = expected()
    ours = results.values["estimates"]["w.npz"]
    assert ours["mean"] == estimate.mean
    assert (ours["low"], ours["high"]) == pytest.approx(estimate.ci())
    page = (folder / "report.html").read_text()
    assert page.count("<img") == 2  # the mean of each patch, and the most sensitive images
    assert "The most sensitive examples: w.npz" in page
    most = int(np.argmax(estimate.per_example))
    assert results.tables[1].rows[0][0] == str(most)
    assert results.command.startswith("python -m jaxsens.measure --model net.py:apply_fn --params")
    assert "report.html" in capsys.readouterr().out
    assert main(f"--model net.py:apply_fn {USUAL}".split()) == 0
    assert "finished before, nothing to do" in capsys.readouterr().out


def test_other_weights_under_the_same_name_are_another_run(place):
    words = f"--model net.py:apply_fn {USUAL}"
    measured(words)
    np.savez("w.npz", **{name: 2 * value for name, value in PARAMS.items()})
    assert main(words.split()) == 0
    assert len([*Path("runs").rglob("results.json")]) == 2
    kept = [*Path("runs/measure").iterdir()]
    assert {main([*words.split(), "--workdir", str(each)]) for each in kept} == {0, 2}


def test_two_models_are_compared_in_pairs(place):
    results, _ = measured(f"--model net.py:apply_fn {USUAL} --compare other.npz")
    differences = results.tables[1]
    assert differences.title == "Paired differences"
    (row,) = differences.rows
    assert row[0] == "w.npz - other.npz"
    means = {name: each["mean"] for name, each in results.values["estimates"].items()}
    assert row[1] == pytest.approx(means["w.npz"] - means["other.npz"])
    assert results.values["differences"]["other.npz"]["mean"] == row[1]


def test_occlusion_from_the_command_line(place):
    words = "--model net.py:apply_fn --params w.npz --data x.npy --grid patches:4"
    results, _ = measured(f"{words} --edit replace:mean --samples all --metric probability_drop")

    def apply_fn(params, x):
        return jnp.tanh(x.reshape(len(x), -1) @ params["first/w"]) @ params["second"]

    found = jaxsens.occlusion(apply_fn, PARAMS, X, jaxsens.Patches(4), "mean")
    assert results.values["estimates"]["w.npz"]["mean"] == pytest.approx(found.mean, abs=1e-7)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--params w.npz", "give a model"),
        ("--model net.py:apply_fn --hf .", "give a model"),
        ("--model net.py:apply_fn --params w.npz --grid patches:4", "--data is missing"),
        ("--model net.py:apply_fn --params w.npz --data x.npy", "--grid is missing"),
        (f"--model net.py:aply_fn {USUAL}", "net.py has no 'aply_fn'"),
        (f"--model nowhere:f {USUAL}", "nowhere cannot be imported: ModuleNotFoundError"),
        (f"--model nowhere.py:f {USUAL}", "nowhere.py cannot be imported: FileNotFoundError"),
        (f"--model net.py:nothing {USUAL}", "must be apply_fn"),
        (f"--model net.py:Net {USUAL}", "is a class"),
        (f"--model net.py:pair {USUAL}", "leave the weights w.npz out"),
        (f"--model net.py:training {USUAL}", "depends on the others in its batch: switch dropout"),
        (f"--model net.py:two {USUAL}", "got tuple"),
        (f"--model net.py:branch {USUAL}", "it needs values where JAX traces it"),
        (f"--model net.py:apply_fn {USUAL} --compare nan.npz", "weights in first.w are nan"),
        (f"--model net.py:apply_fn {USUAL} --compare w.npz", "named twice"),
        (f"--model net.py:apply_fn {USUAL} --compare other.npz --tolerance 0.1", "leave --toler"),
        (f"--model net.py:apply_fn {USUAL} --compare m.pkl", "pickles, which run code"),
        (f"--model net.py:apply_fn {USUAL} --compare no.npz", "no.npz is not there"),
        (f"--model net.py:apply_fn {USUAL} --compare broken.npz", "is no npz file"),
        (f"--model net.py:apply_fn {USUAL} --exp vision", "leave it out here"),
        (f"--model net.py:apply_fn {USUAL} --smaples 3", "did you mean --samples?"),
        (USUAL.replace("patches:4", "patches:3") + " --model net.py:apply_fn", "does not divide"),
        (USUAL.replace("patches:4", "patch:4") + " --model net.py:apply_fn", "mean patches?"),
        (USUAL.replace("variance", "varience") + " --model net.py:apply_fn", "mean variance?"),
        (USUAL.replace("--samples 2", "--samples no") + " --model net.py:apply_fn", "or all"),
        (USUAL.replace("x.npy", "y.npy") + " --model net.py:apply_fn", "y.npy is not there"),
        (USUAL.replace("x.npy", "digit") + " --model net.py:apply_fn", "did you mean digits?"),
        (USUAL.replace("x.npy", "bad.npy") + " --model net.py:apply_fn", "non-finite values"),
    ],
)
def test_what_is_wrong_is_one_line_and_status_2(place, words, said, capsys):
    np.savez("nan.npz", **PARAMS | {"first/w": np.full((64, 16), np.nan, np.float32)})
    Path("broken.npz").write_bytes(b"PK not a zip")
    Path("m.pkl").write_bytes(b"")
    np.save("bad.npy", np.full_like(X, np.inf))
    assert main(words.split()) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert re.search(re.escape(said), line), line
    assert not Path("runs").exists()


def test_an_example_that_is_bad_beyond_the_first_is_status_2_too(place, capsys):
    x = X.copy()
    x[9] = np.nan
    np.save("x.npy", x)
    assert main(f"--model net.py:apply_fn {USUAL}".split()) == 2
    assert "first in example 9" in capsys.readouterr().err
    assert not [*Path("runs").rglob("results.json")]


def test_a_pair_a_mask_and_a_tolerance(place, capsys):
    x, mask = np.tile(X, (40, 1, 1, 1)), np.ones((480, 4), bool)
    mask[:, 0] = False
    np.savez("xm.npz", x=x, mask=mask)
    results, _ = measured(
        "--model net.py:pair --data xm.npz --grid patches:4 --samples 20 --tolerance 0.05"
    )
    (estimate,) = results.values["estimates"].values()
    assert (estimate["high"] - estimate["low"]) / 2 <= 0.05
    assert estimate["per_position"][0] is None
    assert len(results.figures) == 1


# What is read.


def test_images_of_a_folder_are_read_when_asked_for(tmp_path):
    from PIL import Image

    pixels = GENERATOR.integers(0, 256, (3, 6, 5, 3), dtype=np.uint8)
    (tmp_path / "cats").mkdir()
    for name, each in zip(("a.png", "cats/b.png", "cats/c.png"), pixels, strict=True):
        Image.fromarray(each).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    folder = PictureFolder(picture_files(tmp_path), None)
    assert folder.shape == (3, 6, 5, 3)
    np.testing.assert_allclose(folder[np.array([2, 0])], pixels[[2, 0]] / 127.5 - 1, atol=1e-6)
    assert PictureFolder(picture_files(tmp_path), 4)[0].shape == (4, 4, 3)
    Image.fromarray(pixels[0][:4]).save(tmp_path / "cats/c.png")
    with pytest.raises(ValueError, match=r"has 4×5 pixels, a\.png 6×5; --image-size"):
        folder[2]
    (tmp_path / "cats/c.png").write_bytes(b"PNG")
    with pytest.raises(ValueError, match="is no PNG or JPEG"):
        folder[2]


def test_a_folder_of_images_is_measured(place):
    from PIL import Image

    Path("images").mkdir()
    for i in range(3):
        Image.fromarray(GENERATOR.integers(0, 256, (8, 8), dtype=np.uint8)).save(f"images/{i}.png")
    results, _ = measured(f"--model net.py:apply_fn {USUAL.replace('x.npy', 'images')}")
    assert results.tables[1].rows[0][0] in {"0.png", "1.png", "2.png"}
    (estimate,) = results.values["estimates"].values()
    assert estimate["num_examples"] == 3


def test_arrays_of_npz_files_are_mapped_unless_compressed(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, mask=X[:, 0, :, 0] > 0)
    found = stored_arrays(tmp_path / "a.npz")
    assert isinstance(found["x"], np.memmap)
    np.testing.assert_array_equal(found["x"], X)
    np.testing.assert_array_equal(found["mask"], X[:, 0, :, 0] > 0)
    np.savez_compressed(tmp_path / "b.npz", x=X)
    np.testing.assert_array_equal(stored_arrays(tmp_path / "b.npz")["x"], X)
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ValueError, match="expected arrays alone"):
        stored_arrays(tmp_path / "c.npz")
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match="never unpickled"):
        stored_arrays(tmp_path / "objects.npy")


def test_weights_are_the_same_from_every_format(tmp_path):
    import orbax.checkpoint as ocp

    tree = {"first": {"w": PARAMS["first/w"]}, "second": PARAMS["second"]}
    np.savez(tmp_path / "w.npz", **PARAMS)
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        checkpointer.save(tmp_path / "orbax" / "default", args=ocp.args.StandardSave(tree))
    found = {name: read_weights(tmp_path / name) for name in ("w.npz", "orbax")}
    safetensors = pytest.importorskip("safetensors.numpy")
    dotted = {name.replace("/", "."): value for name, value in PARAMS.items()}
    safetensors.save_file(dotted, tmp_path / "w.safetensors")
    found["safetensors"] = read_weights(tmp_path / "w.safetensors")
    for each in found.values():
        assert jax.tree.structure(each) == jax.tree.structure(tree)
        jax.tree.map(np.testing.assert_array_equal, each, tree)
    flat = read_weights(tmp_path / "w.safetensors", nested=False)
    assert sorted(flat) == ["first.w", "second"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="is no folder of orbax"):
        read_weights(tmp_path / "empty")


def test_words_stand_for_grids_and_edits():
    assert made_of("overlapping:3", GRIDS) == jaxsens.OverlappingPatches(3)
    assert made_of("resample:vocabulary=9,first=2", EDITS) == jaxsens.Resample(9, 2)
    assert made_of("replace:blur,sigma=2", EDITS) == jaxsens.Replace("blur", sigma=2.0)
    assert made_of("flip:0,1", EDITS) == jaxsens.Flip(0, 1)
    for word in ("patches", "tokens:3", "patches:4,5,6"):
        with pytest.raises(ValueError, match="takes"):
            made_of(word, GRIDS)


def test_the_command_gives_the_config_back():
    config = Config(
        model="net.py:f", params="a b.npz", compare=("x.npz", "y.npz"), data="d.npy", samples="all"
    )
    again = command(config)
    assert "'a b.npz'" in again
    assert "--compare x.npz y.npz" in again
    json.dumps(again)


@pytest.mark.slow
def test_five_gigabytes_are_measured_from_the_command_line(place):
    """The peak of memory is that of a run on a fiftieth of the data, and some."""
    model = "def f(w, x): return x[:, ::8, ::8].reshape(len(x), -1) @ w['w']"
    Path("large.py").write_text(model)
    np.savez("large.npz", w=GENERATOR.normal(size=(28 * 28 * 3, 4)).astype(np.float32))
    x = np.lib.format.open_memmap("large.npy", "w+", np.float32, (9_000, 224, 224, 3))
    assert x.nbytes > 5 << 30  # all zeros, which a file system need not store
    words = "--model large.py:f --params large.npz --data large.npy --grid patches:112"
    words += " --edit replace:0.5 --samples all --shown 2"
    flags = os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=1")
    program = (
        "import resource, sys; from jaxsens.measure import main; "
        "assert main(sys.argv[1:]) == 0; "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    peaks = []
    for more in ("--num-examples 200", ""):
        done = subprocess.run(
            [sys.executable, "-c", program, *f"{words} {more}".split()],
            capture_output=True, text=True, check=True,
            env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        peaks.append(int(done.stdout.split()[-1]))
    print(peaks)
    assert peaks[1] < peaks[0] + 300, peaks
