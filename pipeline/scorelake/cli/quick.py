"""The command `quick`: logs, a table or a lake in, a leaderboard and a page out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from scorelake import reporting
from scorelake.cli.app import GUARDED, Names, app
from scorelake.cli.lakes import CONFIG, find_config, load_settings, run_job, write_inferred_config
from scorelake.errors import DataError, UsageError
from scorelake.storage.disk import is_remote, replace_text
from scorelake.text import plural

if TYPE_CHECKING:
    import polars as pl

    from scorelake.ingest.contract import IngestOptions
    from scorelake.settings import Settings

TABLES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")


@app.command()
def quick(
    context: typer.Context,
    sources: Annotated[list[str], Argument(help="Logs; a Parquet, CSV or JSON Lines file; or a lake.")],
    out: Annotated[str, Option(help="Output folder of the leaderboard and its page.")] = "scorelake-out",
    model: Annotated[str | None, Option(help="Model, where a log names none.")] = None,
    benchmark: Annotated[str | None, Option(help="Benchmark, where a log names none.")] = None,
    metric: Annotated[Names, Option(help="Which of several metrics counts. Or TASK=METRIC. Repeatable.")] = None,
    map: Annotated[Names, Option(help="Columns of any table, as for ingest. Repeatable.")] = None,  # noqa: A002
) -> None:
    """Score logs, a table or a lake, and write the page.

    Inferred columns and the leaderboard are printed. Logs and tables become a lake in the folder OUT-lake first.
    """
    lake = str(sources[0]) if len(sources) == 1 and _is_lake(sources[0]) else f"{out.rstrip('/')}-lake"
    output = reporting.CommandOutput(lake=lake, out=out)

    def settings() -> Settings:
        return load_settings(lake, None, out, config=_configure(lake, out))

    def work(full: bool) -> None:
        if lake != sources[0]:
            from scorelake.ingest.contract import IngestOptions

            names = {"model": model, "benchmark": benchmark, "metric": metric, "map": map}
            _make_lake(sources, lake, IngestOptions.parse(**names))
        elif model or benchmark or metric or map:
            what = "a lake names its models and columns; these options are for logs"
            raise UsageError(what, where=lake, hint="name them in its config: scorelake init")
        chosen = settings()
        from scorelake import pipeline
        from scorelake.page.build import build_page
        from scorelake.read.session import reading
        from scorelake.read.show import show_leaderboard

        with reporting.progress_bar() as progress:
            report = pipeline.run_score(lake, out, chosen, full=full, progress=progress)
        output.done(report)
        page = Path("leaderboard.html") if is_remote(out) else Path(out) / "leaderboard.html"
        with reading(out) as folder:
            show_leaderboard(folder)
            replace_text(page, build_page(folder))
        reporting.say(f"The page is {page}. Next: scorelake show {out}, or open {out}/leaderboard.duckdb in DuckDB.")

    run_job(context.obj == GUARDED, work, settings, lake, out, output)


def _is_lake(source: str) -> bool:
    """Return whether a source is read as it is: a Parquet file, a folder with some, or a table of a catalog."""
    if is_remote(source) or source.startswith(("iceberg:", "ducklake:")):
        return True
    path = Path(source)
    file = path if path.suffix == ".parquet" else next(path.rglob("*.parquet"), None) if path.is_dir() else None
    return file is not None and not _is_log(file)


def _is_log(path: Path) -> bool:
    """Return whether a Parquet file is a log that ingest reads, and no attempts as they are."""
    from scorelake.ingest.formats import FORMATS
    from scorelake.ingest.json_stream import probe

    try:
        return any(format_.detect(probe(path)) for format_ in FORMATS.values())
    except (DataError, OSError):
        return False


def _make_lake(sources: list[str], lake: str, options: IngestOptions) -> None:
    """Write the attempts of logs, or of one table, into a new lake."""
    if mixed := [source for source in sources if _is_lake(source)]:
        hint = "put Parquet files into one folder, and name the folder"
        raise UsageError("one lake or Parquet file can be scored at a time", where=", ".join(mixed), hint=hint)
    from scorelake.ingest import discovery, job
    from scorelake.ingest.ingest_report import IngestReport

    is_log = discovery.discover(sources, None, dict(options.map), Path(lake), IngestReport())
    if is_log or len(sources) > 1 or Path(sources[0]).suffix not in TABLES:
        with reporting.progress_bar() as progress:
            report = job.ingest(sources, lake, options=options, progress=progress)
        reporting.ingested(report, reporting.CommandOutput())
        return
    rows = _read_table(Path(sources[0]))
    Path(lake).mkdir(parents=True, exist_ok=True)
    rows.write_parquet(Path(lake) / "attempts.parquet")
    reporting.say(f"read {plural(rows.height, 'row')} of {sources[0]} into {lake}")


def _read_table(path: Path) -> pl.DataFrame:
    import polars as pl
    import polars.selectors as cs

    try:
        if path.suffix in (".csv", ".tsv"):
            with path.open(encoding="utf-8-sig") as file:
                separator = max(",\t;|", key=file.readline().count)
            texts = pl.read_csv(path, separator=separator, infer_schema=False)
            rows = texts.select(_parse(column) for column in texts)
        else:
            read = pl.read_json if path.suffix == ".json" else pl.read_ndjson
            rows = read(path, infer_schema_length=None)
    except (pl.exceptions.PolarsError, OSError, UnicodeError) as error:
        hint = "scorelake ingest generic reads other files; docs/ingest.md lists the logs that are recognized"
        raise DataError(
            f"is neither a log that is recognized nor a table: {error}", where=str(path), hint=hint
        ) from None
    return rows.select(~(cs.nested() | cs.binary()))


def _parse(texts: pl.Series) -> pl.Series:
    """Convert a column of numbers or booleans; names such as 007 stay as they are."""
    import polars as pl

    for kind in (pl.Int64, pl.Float64):
        numbers = texts.cast(kind, strict=False)
        if numbers.null_count() == texts.null_count() and not texts.str.contains(r"^[+-]?0\d").any():
            return numbers
    if texts.str.to_lowercase().is_in(["true", "false"]).all():
        return texts.str.to_lowercase() == "true"
    return texts


def _configure(lake: str, out: str) -> Path | None:
    """Return the config to use: one that is there, none for a lake that describes itself, or else an inferred one."""
    from scorelake import settings
    from scorelake.lake import description, infer

    if find_config(lake) is not None or description.described(lake, settings.PATIENCE):
        return None  # `load_settings` finds and names it
    config = Path(CONFIG if is_remote(out) else f"{out.rstrip('/')}.toml")
    if config.is_file() and config.read_text().startswith(infer.config_head(lake)):
        reporting.say(f"using {config}, which was inferred from {lake} before; remove it to infer the columns again")
        return config
    write_inferred_config(lake, config)
    return config
