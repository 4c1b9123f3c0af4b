"""Where a measurement runs changes no number: devices here, real processes below."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlib.xla_client
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from jaxsens import SharpnessEstimate, WorstCaseEstimate
from jaxsens.core import runtime

ROOT = Path(__file__).parents[2]


def test_a_mesh_is_all_devices_of_this_process_or_the_given_ones(all_devices):
    assert runtime.local_mesh().size == len(jax.local_devices()) == 8
    some = jax.devices()[2:5]
    mesh = runtime.local_mesh(some)
    assert list(mesh.devices) == some
    assert runtime.platform(mesh) == "cpu"
    assert runtime.device_kind(mesh) == some[0].device_kind


@pytest.mark.parametrize(
    ("cores", "devices", "streams"), [(6, 1, 6), (6, 2, 3), (2, 8, 1), (64, 1, 8)]
)
def test_a_cpu_has_a_stream_for_each_core_of_a_device(monkeypatch, cores, devices, streams):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert runtime.num_concurrent_calls(runtime.local_mesh(jax.devices()[:devices])) == streams


def test_jaxlib_can_be_told_the_stream():
    now = jaxlib.xla_client._xla.get_execution_stream_id
    before = now()
    with runtime.concurrent_call(7, 5):
        assert now() == 2
    assert now() == before
    with runtime.concurrent_call(7, 1):
        assert now() == before


def test_arrays_are_split_or_copied():
    mesh = runtime.local_mesh(jax.devices()[:4])
    split, copied = (
        runtime.place({"a": np.arange(8)}, mesh, spec)["a"]
        for spec in (runtime.SPLIT, runtime.REPLICATED)
    )
    assert [shard.data.tolist() for shard in split.addressable_shards] == [
        [0, 1], [2, 3], [4, 5], [6, 7],
    ]  # fmt: skip
    assert copied.is_fully_replicated
    assert len(copied.addressable_shards) == 4


def test_arrays_move_from_any_devices_to_the_mesh():
    elsewhere = jax.device_put(
        jnp.arange(8.0), NamedSharding(runtime.local_mesh(jax.devices()[4:]), PartitionSpec())
    )
    placed = runtime.place(elsewhere, runtime.local_mesh(jax.devices()[:2]), runtime.REPLICATED)
    assert placed.sharding.device_set == set(jax.devices()[:2])
    key = runtime.place(jax.random.key(3), runtime.local_mesh(), runtime.REPLICATED)
    assert np.array_equal(jax.random.key_data(key), jax.random.key_data(jax.random.key(3)))


@pytest.mark.parametrize("num_devices", [1, 4])
def test_a_function_runs_on_each_device_s_share(num_devices):
    mesh = runtime.local_mesh(jax.devices()[:num_devices])

    def shifted(offset, x):
        return x + offset

    run = runtime.over_devices(shifted, mesh, (runtime.REPLICATED, runtime.SPLIT))
    assert np.array_equal(run(jnp.float32(2), jnp.arange(8.0)), np.arange(8) + 2)


@pytest.mark.parametrize("num_processes", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [0, 1, 2, 6, 7, 8, 1001])
def test_hosts_share_every_example_once_and_evenly(monkeypatch, num_processes, n):
    monkeypatch.setattr(jax, "process_count", lambda: num_processes)
    shares = []
    for process in range(num_processes):
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        share = runtime.host_share(n)
        shares.append(list(range(n))[share])
    assert [example for share in shares for example in share] == list(range(n))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gathering_puts_the_shares_in_order_and_keeps_the_dtype(monkeypatch, dtype):
    n, num_processes = 7, 3
    whole = np.arange(2 * n, dtype=dtype).reshape(n, 2)
    monkeypatch.setattr(jax, "process_count", lambda: num_processes)

    def shares(padded):
        """What the hosts would send, each in an array of the same shape; JAX sends float32."""
        sent = []
        for process in range(num_processes):
            monkeypatch.setattr(jax, "process_index", lambda process=process: process)
            mine = whole[runtime.host_share(n)]
            sent.append(np.zeros_like(padded))
            sent[-1][: len(mine)] = mine
        return np.stack(sent).astype(np.float32)

    monkeypatch.setattr(runtime.multihost_utils, "process_allgather", shares)
    monkeypatch.setattr(jax, "process_index", lambda: 0)
    gathered = runtime.gather_hosts(whole[runtime.host_share(n)], n)
    assert gathered.dtype == dtype
    assert np.array_equal(gathered, whole)


def test_one_process_has_nothing_to_gather():
    local = np.arange(6.0)
    assert runtime.gather_hosts(local, 6) is local


# Real processes.

PROGRAM = """
import json
import sys

