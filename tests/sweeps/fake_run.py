"""Stands for `python -m jaxsens.run`: makes a run folder at once and ends as its seed says.

Seeds: below 10 done, 11 diverges, 12 bad data, 13 is killed, 14 is interrupted the first time,
15 waits for a signal.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

STARTS = Path("starts.txt")


def main(words):
    folder, seed = (words[words.index(flag) + 1] for flag in ("--workdir", "--seed"))
    folder, seed = Path(folder), int(seed)
    signal.signal(signal.SIGTERM, leave)
    with STARTS.open("a") as file:
        file.write(f"{seed} {os.getpid()}\n")
    if seed == 12:
        print("jaxsens: the data was not found", file=sys.stderr)
        return 2
    config = json.loads(os.environ["FAKE_CONFIGS"])[str(folder)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"experiment": "spectrum", "config": config}))
    print("a line of output", flush=True)
    print("JOB_COMPLETION_INDEX" in os.environ, flush=True)
    if seed == 11:
        print("jaxsens: training diverged at step 2", file=sys.stderr)
        return 1
    if seed == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == 14 and STARTS.read_text().count("14 ") == 1:
        return 75
    if seed == 15:
        time.sleep(120)
    (folder / "report.html").write_text("a report")
    (folder / "results.json").write_text(json.dumps(results(seed, config)))
    return 0


def results(seed, config):
    difference = 0.1 * (seed + 1)
    claim = {
        "statement": "<b>ViT</b> is less sensitive than CNN",
        "paper": "–",
        "measured": f"difference {difference:.1f}",
        "holds": seed != 2,
        "values": {"difference": difference, "in words": "three"},
        "decided_by": "difference",
    }
    return {
        "title": "A fake & its title",
        "summary": "",
        "claims": [claim],
        "tables": [],
        "figures": [],
        "values": {"cnn": {"mean": 0.5 + seed, "noisy": {"mean": 1.0}, "low": 0.0}, "mean": None},
        "experiment": "spectrum",
        "config": config,
        "environment": {},
        "seconds": 2.0,
        "command": "",
    }


def leave(number, frame):
    print("jaxsens: interrupted; the same command resumes", flush=True)
    os._exit(75)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
