# SPDX-License-Identifier: Apache-2.0
"""The build into the user cache: complete or absent, once for the same inputs, and clear when it fails."""

import hashlib
import io
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import build
from build import BuildError, built_prefix
from source_archive import Library

CONFIGURE = """#!/bin/sh
echo run >> "$RUNS"
sleep 0.2
cat > Makefile <<'END'
all:; @cat text
install:; @mkdir -p $(DESTDIR)/usr/local/lib && cp text $(DESTDIR)/usr/local/lib
END
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """A library of one line of text that builds in no time and notes each run of its configure."""
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("SPARSEVIDEO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARSEVIDEO_SOURCES", str(tmp_path))
    archive = tmp_path / "toy.tar"
    with tarfile.open(archive, "w") as file:
        for name, content, mode in (("configure", CONFIGURE, 0o755), ("text", "stock\n", 0o644)):
            member = tarfile.TarInfo(f"toy-1.0/{name}")
            member.size, member.mode = len(content), mode
            file.addfile(member, io.BytesIO(content.encode()))
    return Library(
        name="toy",
        version="1.0",
        series="1",
        archive=archive.name,
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        debian_source="toy",
        debian_suite="trixie",
        release_url=archive.as_uri(),
        patches=[],
        start=["./configure"],
        configure=[],
        install=["install"],
        flavours={"release": [], "sanitize": ["--asan"]},
    )


def _runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


def _patch(tmp_path: Path, old: str, new: str) -> str:
    path = tmp_path / f"{new}.patch"
    path.write_text(f"--- a/text\n+++ b/text\n@@ -1 +1 @@\n-{old}\n+{new}\n")
    return str(path)


def test_a_second_build_takes_the_first_ones_result_without_the_source(toy: Library, tmp_path: Path) -> None:
    prefix = built_prefix(toy, "release")
    (tmp_path / toy.archive).unlink()
    assert built_prefix(toy, "release") == prefix
    assert (prefix / "lib" / "text").read_text() == "stock\n"
    assert _runs(tmp_path) == 1


def test_two_builds_at_once_make_one(toy: Library, tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        prefixes = list(pool.map(lambda _: built_prefix(toy, "release"), range(2)))
    assert prefixes[0] == prefixes[1]
    assert _runs(tmp_path) == 1


def test_patches_flags_and_sources_each_make_a_build_of_their_own(toy: Library, tmp_path: Path) -> None:
    patched = replace(toy, patches=[_patch(tmp_path, "stock", "patched")])
    builds = [
        built_prefix(toy, "release"),
        built_prefix(patched, "release"),
        built_prefix(toy, "sanitize"),
        built_prefix(replace(toy, configure=["--small"]), "release"),
    ]
    assert len(set(builds)) == len(builds)
    assert (builds[1] / "lib" / "text").read_text() == "patched\n"


def test_what_a_library_needs_is_built_before_it_and_put_beside_it(
    toy: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = "all:;\\ninstall:; mkdir -p $(DESTDIR)/usr/local && cp found $(DESTDIR)/usr/local\\n"
    start = ["sh", "-c", f"echo $CPATH > found; printf '{install}' > Makefile"]
    whole = replace(toy, name="whole", start=start, needs=["part"])
    prefixes = []
    for change in ("old", "new"):
        part = replace(toy, name="part", patches=[_patch(tmp_path, "stock", change)])
        monkeypatch.setattr(build, "libraries", lambda part=part: {"part": part})
        prefixes.append(built_prefix(whole, "sanitize"))
        assert (prefixes[-1] / "lib" / "text").read_text() == f"{change}\n"
        needed = built_prefix(part, "sanitize")
        assert (prefixes[-1] / "found").read_text() == f"{needed / 'include'}\n"
    assert prefixes[0] != prefixes[1]
    assert _runs(tmp_path) == 2, "each part once"


def test_a_failing_patch_shows_the_log_and_leaves_nothing_that_looks_built(toy: Library, tmp_path: Path) -> None:
    unfit = replace(toy, patches=[_patch(tmp_path, "something else", "patched")])
    with pytest.raises(BuildError, match=r"patch ended with status 1(.|\n)*FAILED"):
        built_prefix(unfit, "release")
    assert not [path for path in (tmp_path / "cache" / "builds").iterdir() if (path / "lib").exists()]
    with pytest.raises(BuildError):  # what the first one left is no obstacle
        built_prefix(unfit, "release")


def test_a_missing_assembler_is_named_with_the_command_that_brings_it(
    toy: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(build.shutil, "which", lambda tool: None if tool == "nasm" else f"/usr/bin/{tool}")
    with pytest.raises(BuildError, match=r"needs nasm.*sudo apt-get install nasm"):
        built_prefix(toy, "release")