import jax

if __name__ == "__main__":
    index, port, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    jax.distributed.initialize(
        f"127.0.0.1:{port}", num_processes=2, process_id=index, initialization_timeout=60
    )

import jax.numpy as jnp
import numpy as np

import jaxsens


def apply_fn(w, x):
    logits = x.reshape(len(x), -1) @ w
    return jnp.where(jnp.abs(x).max(axis=(1, 2, 3))[:, None] > 50, jnp.nan, logits)


def of_batch(w, x, key):
    return apply_fn(w, x - x.mean(axis=0, keepdims=True))


def results():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(301, 4, 4, 1)).astype(np.float32)
    w = rng.normal(size=(16, 3)).astype(np.float32)
    noise = jaxsens.Perturbation(jaxsens.Patches(2), jaxsens.Gaussian(sigma=1.0))

    def measure(x, **options):
        return jaxsens.sensitivity(apply_fn, w, x, noise, 10, key=jax.random.key(3), **options)

    made = {
        "all": measure(x).to_json(),
        "random": measure(x, positions="random").to_json(),
        "tolerance": measure(x, tolerance=0.05).to_json(),
        "mask": measure(x, mask=rng.random((301, 4)) < 0.5).to_json(),
        "batches": jaxsens.sharpness(
            apply_fn, w, x, jaxsens.Gaussian(sigma=0.1), 3, key=jax.random.key(4),
            perturbed_apply_fn=of_batch, perturbed_batch=40,
        ).to_json(),
        "worst": jaxsens.worst_case(
            apply_fn, w, x[:5], jaxsens.Perturbation(jaxsens.Patches(2), jaxsens.Ball(1.0)),
            key=jax.random.key(5), num_starts=2, num_steps=20,
        ).to_json(),
    }
    # In the second process's share: the first must hear of it too, not wait for ever.
    x[-1] = 100
    for positions in ("all", "random"):
        try:
            measure(x, positions=positions)
        except ValueError as error:
            made["error " + positions] = str(error)
    return made


if __name__ == "__main__":
    with open(out, "w") as file:
        json.dump(results(), file)
