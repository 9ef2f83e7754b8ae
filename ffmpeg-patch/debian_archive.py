# SPDX-License-Identifier: Apache-2.0
"""Fetches upstream source archives from the Debian archive, trusted through apt's own chain of signatures.

The mirror is the one that this machine already uses, but apt works in a temporary folder with a configuration of its
own: the system's stays as it is, no rights are needed, and any Debian release can get the sources of another one.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

# The keys that sign the Debian archive, from Debian's own package; nothing signed by anybody else is accepted.
KEYRINGS = tuple(Path(f"/usr/share/keyrings/debian-archive-keyring.{suffix}") for suffix in ("gpg", "pgp"))


class FetchError(Exception):
    """A source archive can't be had here; the message says why."""


@dataclass(frozen=True, kw_only=True)
class DebianArchive:
    """One upstream archive as a signed Debian index describes it."""

    name: str
    sha256: str
    package_version: str


def source_entries(indextargets: str, suite: str, keyring: Path) -> str:
    """Turn this machine's Debian mirrors into deb-src entries of another suite.

    Args:
        indextargets: lines of "URI RELEASE COMPONENT", as `apt-get indextargets` prints them.
        suite: the Debian release to take sources from, such as "trixie".
        keyring: the only keys that these entries are trusted with.

    Returns:
        An apt sources file in deb822 form; empty when no line belongs to the Debian archive.
    """
    entries = set()
    for line in indextargets.splitlines():
        uri, release, component = line.split()
        parts = urlsplit(uri)
        folders = parts.path.strip("/").split("/")
        is_debian = (parts.hostname or "").endswith("debian.org") or {"debian", "debian-security"} & set(folders)
        if component == "main" and is_debian:
            entries.add((uri, f"{suite}-security" if release.endswith("-security") else suite))
    form = "Types: deb-src\nURIs: {}\nSuites: {}\nComponents: main\nSigned-By: {}\n"
    return "\n".join(form.format(uri, name, keyring) for uri, name in sorted(entries))


class PrivateApt:
    """apt with lists, cache and sources of its own; made by `private_apt`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._config = folder / "apt.conf"

    def run(self, *command: str) -> str:
        """Run an apt program and return what it prints; FetchError with apt's own words when it fails."""
        done = subprocess.run(
            [command[0], "-c", self._config, *command[1:]],
            capture_output=True,
            text=True,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
        if done.returncode:
            raise FetchError(f"{' '.join(command)}: {done.stderr.strip() or 'failed'}")
        return done.stdout

    def archives_of(self, source: str) -> list[DebianArchive]:
        """List the upstream archives of a source package in every version that the mirror has."""
        found = set()
        for stanza in self.run("apt-cache", "showsrc", "--only-source", source).split("\n\n"):
            version = re.search(r"^Version: (\S+)$", stanza, re.MULTILINE)
            upstream = re.search(r"^ ([0-9a-f]{64}) \d+ (\S+\.orig\.tar\.\w+)$", stanza, re.MULTILINE)
            if version and upstream:
                found.add(DebianArchive(name=upstream[2], sha256=upstream[1], package_version=version[1]))
        return sorted(found, key=lambda archive: archive.package_version)

    def download(self, source: str, archive: DebianArchive) -> Path:
        """Fetch one archive, and only it, checked by apt against the hash of the signed index."""
        listing = self.run("apt-get", "source", "--print-uris", "--only-source", f"{source}={archive.package_version}")
        uri = next((line.split("'")[1] for line in listing.splitlines() if f" {archive.name} " in line), None)
        if uri is None:
            raise FetchError(f"apt names no address for {archive.name}")
        path = self.folder / "download" / archive.name
        self.run("/usr/lib/apt/apt-helper", "download-file", uri, str(path), f"SHA256:{archive.sha256}")
        return path


@contextmanager
def private_apt(suite: str) -> Iterator[PrivateApt]:
    """Set up apt in a temporary folder with the source lists of `suite` from this machine's Debian mirror."""
    keyring = next((path for path in KEYRINGS if path.exists()), None)
    if shutil.which("apt-get") is None or keyring is None:
        raise FetchError("this machine has no apt with Debian's keyring")
    with tempfile.TemporaryDirectory(prefix="sparsevideo-apt-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # root's apt downloads as the user _apt
        for part in ("lists/partial", "cache/archives/partial", "download"):
            (folder / part).mkdir(parents=True)
        (folder / "apt.conf").write_text("")
        apt = PrivateApt(folder)
        columns = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
        known = ("apt-get", "--no-release-info", "-o", "APT::Get::IndexTargets::Filtered=false", "indextargets")
        entries = source_entries(apt.run(*known, "--format", columns), suite, keyring)
        if not entries:
            raise FetchError("no mirror of the Debian archive is configured for apt")
        (folder / "debian.sources").write_text(entries)
        (folder / "apt.conf").write_text(
            f'Dir::Etc::sourcelist "{folder}/debian.sources";\n'
            'Dir::Etc::sourceparts "/dev/null";\n'
            f'Dir::State::lists "{folder}/lists";\n'
            f'Dir::Cache "{folder}/cache";\n'
            # Hooks of the system's are not for us, and some fail without its rights.
            "#clear APT::Update::Pre-Invoke;\n"
            "#clear APT::Update::Post-Invoke;\n"
            "#clear APT::Update::Post-Invoke-Success;\n"
        )
        try:
            apt.run("apt-get", "update")
        except FetchError:  # one mirror of several may fail
            if not list((folder / "lists").glob("*_Sources*")):
                raise
        yield apt
