"""Every experiment in two processes of two devices: what one process finds, in one folder."""

import json
from collections import Counter

import pytest

#: Enough for the slowest machine; nothing waits for it where all is well.
LIMIT = 600
IMAGES = "--epochs 2 --evaluate-every 1 --num-train 100 --num-measured 6"
TINY = {
    "vision": f"--models mlp-leaky cnn {IMAGES}",
    "ablations": f"--depths 2 --heads 2 {IMAGES}",
    "estimators": f"--models mlp-leaky {IMAGES}",
    "robustness": f"--models mlp-leaky {IMAGES}",
    "sharpness": IMAGES,
    "language": "--models lstm --epochs 1 --evaluate-every 1 --num-train 64 --num-measured 4 "
    "--num-along 2 --depth 1 --width 8 --heads 2 --hidden 16 --max-length 16 --num-samples 2 "
    "--variances 15 4",
    "grokking": "--p 5 --width 8 --heads 2 --hidden 16 --epochs 4 --evaluate-every 2 --num-seeds 2 "
    "--controls no-rule --num-draws 2 --parity-bits 5 --parity-train 20 --parity-hidden 8 "
    "--parity-epochs 4",
    "synthetic": "--epochs 2 --every 1 --num-seeds 2 --phase-sigmas 0.1 0.3 --phase-rates 0.3 "
    "--phase-seeds 1 --num-train 60 --num-test 30 --batch-size 30 --num-measured 2 --num-final 3 "
    "--num-enumerated 3 --num-checked 1 --block 6 --squared-epochs 2 --squared-every 2",
    "spectrum": "--d 4 --scan-pure 2 4 --scan-stacks 2 4 --univariate-d 16 --finite-d 4 "
    "--widths 4 64 --num-seeds 3 --train-d 4 --train-width 32 --max-steps 200 --sets-per-degree 1",
    "sensitive-functions": "--width 4 --layers 1 --heads 1 --batch 4 --block 4 --num-directions 2 "
    "--parts generalisation scratchpad random-init length --generalisation-bits 3 "
    "--generalisation-sizes 1 2 --generalisation-random-sizes 2 --generalisation-functions 2 "
    "--generalisation-steps 3 --scratchpad-lengths 2 3 --scratchpad-width 4 --scratchpad-steps 2 "
    "--scratchpad-seeds 2 --scratchpad-batch 4 --scratchpad-strings 4 --random-init-bits 3 "
    "--random-init-widths 4 --random-init-networks 4 --length-trained 2 --length-asked 3 "
    "--length-steps 2 --length-seeds 2 --length-inputs 8",
    "word-sensitivity": "--d 8 --n 4 8 --depths 1 2 --num-seeds 2 --num-starts 2 --num-steps 10 "
    "--num-random 4 --dense-limit 32 --all-words-n 4 --all-words-limit 32 --stuck-n 4 "
    "--stuck-seeds 2 --context-d 16 --context-n 4 --context-train 8 --context-seeds 2",
}


def run(forks, name, folder, num):
    """Runs an experiment in so many processes."""
    command = ["-m", "jaxsens.run", "--exp", name, *TINY[name].split(), "--workdir", folder]
    command += ["--coordinator", f"127.0.0.1:{forks.free_port()}", "--num-processes", num]
    forks.run_together(
        [(*command, "--process-id", number) for number in range(num)],
        num_devices=2,
        timeout=LIMIT,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_two_processes_find_what_one_finds(forks, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    claims = []
    for num in (1, 2):
        folder = tmp_path / f"{num}"
        run(forks, name, folder, num)
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines] if lines else []
        keys = Counter((r.get("model"), r.get("epoch"), r.get("stage")) for r in records)
        assert max(keys.values(), default=1) == 1, keys.most_common(1)
        results = json.loads((folder / "results.json").read_text())
        claims.append([claim["statement"] for claim in results["claims"]])
        assert (folder / "report.html").exists()
    assert claims[0] == claims[1]
