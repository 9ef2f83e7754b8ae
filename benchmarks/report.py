# SPDX-License-Identifier: Apache-2.0
"""How benchmarks print and keep what they measured."""

from __future__ import annotations

import json
import os
import platform
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from benchmarks.targets import Verdict

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("daft_sparsevideo", "daft", "pyarrow", "numpy", "av", "torchcodec", "torch", "decord")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if "daft_sparsevideo" in found:
        found["FFmpeg of daft_sparsevideo"] = import_module("daft_sparsevideo._core").ffmpeg_version()
    if "av" in found:
        found["FFmpeg of av"] = import_module("av").ffmpeg_version_info
    if "torchcodec" in found:
        found["FFmpeg of torchcodec"] = str(import_module("torchcodec").ffmpeg_major_version)
    return found


def machine() -> dict[str, Any]:
    """Describe the machine and the libraries, without its name.

    Returns:
        Processor, cores, memory, system, how busy it is, and the versions of all that is measured.

    """
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "load_average_1min": round(os.getloadavg()[0], 2),
        "versions": _versions(),
    }


def print_table(title: str, columns: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Print a table with its first column left and the others right aligned.

    Args:
        title: A line above it.
        columns: The heads of all columns but the first.
        rows: For each its head and its cells.

    """
    lines = [("", *columns), *((head, *cells) for head, cells in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print(f"\n{title}")
    for head, *cells in lines:
        print("  ".join([head.ljust(widths[0]), *map(str.rjust, cells, widths[1:])]))


def print_verdicts(verdicts: list[Verdict]) -> list[Verdict]:
    """Print one line for each target, and hand them on."""
    for verdict in verdicts:
        print(f"  {verdict}")
    return verdicts


def write_results(
    name: str, *, method: str, options: argparse.Namespace, figures: dict[str, Any], verdicts: Iterable[Verdict]
) -> None:
    """Keep what one benchmark measured in `results/<name>.json`.

    Args:
        name: The benchmark's name.
        method: How the figures were measured, in words.
        options: What the benchmark was told; where the datasets lie is left out.
        figures: What it measured.
        verdicts: The figures that have a target.

    """
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    content = {
        "benchmark": name,
        "method": " ".join(method.split()),
        "settings": {key: value for key, value in vars(options).items() if not key.startswith("dataset")},
        "machine": machine(),
        "figures": figures,
        "verdicts": [verdict.to_json() for verdict in verdicts],
    }
    path.write_text(json.dumps(content, indent=2) + "\n")
    print(f"\nwritten to {path.relative_to(RESULTS.parent.parent)}")
