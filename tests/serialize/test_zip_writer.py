"""Zip archives of any size can be read by other programs."""

import io
import zipfile

import numpy as np
import pytest

from tenon.serialize import zip_writer
from tenon.serialize.zip_writer import ZipWriter


def archive(records: dict) -> io.BytesIO:
    buffer = io.BytesIO()
    writer = ZipWriter(buffer)
    for name, data in records.items():
        writer.record(name, data)
    writer.finish()
    return buffer


def test_records_come_back_with_their_names_and_checksums():
    records = {
        "a/data.pkl": b"tree",
        "a/empty": b"",
        "a/ünïcode": b"x" * 1000,
        "a/array": np.arange(9, dtype=np.uint8),
    }

    with zipfile.ZipFile(archive(records)) as found:
        assert found.testzip() is None
        assert {n: found.read(n) for n in found.namelist()} == {n: bytes(d) for n, d in records.items()}


def test_data_begin_at_multiples_of_64_bytes():
    records = {f"{'n' * i}/data": bytes([i] * 100) for i in range(1, 70)}

    whole = archive(records).getvalue()

    for data in records.values():
        assert whole.index(data) % 64 == 0


def test_large_records_and_archives_use_zip64(monkeypatch):
    monkeypatch.setattr(zip_writer, "_LIMIT", 0xFFFFFFFF)
    small = archive({"a": bytes(300), "b": bytes(300)}).getvalue()
    monkeypatch.setattr(zip_writer, "_LARGE", 200)
    records = {"a": bytes(range(250)), "b": b"bb", "c": bytes(300)}

    large = archive(records)

    assert b"PK\x06\x06" in large.getvalue() and b"PK\x06\x06" not in small
    with zipfile.ZipFile(large) as found:
        assert found.testzip() is None
        assert {n: found.read(n) for n in found.namelist()} == records
        assert [info.extract_version for info in found.infolist()] == [45, 45, 45]


@pytest.mark.slow
def test_more_than_65535_records_are_listed():
    records = {str(i): b"" for i in range(65_600)}

    with zipfile.ZipFile(archive(records)) as found:
        assert len(found.namelist()) == 65_600
