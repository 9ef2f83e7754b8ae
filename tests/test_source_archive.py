# SPDX-License-Identifier: Apache-2.0
"""Where sources come from: every byte is vouched for by a pinned checksum or by apt, whatever the place."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

import source_archive
from debian_archive import DebianArchive, FetchError, source_entries
from source_archive import Library, choose, find_source

GOOD = b"the pinned bytes"
KEYRING = Path("/keys/debian.gpg")


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """A library of which nothing is here, on a machine without apt and network."""
    for name in ("SPARSEVIDEO_SOURCES", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARSEVIDEO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(source_archive, "private_apt", _no_apt)
    return Library(
        name="ffmpeg",
        version="7.1.5",
        series="7.1",
        archive="ffmpeg_7.1.5.orig.tar.xz",
        sha256=hashlib.sha256(GOOD).hexdigest(),
        debian_source="ffmpeg",
        debian_suite="trixie",
        release_url=(tmp_path / "releases" / "ffmpeg-7.1.5.tar.xz").as_uri(),
        patches=[],
        start=["./configure"],
        configure=[],
        install=["install"],
        flavours={"release": []},
    )


def _no_apt(_suite: str) -> None:
    raise FetchError("this machine has no apt")


def _put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _offer(name: str, content: bytes = b"other bytes") -> DebianArchive:
    return DebianArchive(name=name, sha256=hashlib.sha256(content).hexdigest(), package_version=name)


def test_the_named_folder_comes_first(wanted: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _put(tmp_path / "cache" / "sources" / wanted.archive, GOOD)
    named = _put(tmp_path / "mine" / wanted.archive, GOOD)
    monkeypatch.setenv("SPARSEVIDEO_SOURCES", str(named.parent))
    assert find_source(wanted).path == named


def test_the_cache_comes_before_the_network(wanted: Library, tmp_path: Path) -> None:
    cached = _put(tmp_path / "cache" / "sources" / wanted.archive, GOOD)
    assert find_source(wanted).path == cached


def test_the_release_page_is_last_and_fills_the_cache(wanted: Library, tmp_path: Path) -> None:
    _put(tmp_path / "releases" / "ffmpeg-7.1.5.tar.xz", GOOD)
    found = find_source(wanted)
    assert found.path == tmp_path / "cache" / "sources" / wanted.archive
    assert [path.name for path in found.path.parent.iterdir()] == [wanted.archive]


def test_other_bytes_are_taken_from_nowhere(wanted: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARSEVIDEO_SOURCES", str(_put(tmp_path / "mine" / wanted.archive, GOOD[:-1]).parent))
    _put(tmp_path / "cache" / "sources" / wanted.archive, GOOD[:-1])
    _put(tmp_path / "releases" / "ffmpeg-7.1.5.tar.xz", GOOD[:-1])
    with pytest.raises(FetchError, match="not the pinned") as caught:
        find_source(wanted)
    for place in ("$SPARSEVIDEO_SOURCES", "the user cache", "Debian: this machine has no apt", "the release page"):
        assert place in str(caught.value)


def test_the_cache_keeps_a_newer_release_only_with_the_hash_that_apt_vouched_for(
    wanted: Library, tmp_path: Path
) -> None:
    newer = _put(tmp_path / "cache" / "sources" / "ffmpeg_7.1.6.orig.tar.xz", b"newer")
    with pytest.raises(FetchError):
        find_source(wanted)
    _put(newer.with_name(newer.name + ".sha256"), hashlib.sha256(b"newer").hexdigest().encode())
    assert find_source(wanted).path == newer
    newer.write_bytes(b"changed")
    with pytest.raises(FetchError):
        find_source(wanted)


def test_debian_gives_the_pinned_archive_or_else_the_newest_of_its_series(wanted: Library) -> None:
    pinned = _offer(wanted.archive, GOOD)
    ninth, tenth, other = (_offer(f"ffmpeg_{release}.orig.tar.xz") for release in ("7.1.9", "7.1.10", "7.2.1"))
    assert choose(wanted, [ninth, pinned, tenth, other]) == pinned
    assert choose(wanted, [tenth, ninth, other]) == tenth
    with pytest.raises(FetchError, match=r"7\.1 is wanted, ffmpeg_7\.2\.1\.orig\.tar\.xz is offered"):
        choose(wanted, [other])
    with pytest.raises(FetchError, match="nothing is offered"):
        choose(replace(wanted, debian_source="x264"), [])


def test_only_mirrors_of_the_debian_archive_become_source_entries() -> None:
    machine = (
        "http://deb.debian.org/debian/ bookworm main\n"
        "http://deb.debian.org/debian/ bookworm-updates main\n"
        "http://deb.debian.org/debian/ bookworm contrib\n"
        "http://mirror.example/debian-security/ bookworm-security main\n"
        "https://download.example/linux/debian/ bookworm stable\n"
        "https://packages.example/node_20.x/ nodistro main\n"
    )
    assert source_entries(machine, "trixie", KEYRING) == (
        "Types: deb-src\nURIs: http://deb.debian.org/debian/\nSuites: trixie\nComponents: main\n"
        f"Signed-By: {KEYRING}\n\n"
        "Types: deb-src\nURIs: http://mirror.example/debian-security/\nSuites: trixie-security\nComponents: main\n"
        f"Signed-By: {KEYRING}\n"
    )
    assert source_entries("https://packages.example/apt/ stable main\n", "trixie", KEYRING) == ""
