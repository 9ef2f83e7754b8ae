# SPDX-License-Identifier: Apache-2.0
"""Where index files lie, which keep in Parquet what indexing a shard found out.

The index of a LeRobot dataset's camera is `{dataset}/meta/sparsevideo/{camera}.parquet`, that of a single video
`{video}.sparsevideo.parquet`. They are looked for when a shard is opened, and believed only if they were made of the
very file: of its size, and of the bytes in it that are no pictures. Pictures have checksums of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from daft_sparsevideo import _core
from daft_sparsevideo.errors import IndexFileError

DATASET_FOLDER = "meta/sparsevideo"
SUFFIX = ".sparsevideo.parquet"

_LEVELS = 6  # how many folders above a shard may be the dataset's


def beside(shard: Path) -> Path:
    """The index file of a single video."""
    return shard.with_name(shard.name + SUFFIX)


@dataclass(frozen=True)
class Place:
    """Where an index file may tell of a shard."""

    file: Path
    name: str  # of the shard, in that file

    def open(self, source: str | bytes | BinaryIO, *, name: str) -> _core.Shard:
        """The shard with the index that the file holds of it; `name` is how messages call it.

        Raises:
            IndexFileError: The file is damaged, of another version, does not tell of the shard, or was made of
                something else.
        """
        from daft_sparsevideo.index_files import open_index_file

        with _named_errors(self.file):
            contents = open_index_file(self.file).contents(self.name)
        try:
            return _core.Shard(source, name=name, contents=contents)
        except IndexFileError as error:
            reason = str(error).removeprefix(f"{name}: ")
            raise IndexFileError(f"the index file {self.file} is not used: {reason}", shard=name) from error


def places_of(shard: str) -> list[Place]:
    """The index files that should tell of the video at a local path."""
    path, places = Path(shard), []
    with suppress(OSError):  # folders that may not be searched
        if beside(path).exists():
            places.append(Place(beside(path), path.name))
        root = next((root for root in list(path.parents)[:_LEVELS] if (root / DATASET_FOLDER).is_dir()), None)
        if root is not None:
            name = path.relative_to(root)
            files = sorted((root / DATASET_FOLDER).glob("*.parquet"))
            of_camera = [file for file in files if file.stem in name.parts]
            # Where the camera is no folder's name, only the files themselves say whose they are.
            chosen = of_camera or [file for file in files if _tells_of(file, name.as_posix())]
            places += [Place(file, name.as_posix()) for file in chosen]
    return places


def _tells_of(file: Path, name: str) -> bool:
    from daft_sparsevideo.index_files import open_index_file

    with suppress(Exception):
        return name in open_index_file(file).names
    return False


def place_in(file: str, shard: str) -> Place:
    """The place of a shard in an index file that is known: its only shard, or the one that `shard` ends with.

    Raises:
        IndexFileError: The file is damaged, of another version, or does not tell of the shard.
    """
    from daft_sparsevideo.index_files import open_index_file

    with _named_errors(Path(file)):
        names = open_index_file(Path(file)).names
        ends = [name for name in names if f"/{shard}".endswith(f"/{name}")]
        if len(names) != 1 and not ends:
            raise IndexFileError(f"it does not tell of {shard}")
    return Place(Path(file), max(ends or names, key=len))


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Whatever reading a file raises becomes an IndexFileError that names it."""
    try:
        yield
    except IndexFileError as error:
        raise IndexFileError(f"the index file {path} is not used: {error}") from error
    except Exception as error:  # pyarrow raises many kinds where a file is damaged
        raise IndexFileError(f"the index file {path} is not used, because it cannot be read: {error}") from error
