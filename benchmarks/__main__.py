# SPDX-License-Identifier: Apache-2.0
"""All benchmarks one after the other, each in a process of its own: `python -m benchmarks DATASET... [--threads 1]`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks.report import RESULTS


def main() -> None:
    """Run every benchmark, then say again which targets are met."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("datasets", nargs="+", metavar="DATASET", help="folder of a LeRobot v3 dataset")
    parser.add_argument("--threads", type=int, default=1, help="decoder threads (default: 1)")
    options = parser.parse_args()
    threads = ["--threads", str(options.threads)]
    runs = {
        "random_access": [*options.datasets, *threads],
        "decoder_costs": options.datasets,
        "daft_queries": [*options.datasets, *threads],
        "daft_overhead": [options.datasets[0], *threads],
        "anchor_cache": options.datasets,
        "two_cores": [options.datasets[0]],
        "streaming_memory": [options.datasets[0]],
    }
    for name, arguments in runs.items():
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *arguments], check=True)  # noqa: S603 - our own modules
    print("\nall targets")
    for name in runs:
        for verdict in json.loads((RESULTS / f"{name}.json").read_text())["verdicts"]:
            print(f"  {verdict['says']}")


if __name__ == "__main__":
    main()
