# SPDX-License-Identifier: Apache-2.0
"""Finds the verified source archive of a library: named folder, user cache, Debian, the project's release page."""

import hashlib
import os
import re
import shutil
import sys
import tomllib
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from debian_archive import DebianArchive, FetchError, private_apt

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, kw_only=True)
class Library:
    """One table of sources.toml."""

    name: str
    version: str
    series: str
    archive: str
    sha256: str
    debian_source: str
    debian_suite: str
    release_url: str
    patches: list[str]
    start: list[str]
    configure: list[str]
    install: list[str]
    flavours: dict[str, list[str]]
    make: list[str] = field(default_factory=lambda: ["make"])
    needs: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SourceArchive:
    """A source archive on disk whose bytes were checked."""

    path: Path
    sha256: str


def libraries() -> dict[str, Library]:
    """Read the tables of sources.toml."""
    tables = tomllib.loads((HERE / "sources.toml").read_text())
    return {name: Library(name=name, **table) for name, table in tables.items()}


def cache_folder() -> Path:
    """Name the user cache: $SPARSEVIDEO_CACHE, or daft_sparsevideo in $XDG_CACHE_HOME or ~/.cache."""
    if own := os.environ.get("SPARSEVIDEO_CACHE"):
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "daft_sparsevideo"


def say(text: str) -> None:
    """Tell the user, beside the result on standard output."""
    print(f"daft_sparsevideo: {text}", file=sys.stderr, flush=True)


def sha256_of(path: Path) -> str:
    """Hash a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_source(wanted: Library) -> SourceArchive:
    """Find the source archive of a library, download it when it isn't here, and check it.

    Raises:
        FetchError: no place has it, with the reason for each.
    """
    places: tuple[tuple[str, Callable[[Library], SourceArchive]], ...] = (
        ("$SPARSEVIDEO_SOURCES", from_named_folder),
        ("the user cache", from_cache),
        ("Debian", from_debian),
        ("the release page", from_release_page),
    )
    reasons = []
    for place, look in places:
        try:
            return look(wanted)
        except FetchError as error:
            reasons.append(f"  {place}: {error}")
            if look is from_named_folder and os.environ.get("SPARSEVIDEO_SOURCES"):
                say(f"not taken from $SPARSEVIDEO_SOURCES: {error}")
    raise FetchError(
        f"{wanted.archive} can't be had:\n" + "\n".join(reasons) + "\n"
        f"Put that file (sha256 {wanted.sha256}) into a folder and set SPARSEVIDEO_SOURCES to it."
    )


def from_named_folder(wanted: Library) -> SourceArchive:
    """Take the pinned archive from the folder that the user names."""
    folder = os.environ.get("SPARSEVIDEO_SOURCES")
    if not folder:
        raise FetchError("not set")
    return _pinned(Path(folder).absolute() / wanted.archive, wanted)


def from_cache(wanted: Library) -> SourceArchive:
    """Take the pinned archive, or a newer one of its series that apt has vouched for, from the user cache."""
    folder = cache_folder() / "sources"
    try:
        return _pinned(folder / wanted.archive, wanted)
    except FetchError:
        for note in sorted(folder.glob("*.sha256"), reverse=True):
            path, sha256 = note.with_suffix(""), note.read_text().strip()
            if _series_release(wanted, path.name) and path.exists() and sha256_of(path) == sha256:
                return SourceArchive(path, sha256)
        raise


def from_debian(wanted: Library) -> SourceArchive:
    """Fetch from Debian: the pinned archive, or the release of the same series that has replaced it there."""
    say(f"asking Debian's {wanted.debian_suite} for the source of {wanted.name} {wanted.version}")
    with private_apt(wanted.debian_suite) as apt:
        offered = apt.archives_of(wanted.debian_source)
        chosen = choose(wanted, offered)
        path = _keep(apt.download(wanted.debian_source, chosen))
    if chosen.sha256 != wanted.sha256:
        say(f"Debian has {chosen.name} instead of {wanted.archive}: taken, since Debian's index vouches for it")
        path.with_name(path.name + ".sha256").write_text(chosen.sha256 + "\n")
    return SourceArchive(path, chosen.sha256)


def choose(wanted: Library, offered: list[DebianArchive]) -> DebianArchive:
    """Choose the pinned archive among those offered, or else the newest release of its series."""
    for archive in offered:
        if archive.sha256 == wanted.sha256:
            return archive
    releases = [(release, archive) for archive in offered if (release := _series_release(wanted, archive.name))]
    if not releases:
        names = ", ".join(archive.name for archive in offered) or "nothing"
        raise FetchError(f"a release of {wanted.series} is wanted, {names} is offered")
    return max(releases, key=lambda pair: pair[0])[1]


def from_release_page(wanted: Library) -> SourceArchive:
    """Fetch the pinned archive from the project's own release page; Debian ships the same bytes."""
    part = _sources_folder() / f"{wanted.archive}.{os.getpid()}.part"
    try:
        say(f"downloading {wanted.release_url}")
        with urllib.request.urlopen(wanted.release_url, timeout=60) as reply, part.open("wb") as file:
            shutil.copyfileobj(reply, file)
        _pinned(part, wanted)
        return SourceArchive(part.replace(part.with_name(wanted.archive)), wanted.sha256)
    except OSError as error:
        raise FetchError(f"{wanted.release_url}: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def _pinned(path: Path, wanted: Library) -> SourceArchive:
    if not path.exists():
        raise FetchError(f"{path} doesn't exist")
    if (sha256 := sha256_of(path)) != wanted.sha256:
        raise FetchError(f"{path} has sha256 {sha256}, not the pinned {wanted.sha256}")
    return SourceArchive(path, sha256)


def _series_release(wanted: Library, name: str) -> tuple[int, ...] | None:
    """Return 7.1.6 as (7, 1, 6) when the file name is that of a release of the wanted series, else None."""
    source, series = re.escape(wanted.debian_source), re.escape(wanted.series)
    found = re.fullmatch(rf"{source}_({series}(?:\.\d+)*)\.orig\.tar\.\w+", name)
    return tuple(map(int, found[1].split("."))) if found else None


def _sources_folder() -> Path:
    folder = cache_folder() / "sources"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _keep(path: Path) -> Path:
    """Move a downloaded archive into the user cache; a reader sees all of it or nothing."""
    part = _sources_folder() / f"{path.name}.{os.getpid()}.part"
    shutil.copyfile(path, part)
    return part.replace(part.with_name(path.name))
