"""Counting by codes must be counting: the same partial as Polars makes of the same files, however they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from scorelake import count, footer, lake, thrift
from scorelake.coded import Counted, widened
from scorelake.compact import cells, counting, decode, pages
from scorelake.compact.spelling import Spelling
from scorelake.compact.vocabulary import Pairs, Vocabulary
from scorelake.settings import load

ODD = ["", " ", "a", "A", "ä", "日本語", "a/b", "007", "7", "\x00", "\n", "'; DROP TABLE", "x" * 100, "12345678"]
TEXT = st.one_of(st.none(), st.sampled_from(ODD), st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
STORED = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["zstd", "snappy", "gzip", "lz4", "brotli", "none"]),
        "use_dictionary": st.booleans(),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "data_page_size": st.sampled_from([64, 1 << 20]),
        "dictionary_pagesize_limit": st.sampled_from([32, 1 << 20]),
        "row_group_size": st.integers(1, 200),
        "write_page_checksum": st.booleans(),
        "write_statistics": st.just(value=["attempt"]),
    }
)


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which way every shard was counted."""
    taken: list[str] = []
    inner = counting.count

    def told(*args: Any, **options: Any) -> Any:
        taken.append("codes")
        return inner(*args, **options)

    monkeypatch.setattr(counting, "count", told)
    return taken


def partial(root: Path, out: Path, many: int, **options: Any) -> tuple[pl.DataFrame, count.Partial]:
    """What one shard of all files comes to, counted by codes from so many rows on."""
    listed = lake.listing(root)
    before, count.MANY = count.MANY, many
    try:
        task = count.Task(lake.Shard(listed.root, listed.files), load(**options), str(out / str(many)), again=True)
        done = count.count(task)
    finally:
        count.MANY = before
    pieces = [widened(pl.scan_parquet(out / str(many) / done.name / name)) for name in done.pieces]
    counts = pl.concat(pieces).collect().sort(count.HASH, *count.KEYS)
    return counts, replace(done, checksum="", pieces=())


def both(root: Path, out: Path, **options: Any) -> count.Partial:
    """Count by codes and by Polars; both must be the same, bytes aside."""
    codes, ours = partial(root, out, 1, **options)
    plain, theirs = partial(root, out, 1 << 60, **options)
    assert ours == theirs
    assert codes.columns == plain.columns
    assert codes.equals(plain, null_equal=True)
    return ours


def added(pieces: Iterator[Counted]) -> pl.DataFrame:
    """Pieces spelled out and added up."""
    keys = ["benchmark", "subject", "model", "problem_id"]
    return pl.concat([piece.spelled().counts for piece in pieces]).group_by(keys).sum().sort(keys)


def rows(draw: Any, keys: Any = TEXT) -> pl.DataFrame:
    height = draw(st.integers(1, 300))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    few = [draw(st.lists(keys, min_size=1, max_size=8)) for _ in range(3)]
    model, subject, problem = (rng.choice(np.array(values, dtype=object), height).tolist() for values in few)
    runs = draw(st.sampled_from(["none", "problems", "keys"]))
    if runs == "problems":
        problem = sorted(problem, key=str)
    if runs == "keys":
        keyed = sorted(zip(model, subject, problem, strict=True), key=str)
        model, subject, problem = (list(column) for column in zip(*keyed, strict=True))
    passed = rng.choice(np.array([True, False, None], dtype=object), height, p=draw(SHARES)).tolist()
    number = rng.integers(0, draw(st.sampled_from([2, 60, 64, 65, 256])), height)
    kind = draw(st.sampled_from([pl.Int32, pl.Int64, pl.UInt8]))
    text = pl.String if keys is TEXT else pl.Int64
    columns = {"model": model, "subject": subject, "problem_id": problem}
    frame = pl.DataFrame(columns, schema=dict.fromkeys(columns, text))
    return frame.with_columns(pl.Series("attempt", number).cast(kind), pl.Series("passed", passed, dtype=pl.Boolean))


