# SPDX-License-Identifier: Apache-2.0
"""Run a function of a test module in a fresh process: for limits, memory and forks that must not touch pytest's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent


def run_alone(function: Callable[..., Any], *arguments: Any, timeout_s: float = 300) -> Any:
    """Call `function(*arguments)` in a new interpreter and return what it returns (JSON both ways)."""
    program = (
        f"import json, sys, {function.__module__} as module\n"
        f"result = module.{function.__name__}(*json.loads(sys.argv[1]))\n"
        "print(json.dumps(result))"
    )
    path = os.pathsep.join(filter(None, (str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(  # noqa: S603 - this very interpreter
        [sys.executable, "-c", program, json.dumps(arguments)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}:\n{done.stderr[-4000:]}"
    return json.loads(done.stdout.splitlines()[-1])