"""


def two_processes(forks, folder, devices_each):
    """The results of each process of a job on this machine."""
    program, port = folder / "program.py", forks.free_port()
    program.write_text(PROGRAM)
    outs = [folder / f"{index}.json" for index in range(2)]
    forks.run_together(
        [(program, index, port, out) for index, out in enumerate(outs)],
        num_devices=devices_each,
        timeout=120,
    )
    return [json.loads(out.read_text()) for out in outs]


@pytest.mark.slow
def test_two_processes_return_what_one_returns(forks, tmp_path):
    namespace = {"__name__": "program"}
    exec(PROGRAM, namespace)
    alone = namespace["results"]()
    for each in two_processes(forks, tmp_path, devices_each=2):
        for mode in ("all", "random", "tolerance", "mask"):
            got, expected = json.loads(each[mode]), json.loads(alone[mode])
            assert got["totals"] == expected["totals"], mode
            assert got["counts"] == expected["counts"], mode
            assert got["summary"] == expected["summary"], mode
            assert got["provenance"]["num_devices"] == 4
        got, expected = (SharpnessEstimate.from_json(r["batches"]) for r in (each, alone))
        np.testing.assert_array_equal(got.flips.per_example_draw, expected.flips.per_example_draw)
        np.testing.assert_allclose(
            got.l1.per_example_draw, expected.l1.per_example_draw, rtol=1e-5, atol=1e-6
        )
        got, expected = (WorstCaseEstimate.from_json(r["worst"]) for r in (each, alone))
        np.testing.assert_allclose(got.changes, expected.changes, rtol=1e-4)
        np.testing.assert_allclose(got.windows, expected.windows, atol=1e-3)
        for positions in ("all", "random"):
            assert each["error " + positions] == alone["error " + positions]
            assert "not finite for example 300 or an edit" in each["error " + positions]


def test_compiled_programs_are_kept_where_the_user_keeps_caches(tmp_path):
    # A command that is refused at once, before it has imported an experiment.
    script = (
        "import jax, sys\nfrom jaxsens.run import main\nsys.argv[1:] = ['--process-id', '-1']\n"
        "assert main() == 2\nprint(jax.config.jax_compilation_cache_dir)"
    )

    def folder(**variables):
        mine = {name: value for name, value in os.environ.items() if "CACHE" not in name}
        environment = {**mine, "XDG_CACHE_HOME": str(tmp_path), **variables}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1]

    assert folder() == str(tmp_path / "jaxsens" / "programs")
    assert folder(JAX_COMPILATION_CACHE_DIR="elsewhere") == "elsewhere"


# --- Compiled programs ----------------------------------------------------------------------------


def test_only_the_programs_of_a_damaged_function_are_forgotten(tmp_path, monkeypatch):
    names = [
        "jit_f-12-cache",
        "jit_f-34-cache",
        "jit_f-34-atime",
        "jit_fg-12-cache",
        "jit_g-5-cache",
    ]
    for name in names:
        (tmp_path / name).touch()
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        assert not runtime._forget_damaged_program("something else about 'jit_f'")
        warning = "Error reading persistent compilation cache entry for 'jit_f': error: truncated"
        assert runtime._forget_damaged_program(warning)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["jit_fg-12-cache", "jit_g-5-cache"]


COMPILES = """
import jax, jax.numpy as jnp
from jaxsens.core import runtime
runtime.keep_compiled_programs()
print(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((3, 3))).sum())
"""


@pytest.mark.slow
def test_damaged_programs_heal(tmp_path):
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)

    def compile_all():
        done = subprocess.run(
            [sys.executable, "-c", COMPILES], cwd=ROOT, env=environment, capture_output=True
        )
        assert done.returncode == 0
        assert done.stderr == b""
        files = (p for p in tmp_path.rglob("*-cache"))
        return done.stdout, {p.name: p.read_bytes() for p in files}

    printed, programs = compile_all()
    assert len(programs) > 1
    for damage in (lambda data: data[:100], lambda data: b"", lambda data: data[:-9] + b"\0" * 9):
        damaged = {}
        for file in tmp_path.rglob("*-cache"):
            damaged[file.name] = damage(file.read_bytes())
            file.write_bytes(damaged[file.name])
        again, healed = compile_all()
        assert again == printed
        assert healed.keys() == programs.keys()
        assert all(healed[name] != data for name, data in damaged.items())


def test_without_a_home_nothing_is_kept(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    before = jax.config.jax_compilation_cache_dir
    monkeypatch.setattr(runtime.warnings, "showwarning", runtime.warnings.showwarning)
    runtime.keep_compiled_programs()
    assert jax.config.jax_compilation_cache_dir == before


@pytest.mark.parametrize(("told", "kept"), [(1.0, 0.2), (3.0, 3.0), (0.0, 0.0)])
def test_quickly_compiled_programs_are_kept_unless_jax_was_told_otherwise(monkeypatch, told, kept):
    name = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, name)
    monkeypatch.setattr(runtime.warnings, "showwarning", runtime.warnings.showwarning)
    jax.config.update(name, told)
    try:
        runtime.keep_compiled_programs(jax.config.jax_compilation_cache_dir)
        assert getattr(jax.config, name) == kept
    finally:
        jax.config.update(name, before)