SHARES = st.sampled_from([[0.5, 0.5, 0.0], [0.4, 0.4, 0.2], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
COMPOSED = st.composite(lambda draw: [rows(draw) for _ in range(draw(st.integers(1, 3)))])()
NUMBERED = st.composite(lambda draw: [rows(draw, st.integers(-(1 << 40), 1 << 40))])()


@given(
    st.one_of(COMPOSED, NUMBERED),
    STORED,
    st.sampled_from(["exclude", "fail"]),
    st.booleans(),
    st.sampled_from([1, 150, 1 << 20]),
)
@settings(
    max_examples=60,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_file_of_any_writer(
    tmp_path_factory: pytest.TempPathFactory,
    paths: list[str],
    frames: list[pl.DataFrame],
    how: Any,
    ungraded: str,
    large: bool,
    together: int,
) -> None:
    home = tmp_path_factory.mktemp("any")
    (home / "lake").mkdir()
    for i, frame in enumerate(frames):
        kind = pa.string() if frame.schema["model"] == pl.String else pa.int64()
        table = frame.to_arrow().cast(pa.schema([(n, kind if n in KEYED else t.type) for n, t in _fields(frame)]))
        pq.write_table(table, home / "lake" / f"{i}.parquet", **how)
    paths.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_TOGETHER", together)
        if large:
            patch.setattr(counting, "_NEWS", 3)  # as if most values were new
        both(home / "lake", home, **{"policy.ungraded": ungraded})
    assert paths  # it was counted by codes at least up to an unknown encoding


KEYED = ("model", "subject", "problem_id")


def _fields(frame: pl.DataFrame) -> list[tuple[str, Any]]:
    return [(field.name, field) for field in frame.to_arrow().schema]


def table(height: int = 5_000, seed: int = 0, unique: bool = True) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    numbers = np.arange(height) // 40 if unique else rng.integers(0, 3, height)
    return pl.DataFrame(
        {
            "model": [f"m{i}" for i in rng.integers(0, 3, height)]
            if not unique
            else [f"m{i % 4}" for i in range(height)],
            "problem_id": [f"p{i}" for i in (np.arange(height) // 4 % 10)],
            "attempt": numbers,
            "passed": rng.choice(np.array([True, False, None], dtype=object), height).tolist(),
            "level": [f"l{i}" for i in (np.arange(height) // 4 % 10)],
            "heat": [f"{0.5 * (i % 2)}" for i in range(height)],
        },
        schema_overrides={"passed": pl.Boolean},
    )


def test_files_of_polars_and_duckdb(tmp_path: Path, paths: list[str]) -> None:
    frame = table()
    (tmp_path / "lake").mkdir()
    frame.write_parquet(tmp_path / "lake/polars.parquet", row_group_size=700)
    duckdb.sql(f"COPY (FROM frame) TO '{tmp_path}/lake/duckdb.parquet' (ROW_GROUP_SIZE 2048)")
    done = both(tmp_path / "lake", tmp_path)
    assert (done.read, paths) == (2 * frame.height, ["codes"])


def test_folders_defaults_and_constants_are_keys(tmp_path: Path, paths: list[str]) -> None:
    for model in ("a", "b%2Fc", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / "lake" / f"model={model}").mkdir(parents=True)
        table().drop("model").with_columns(benchmark=pl.lit("one")).write_parquet(
            tmp_path / "lake" / f"model={model}" / "x.parquet"
        )
    done = both(tmp_path / "lake", tmp_path)
    assert (done.problems, done.rejected, paths) == (20, 5_000, ["codes"])


def test_carried_and_protocol_columns(tmp_path: Path, paths: list[str]) -> None:
    (tmp_path / "lake").mkdir()
    table().write_parquet(tmp_path / "lake/x.parquet")
    options = {"columns.carry": ("level",), "protocol.columns": ("heat",)}
    assert both(tmp_path / "lake", tmp_path, **options).problems
    assert both(tmp_path / "lake", tmp_path, **{"columns.carry": ("level",)}).words
    assert paths == ["codes", "codes"]


def test_duplicates_are_noticed(tmp_path: Path, paths: list[str]) -> None:
    (tmp_path / "lake").mkdir()
    table(unique=False).write_parquet(tmp_path / "lake/x.parquet")
    assert both(tmp_path / "lake", tmp_path).spelled
    assert both(tmp_path / "lake", tmp_path, **{"duplicates.policy": "off"}).read == 5_000
    assert paths == ["codes", "codes"]


@pytest.mark.parametrize(("policy", "kept"), [("auto", "few"), ("off", "some"), ("auto", "none"), ("off", "none")])
def test_runs_of_equal_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, kept: str) -> None:
    """Runs that row groups cut, that come again in another file, and that hold an attempt twice."""
    monkeypatch.setattr(counting, "_TOGETHER", 1_000)  # three row groups at a time
    if kept == "few":  # until the first key is met again
        monkeypatch.setattr(cells, "_LENIENT", 0)
        monkeypatch.setattr(cells, "_AGAIN", 1 << 60)
    if kept == "none":
        monkeypatch.setattr(counting, "_KEPT", 1 << 60)
    taken: list[bool] = []
    inner = counting._Job._put_runs
    monkeypatch.setattr(counting._Job, "_put_runs", lambda *args: taken.append(inner(*args)) or taken[-1])
    (tmp_path / "lake").mkdir()
    first = table(4_000).sort("model", "problem_id", "attempt")
    again = first.with_columns(pl.col("attempt") + 100)
    twice = first.filter(pl.col("attempt") % 7 == 3).with_columns(~pl.col("passed"))
    for name, frame in {"a": first, "b": again}.items():
        frame.write_parquet(tmp_path / "lake" / f"{name}.parquet", row_group_size=333)
    assert both(tmp_path / "lake", tmp_path, **{"duplicates.policy": policy}).read == 8_000
    assert all(taken)
    assert len(taken) == 9  # 26 row groups, some of both files
    within = pl.concat([first, twice]).sort("model", "problem_id", maintain_order=True)
    within.write_parquet(tmp_path / "lake/b.parquet", row_group_size=333)
    ours = both(tmp_path / "lake", tmp_path, **{"duplicates.policy": policy})
    assert bool(ours.spelled) == (policy == "auto")


@pytest.mark.parametrize(("models", "problems"), [(5_000, 5), (5, 9_000), (30, 30)])
def test_keys_too_many_for_narrow_rows(tmp_path: Path, models: int, problems: int) -> None:
    """The first file's keys fit into narrow rows, those of the second do not; some attempts are there twice."""
    (tmp_path / "lake").mkdir()
    rng = np.random.default_rng(models)
    for name, some, others in (("a", 7, 5), ("b", models, problems)):
        made = pl.DataFrame(
            {
                "model": rng.integers(0, some, 40_000),
                "problem_id": rng.integers(0, others, 40_000),
                "attempt": rng.integers(0, 200, 40_000),
                "passed": rng.random(40_000) < 0.3,
            }
        )
        texts = made.with_columns(pl.col("model", "problem_id").cast(pl.String))
        texts.write_parquet(tmp_path / "lake" / f"{name}.parquet", row_group_size=9_000)
    assert both(tmp_path / "lake", tmp_path).spelled


def test_pieces_that_share_no_problem_are_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "PIECE", 4)
    monkeypatch.setattr(count, "MERGED", 4)
    (tmp_path / "lake").mkdir()
    table(4_000).write_parquet(tmp_path / "lake/x.parquet")
    _, whole = partial(tmp_path / "lake", tmp_path, 1)
    done = replace(whole, pieces=tuple(p.name for p in sorted((tmp_path / "1" / whole.name).glob("counts-*"))))

    def merged(some: count.Partial, name: str) -> tuple[int, int, pl.DataFrame]:
        out = tmp_path / name / "problem_counts"
        out.mkdir(parents=True)
        buckets = count.buckets(tmp_path / "1", [some], 10**6, out, "error")
        graded = sum(one.graded for one in count.merge_all(buckets))
        return len(buckets), graded, pl.read_parquet(out / "*.parquet").sort(count.KEYS)

    apart, together = merged(done, "apart"), merged(replace(done, overlap=True), "together")
    assert apart[0] == len(done.pieces) == 2
    assert together[0] == 1
    assert apart[1] == together[1]
    assert apart[2].equals(together[2])
    assert apart[2].height == 40


def test_more_rows_than_a_block_or_memory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lake").mkdir()
    for seed in range(3):
        table(20_000, seed).with_columns(problem_id=pl.col("problem_id") + f"-{seed}").write_parquet(
            tmp_path / "lake" / f"{seed}.parquet", row_group_size=3_000
        )
    listed = lake.listing(tmp_path / "lake")
    told = load()
    opened = [
        count._open(count.Task(lake.Shard(listed.root, listed.files), told, ""), file, {}) for file in listed.files
    ]
    sources = [source for one in opened if (source := one.source(told, 0))]
    want = added(counting.count(sources, 0, memory=1 << 40, threads=1))
    assert added(counting.count(sources, 0, memory=1 << 40, threads=2, room=100)).equals(want)
    monkeypatch.setattr(counting, "_AT_ONCE", 4)
    monkeypatch.setattr(counting, "_TOGETHER", 1)
    spilled = list(counting.count(sources, 0, memory=0, threads=2))
    assert len(spilled) > 2
    assert all(piece.overlap for piece in spilled)
    assert added(iter(spilled)).equals(want)


def test_a_partial_in_overlapping_pieces_is_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when memory is short: the counts of a problem are spread over the files of one partial."""
    (tmp_path / "lake").mkdir()
    table(20_000).write_parquet(tmp_path / "lake/x.parquet", row_group_size=1_000)
    monkeypatch.setattr(counting, "_AT_ONCE", 4)
    monkeypatch.setattr(counting, "_TOGETHER", 1)
    told = []
    for memory in (8.0, 1e-9):
        _, done = partial(tmp_path / "lake", tmp_path, 1, **{"run.memory_gb": memory, "run.shard_mb": 1.0})
        listed = sorted((tmp_path / "1" / done.name).glob("counts-*"))
        done = replace(done, pieces=tuple(path.name for path in listed))
        assert done.overlap == (len(listed) > 1) == (memory < 1)
        path = tmp_path / f"{memory}.parquet"
        told.append(count.merge(count.Bucket(str(tmp_path / "1"), (done,), 0, (1 << 64) - 1, str(path), "error")))
    assert told[0] == told[1]
    assert (tmp_path / "8.0.parquet").read_bytes() == (tmp_path / "1e-09.parquet").read_bytes()


@pytest.mark.parametrize("limit", ["_MOST_REST", "_MOST_ROWS"])
def test_what_has_no_room_is_counted_the_other_way(
    tmp_path: Path, paths: list[str], monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    (tmp_path / "lake").mkdir()
    table().write_parquet(tmp_path / "lake/x.parquet")
    monkeypatch.setattr(counting, limit, 4)
    assert both(tmp_path / "lake", tmp_path).read == 5_000
    assert paths == ["codes"]


@pytest.mark.parametrize("kind", ["text and number", "number verdict", "reward", "nested key"])
def test_other_shapes_are_counted_the_other_way(tmp_path: Path, paths: list[str], kind: str) -> None:
    (tmp_path / "lake").mkdir()
    frame = table().drop("level", "heat")
    if kind == "text and number":
        frame.with_columns(problem_id=pl.lit(7)).write_parquet(tmp_path / "lake/y.parquet", statistics=False)
        frame = frame.with_columns(problem_id=pl.lit("7"))
    if kind == "number verdict":
        frame = frame.with_columns(pl.col("passed").cast(pl.Int8))
    if kind == "reward":
        frame = frame.with_columns(score=pl.col("passed").cast(pl.Float64))
    if kind == "nested key":
        frame = frame.with_columns(pl.col("model").cast(pl.Categorical))
    frame.write_parquet(tmp_path / "lake/x.parquet")
    both(tmp_path / "lake", tmp_path)
    assert len(paths) == (kind == "text and number")


def test_damage_is_told(tmp_path: Path, paths: list[str]) -> None:
    (tmp_path / "lake").mkdir()
    for name in ("a", "b"):
        pq.write_table(table().to_arrow(), tmp_path / f"lake/{name}.parquet", write_page_checksum=True)
    told = footer.read(str(tmp_path / "lake/b.parquet"))
    data = bytearray((tmp_path / "lake/b.parquet").read_bytes())
    data[told.of("problem_id")[0].start + told.of("problem_id")[0].size - 3] ^= 4
    (tmp_path / "lake/b.parquet").write_bytes(data)
    done = both(tmp_path / "lake", tmp_path)
    assert [file for file, _ in done.quarantine] == ["b.parquet"]
    assert "does not match its checksum" in done.quarantine[0][1]
    assert paths[0] == "codes"


@given(st.integers(0, 1 << 60), st.booleans(), st.sampled_from([90, 400]))
@example(seed=28750, dictionary=False, rows=400)  # an attempt with a higher number than the footer knows of
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damaged_page_reaches_outside_its_bytes(
    tmp_path_factory: pytest.TempPathFactory, seed: int, dictionary: bool, rows: int
) -> None:
    """Without checksums damage may go unnoticed, but it must end in counts or in an error."""
    home = tmp_path_factory.mktemp("damaged")
    shape = {"compression": "none", "use_dictionary": dictionary, "data_page_size": 256, "row_group_size": rows}
    pq.write_table(table(400).to_arrow(), home / "x.parquet", **shape)
    told = footer.read(str(home / "x.parquet"))
    rng = np.random.default_rng(seed)
    data = bytearray((home / "x.parquet").read_bytes())
    chunk = told.chunks[rng.integers(len(told.chunks))]
    for _ in range(rng.integers(1, 4)):
        data[chunk.start + rng.integers(chunk.size)] = rng.integers(256)
    (home / "x.parquet").write_bytes(data)
    counts, done = partial(home / "x.parquet", home, 1)
    assert done.quarantine or counts["n"].sum() + counts["ungraded"].sum() + done.rejected == 400


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (None, None),
        ((1, decode.STORED, 130), "goes on after the end of its row group"),
        ((1, decode.VALUES, 9), "do not hold 20 rows"),
        ((2, decode.TYPE, decode.DATA), "do not hold 20 rows"),
        ((2, decode.VALUES, -1), "do not hold 20 rows"),
        ((3, decode.TYPE, decode.DICTIONARY), "a dictionary after its first page"),
        ((0, decode.ENCODING, decode.RLE_DICTIONARY), "needs a dictionary, and none before it"),
        ((3, decode.SIZE, 1 << 40), "makes no sense"),
        ((3, decode.SUMMED, 1), "with and without checksums"),
    ],
)
def test_pages_are_those_of_their_row_groups(change: tuple[int, int, int] | None, why: str | None) -> None:
    """Two row groups read together: two plain pages of 5 rows, and a dictionary of 3 values with a page of 10."""
    groups = [footer.Chunk(i, 10, "x", footer.BYTE_ARRAY, 0, False, 0, 200, None, None, None) for i in range(2)]
    headers = np.zeros((4, 11), dtype=np.int64)
    headers[:, decode.START], headers[:, decode.STORED], headers[:, decode.SIZE] = [0, 100, 200, 300], 100, 100
    headers[:, decode.VALUES] = 5, 5, 3, 10
    headers[2, decode.TYPE], headers[3, decode.ENCODING] = decode.DICTIONARY, decode.RLE_DICTIONARY
    if change is not None:
        headers[change[:2]] = change[2]
    with pytest.raises(footer.DamagedError, match=why) if why else nullcontext():
        pages._make_sense(headers, groups, np.array([200, 400]), "here")


def test_headers_are_those_of_the_slow_reader(tmp_path: Path) -> None:
    for version in ("1.0", "2.0"):
        pq.write_table(
            table().to_arrow(), tmp_path / "x.parquet", data_page_version=version, data_page_size=999,
            write_page_checksum=True,
        )  # fmt: skip
        data = (tmp_path / "x.parquet").read_bytes()
        for chunk in footer.read(str(tmp_path / "x.parquet")).chunks:
            raw = np.frombuffer(data[chunk.start : chunk.start + chunk.size], dtype=np.uint8)
            found = np.empty((1_000, 11), dtype=np.int64)
            many = decode.headers(raw, found)
            at = 0
            for page in found[:many].tolist():
                told, at = thrift.struct(raw.tobytes(), at)
                inner = told.get(5) or told.get(7) or told.get(8)
                assert inner is not None
                assert page[:6] == [told[1], at, told[3], told[2], told[4] & 0xFFFFFFFF, 1]
                assert page[6:8] == [inner[1], inner[4] if 8 in told else inner[2]]
                at += told[3]
            assert at == chunk.size


def test_codes_are_exact_with_many_threads() -> None:
    vocabulary, pairs = Vocabulary(), Pairs()
    texts = [f"{'x' * (i % 30)}{i % 5_000}".encode() for i in range(20_000)]
    got: list[list[int]] = [[] for _ in range(4)]

    def learn(thread: int) -> None:
        order = np.random.default_rng(thread).permutation(len(texts))
        codes = np.zeros(len(texts), dtype=np.uint32)
        for i in order:
            codes[i] = vocabulary.code(texts[i])
        got[thread] = pairs.join(codes, codes[::-1].copy()).tolist()

    threads = [Thread(target=learn, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got[0] == got[1] == got[2] == got[3]
    assert len(vocabulary) == len(set(texts)) + 1
    spelled = Spelling(vocabulary, footer.BYTE_ARRAY).only(np.arange(len(vocabulary), dtype=np.uint32))[1].to_list()
    assert spelled[0] is None
    left, right = pairs.both()
    assert [(spelled[left[c]], spelled[right[c]]) for c in got[0]] == [
        (a.decode(), b.decode()) for a, b in zip(texts, reversed(texts), strict=True)
    ]
