# SPDX-License-Identifier: Apache-2.0
"""Builds a pinned and patched library once into the user cache, and prints the folder it is installed in."""

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from debian_archive import FetchError
from source_archive import HERE, Library, SourceArchive, cache_folder, find_source, libraries, say, sha256_of

# Part of the key of every build: add one when a change of this file, of `start` or of `install` changes what comes out.
RECIPE = 1
# Variables that would change the build behind the key's back.
FOREIGN = ("CFLAGS", "CPPFLAGS", "CXXFLAGS", "LDFLAGS", "ASFLAGS", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "DESTDIR")


class BuildError(Exception):
    """The build can't start or has failed; the message says what to do."""


def compilers(wanted: Library) -> list[str]:
    """Name the C compiler, $CC or cc, and for a build by CMake the C++ compiler, $CXX or c++."""
    names = [os.environ.get("CC", "cc")]
    return [*names, os.environ.get("CXX", "c++")] if "cmake" in wanted.start else names


def require(wanted: Library, *tools: str) -> None:
    """Fail, with the command that helps, when a program that the build needs is missing."""
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        names = dict(zip(compilers(wanted), ("gcc", "g++"), strict=False)) | {"ninja": "ninja-build"}
        packages = [names.get(tool, tool) for tool in missing]
        raise BuildError(
            f"building {wanted.name} needs {', '.join(missing)}. "
            f"On Debian or Ubuntu: sudo apt-get install {' '.join(packages)}"
        )


def build_key(wanted: Library, flavour: str, source_sha256: str) -> str:
    """Name a build by all that decides what comes out of it."""
    inputs: dict[str, object] = {
        "recipe": RECIPE,
        "source": source_sha256,
        "patches": [sha256_of(HERE / name) for name in wanted.patches],
        "flags": wanted.configure + wanted.flavours[flavour],
        "compiler": [*map(version_of, compilers(wanted)), platform.machine()],
    }
    if wanted.needs:
        inputs["needs"] = [build_key(library, flavour, library.sha256) for library in needed_by(wanted)]
    digest = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()
    return f"{wanted.name}-{wanted.version}-{flavour}-{digest[:16]}"


def needed_by(wanted: Library) -> list[Library]:
    """Return the libraries that become part of this one's build."""
    return [libraries()[name] for name in wanted.needs]


def version_of(compiler: str) -> str:
    """Return what a compiler says of itself, but for its name: it may be called cc, gcc or by its path."""
    about = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    return about.splitlines()[0].partition(" ")[2]


def built_prefix(wanted: Library, flavour: str) -> Path:
    """Return the folder with include/ and lib/ of a library, and build it first when no earlier build fits."""
    builds = cache_folder() / "builds"
    require(wanted, *compilers(wanted))
    # Usually all is there: then neither the source archive nor the network is needed.
    if (prefix := builds / build_key(wanted, flavour, wanted.sha256)).exists():
        return prefix
    require(wanted, "patch", wanted.make[0], *({"cmake", "meson"} & {wanted.start[0]}))
    if platform.machine() in {"x86_64", "AMD64", "i686"}:
        require(wanted, "nasm")
    builds.mkdir(parents=True, exist_ok=True)
    parts = [built_prefix(library, flavour) for library in needed_by(wanted)]
    with only_one(builds / f"{wanted.name}-{flavour}.lock"):
        source = find_source(wanted)
        prefix = builds / build_key(wanted, flavour, source.sha256)
        if not prefix.exists():
            build(wanted, flavour, source, prefix, parts)
        return prefix


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Let one process at a time in; the system opens the lock when its holder ends in whatever way."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another build of the same library")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(wanted: Library, flavour: str, source: SourceArchive, prefix: Path, parts: list[Path]) -> None:
    """Unpack, patch, configure, make and install; `prefix` appears at the very end and complete.

    The libraries in the folders `parts` are found by the compiler without being named, and become part of the result.
    """
    work = prefix.with_name(prefix.name + ".partial")
    log_path = prefix.with_name(prefix.name + ".log")
    shutil.rmtree(work, ignore_errors=True)  # what a killed build has left
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
    say(f"building {wanted.name} from {source.path.name} ({flavour}, {jobs} jobs): some minutes, once. Log: {log_path}")
    extra = {
        "DESTDIR": str(work / "stage"),  # so that no path of this machine gets into the libraries
        "CPATH": os.pathsep.join(str(part / "include") for part in parts),
        "LIBRARY_PATH": os.pathsep.join(str(part / "lib") for part in parts),
    }
    with log_path.open("w") as log:
        tree = unpack(source.path, work)
        for name in wanted.patches:
            run(["patch", "-p1", "--batch", "--forward", "-i", str(HERE / name)], tree, log, {})
        start = [part.format(cc=compilers(wanted)[0]) for part in wanted.start]
        details = tree / "ffbuild" / "config.log"
        run([*start, *wanted.configure, *wanted.flavours[flavour]], tree, log, extra, details=details)
        run([*wanted.make, "-j", jobs], tree, log, extra)
        run([*wanted.make, *wanted.install], tree, log, extra)
    installed = work / "stage" / "usr" / "local"
    for part in parts:
        shutil.copytree(part, installed, dirs_exist_ok=True)
    installed.rename(prefix)
    shutil.rmtree(work)


def unpack(archive: Path, work: Path) -> Path:
    """Unpack a verified archive and return its only folder."""
    with tarfile.open(archive) as file:
        if hasattr(tarfile, "data_filter"):
            file.extraction_filter = tarfile.data_filter
        file.extractall(work / "source")  # noqa: S202 - its checksum is pinned or vouched for by apt
    (tree,) = (work / "source").iterdir()
    return tree


def run(command: list[str], folder: Path, log: TextIO, extra: dict[str, str], *, details: Path | None = None) -> None:
    """Run a command into the log, with `extra` variables; BuildError with the end of the log when it fails."""
    log.write(f"\n$ {shlex.join(command)}\n")
    log.flush()
    clean = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    clean |= {name: value for name, value in extra.items() if value}
    done = subprocess.run(
        command, cwd=folder, env=clean, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode == 0:
        return
    if details is not None and details.exists():
        log.write(details.read_text(errors="replace"))
        log.flush()
    tail = "\n".join(Path(log.name).read_text(errors="replace").splitlines()[-25:])
    raise BuildError(f"{command[0]} ended with status {done.returncode}. The end of {log.name}:\n{tail}")


def main() -> int:
    """Read the command line, build, and print the result's path."""
    tables = libraries()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=tables)
    parser.add_argument("--flavour", default="release", help="one of sources.toml (default: release)")
    parser.add_argument("--fetch", action="store_true", help="only find, download and check the source archive")
    asked = parser.parse_args()
    wanted = tables[asked.library]
    if asked.flavour not in wanted.flavours:
        parser.error(f"{wanted.name} has the flavours {', '.join(wanted.flavours)}, not {asked.flavour}")
    try:
        print(find_source(wanted).path if asked.fetch else built_prefix(wanted, asked.flavour))
    except (BuildError, FetchError, OSError) as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
