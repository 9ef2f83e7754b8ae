# SPDX-License-Identifier: Apache-2.0
"""Shards in object storage and behind HTTP are read and written by their URLs."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daft.io import IOConfig, S3Config

from encoding import encode
from reencoded import leftovers, reencode, shown
from scenes import numbered

FRAMES = 12


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode(tmp_path_factory.mktemp("remote") / "before.mp4", (numbered(number) for number in range(FRAMES)))


@pytest.fixture(scope="module")
def http_folder(source: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(source.parent)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def storage() -> Iterator[tuple[Any, IOConfig]]:
    """A bucket named "robots", by what reads it and by what Daft is told."""
    moto_server = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    server = moto_server.ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    names: dict[str, Any] = {"region_name": "us-east-1"}
    keys = ("test", "test")
    url = f"http://{host if host != '0.0.0.0' else '127.0.0.1'}:{port}"  # noqa: S104 - compared, not bound
    client = boto3.client("s3", endpoint_url=url, aws_access_key_id=keys[0], aws_secret_access_key=keys[1], **names)
    client.create_bucket(Bucket="robots")
    config = S3Config(endpoint_url=url, key_id=keys[0], access_key=keys[1], region_name="us-east-1", num_tries=1)
    yield client, IOConfig(s3=config)
    server.stop()


def test_source_behind_http(tmp_path: Path, source: Path, http_folder: str) -> None:
    report = reencode(f"{http_folder}/before.mp4", tmp_path / "after.mp4")
    assert shown(tmp_path / "after.mp4") == shown(source)
    assert report["bytes_before"] == source.stat().st_size


def test_missing_source_behind_http_is_told_by_its_url(tmp_path: Path, http_folder: str) -> None:
    report = reencode(f"{http_folder}/gone.mp4", tmp_path / "after.mp4", on_error="null")
    assert f"{http_folder}/gone.mp4" in report["error"]
    assert leftovers(tmp_path) == []


def test_damaged_source_behind_http_is_told_by_its_url(tmp_path: Path, source: Path, http_folder: str) -> None:
    (source.parent / "half.mp4").write_bytes(source.read_bytes()[: source.stat().st_size // 2])
    report = reencode(f"{http_folder}/half.mp4", tmp_path / "after.mp4", on_error="null")
    assert f"{http_folder}/half.mp4" in report["error"]
    assert leftovers(tmp_path) == []


def test_output_in_storage(tmp_path: Path, source: Path, storage: tuple[Any, IOConfig]) -> None:
    client, config = storage
    url = "s3://robots/new/top camera.mp4"
    report = reencode(source, url, io_config=config)
    assert report["path"] == url
    data = client.get_object(Bucket="robots", Key="new/top camera.mp4")["Body"].read()
    (tmp_path / "after.mp4").write_bytes(data)
    assert shown(tmp_path / "after.mp4") == shown(source)
    assert report["bytes_after"] == len(data)


def test_failure_leaves_storage_as_it_was(source: Path, storage: tuple[Any, IOConfig]) -> None:
    client, config = storage
    client.put_object(Bucket="robots", Key="kept.mp4", Body=b"old")
    report = reencode(source, "s3://robots/kept.mp4", io_config=config, episodes=[99.0], on_error="null")
    assert "an episode begins at 99" in report["error"]
    assert client.get_object(Bucket="robots", Key="kept.mp4")["Body"].read() == b"old"


def test_storage_that_refuses_is_told(source: Path, storage: tuple[Any, IOConfig]) -> None:
    _, config = storage
    report = reencode(source, "s3://no-such-bucket/after.mp4", io_config=config, on_error="null")
    assert report["error"].startswith("ShardWriteError: s3://no-such-bucket/after.mp4 cannot be written")


def test_remote_output_that_is_the_source_is_refused(http_folder: str) -> None:
    url = f"{http_folder}/before.mp4"
    assert "is the source itself" in reencode(url, url, on_error="null")["error"]
