"""JSON one record at a time: the same as Python's parser on the whole, wherever the reads happen to end."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorelake.errors import DataError
from scorelake.ingest.archives import ZipFile
from scorelake.ingest.json_stream import lines, load, members, probe

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=4), inside, max_size=4),
    max_leaves=12,
)


@given(
    document=st.dictionaries(st.text(max_size=6), json_values, max_size=5),
    indent=st.sampled_from([None, 1]),
    data=st.data(),
)
@settings(max_examples=60)
def test_any_document(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, Any], indent: Any, data: Any
) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=data.draw(st.booleans()))
    path = tmp_path_factory.mktemp("d") / "x.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    chunk = data.draw(st.integers(1, 40))
    into = data.draw(st.sets(st.sampled_from(sorted(document) or ["a"])))
    try:
        text.encode()
    except UnicodeEncodeError:
        with pytest.raises(DataError):
            list(members(path, into, chunk))
        return
    out: dict[str, Any] = {
        key: [] if isinstance(value, list) else {} for key, value in document.items() if key in into
    }
    for key, name, value in members(path, into, chunk):
        if name is None:
            out[key] = value
        elif isinstance(document[key], list):
            assert name == len(out[key])
            out[key].append(value)
        else:
            out[key][name] = value
    assert out == document
    if text.strip() != "{}":
        path.write_bytes(text.encode()[: data.draw(st.integers(1, len(text.encode()) - 1))])
        with pytest.raises(DataError, match=r"broken JSON|not UTF-8"):
            list(members(path, into, chunk))


def test_numbers_at_the_edge_of_a_read(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("[12345, -0.25e-3, NaN, -Infinity, true, null]")
    for chunk in range(1, 50):
        values = [value for _, _, value in members(path, (), chunk)]
        assert values[:2] == [12345, -0.25e-3]
        assert math.isnan(values[2])
        assert values[3:] == [-math.inf, True, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "key 'a' occurs twice"),
        ('[{"passed": true, "passed": false}]', "key 'passed' occurs twice"),
        ('{"a": 1} {"b": 2}', "text after the end"),
        ("[1, 2", "is missing"),
        ("[1 2]", "is missing"),
        ('{"a" 1}', "':' is missing"),
        ("{1: 2}", "a key is missing"),
        ('{"a": nul}', "Expecting value"),
        ("[" * 100_000, "nested too deeply"),
        ('"text"', "neither an object nor a list"),
        ('[\n{"a": 1},\n{"a": x}]', "line 3, column 7"),
        ("[" + "9" * 5000 + "]", "broken JSON"),
    ],
)
def test_broken_documents(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    for chunk in (1, 7, 1 << 20):
        if len(text) > 10_000 and chunk < 100:
            continue
        with pytest.raises(DataError, match=message.replace("(", "\\(")) as caught:
            list(members(path, (), chunk))
        assert caught.value.where == str(path)


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes('\ufeff{"a": "\u2028\u0085"}\r\n\r\n  \n{"a": NaN}'.encode())
    values = list(lines(path))
    assert [number for number, _ in values] == [1, 4]
    assert values[0][1] == {"a": "\u2028\u0085"}
    assert math.isnan(values[1][1]["a"])


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'{"a": 1}\n{"a": \n', "line 2, column"),
        (b'{"a": 1}\n{"a":\n2}\n', "line 2, column 1: the record goes on"),
        (b'{"a": 1} {"a": 2}\n', "line 1, column 10: text after the record"),
        (b'{"a": 1}\n[1]\n', "line 2 is not an object"),
        (b'{"a": 1}\n{"a": "\xff"}\n', "line 2 is not UTF-8"),
        (b'{"a": 1, "a": 1}\n', "occurs twice"),
        (b'{"a": 1}\n\x00\x00\x00', "line 2, column 1"),
    ],
)
def test_broken_lines(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(raw)
    with pytest.raises(DataError, match=message):
        list(lines(path))


def test_packed(tmp_path: Path) -> None:
    document = b'{"a": 1}\n' * 1000
    packed = gzip.compress(document)
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(packed)
    assert len(list(lines(path))) == 1000
    path.write_bytes(packed[:-9])
    with pytest.raises(DataError, match="cannot be read to its end"):
        list(lines(path))
    path.write_bytes(packed[:20] + b"\x00" + packed[21:])
    with pytest.raises(DataError, match=r"cannot be read to its end|broken JSON"):
        list(lines(path))
    with ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("inside.jsonl", document)
    assert len(list(lines(tmp_path / "x.zip"))) == 1000
    with ZipFile(tmp_path / "x.zip", "a") as archive:
        archive.writestr("another.jsonl", document)
    with pytest.raises(DataError, match="a zip of 2 files"):
        list(lines(tmp_path / "x.zip"))


def test_dotted_keys_zstd_and_files_of_a_zip(tmp_path: Path) -> None:
    text = '{"a": {"x": 1, "rows": [5, 6], "y": {"z": 2}}, "b.c": [7]}'
    (tmp_path / "x.zst").write_bytes(pa.compress(text.encode(), "zstd", asbytes=True))
    with ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("in/x.json", text)
        archive.writestr("in/y.json", "{}")
    rows = [("a.x", None, 1), ("a.rows", 0, 5), ("a.rows", 1, 6), ("a.y", None, {"z": 2}), ("b.c", 0, 7)]
    for path in (tmp_path / "x.zst", tmp_path / "x.zip" / "in/x.json"):
        assert list(members(path, ("a.rows", "b.c"))) == rows
        assert probe(path).first["a"]["rows"] == [5, 6]
    assert probe(tmp_path / "x.zip").members == ("in/x.json", "in/y.json")


def test_a_first_look_at_a_large_document(tmp_path: Path) -> None:
    record = {"id": "x", "text": 'a "quoted", ]text} {with[ \\ everything, ' * 50, "list": [1, {"b": [2]}]}
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"first": 1, "second": {"k": "v"}, "rows": [record] * 1000}))
    head = probe(path)
    assert (head.shape, head.first["second"]) == ("object", {"k": "v"})
    assert head.first["rows"][0] == record
    path.write_text(json.dumps([record] * 1000))
    assert probe(path).first == record
    path.write_text(json.dumps({"rows": [record]})[:-1])
    with pytest.raises(DataError, match="broken JSON"):
        probe(path)
    path.write_text(json.dumps([record]))
    assert load(path) == [record]


@pytest.mark.parametrize("start", [b"P", b"PK", b"PA", b"\x1f", b"\x28\xb5\x2f"])
def test_the_first_bytes_of_an_archive_are_a_truncated_file(tmp_path: Path, start: bytes) -> None:
    """Skipped as a text, such a log would leave the attempts in the lake that were read from it before."""
    path = tmp_path / "log.eval"
    path.write_bytes(start)
    with pytest.raises(DataError, match="the beginning of an archive"):
        probe(path)
