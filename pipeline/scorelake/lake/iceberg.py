"""An Iceberg table as a listing: the files of its current snapshot, as its metadata and manifests name them.

The only module that knows pyiceberg, which reads metadata and nothing else, through our own way to files: so a table
may have been moved, and credentials, patience and errors are those of all our requests.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scorelake.errors import DataError, LakeError, ScorelakeError, StorageError, UsageError
from scorelake.lake.entries import Entry, spelled
from scorelake.settings import Storage
from scorelake.storage.disk import is_remote

METADATA, CATALOG = ".metadata.json", "iceberg:"
HINT = "metadata/version-hint.text"
HOW = "TABLE/metadata/NAME.metadata.json, or iceberg:CATALOG/NAMESPACE.TABLE"


def hinted(text: str) -> str:
    """The metadata file that a version-hint.text names, beside which it lies."""
    told = text.strip()
    if told.endswith(METADATA):
        return told
    return f"v{told}{METADATA}" if told.isdecimal() else f"{told}{METADATA}"


def is_named(location: str) -> bool:
    """Whether a location is a table's metadata file, or a table of a catalog."""
    return location.endswith(METADATA) or location.startswith(CATALOG)


def entries(location: str, storage: Storage) -> tuple[str, list[Entry]]:
    """Where the table lies, and what its current snapshot names."""
    with _telling(location):
        where = _in_catalog(location) if location.startswith(CATALOG) else location
        files = _Files(storage)
        metadata = _parsed(files.read(where), where)
        files.moved = (_plain(metadata.location), _home(where, metadata.location))
        return files.moved[1], list(_named(_table(metadata, where, files), files))


@contextmanager
def _telling(location: str) -> Iterator[None]:
    """Whatever the library raises, as an error of ours."""
    try:
        yield
    except ScorelakeError:
        raise
    except ImportError as error:
        raise UsageError(
            f"an Iceberg table needs a package that is not installed: {error.name or error}",
            where=location,
            hint="pip install 'scorelake[iceberg]'",
        ) from None
    except FileNotFoundError as error:
        raise LakeError(
            f"no such file: {error.filename or error}",
            where=location,
            hint=f"name the table's current metadata: {HOW}",
        ) from None
    except PermissionError:
        raise
    except Exception as error:
        told = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(
            f"the metadata of this Iceberg table cannot be read: {told}",
            where=location,
            hint="mend the table, or export its current rows to Parquet files and score those",
        ) from None


def _in_catalog(location: str) -> str:
    """The metadata file of a table by its name in a catalog that the environment or ~/.pyiceberg.yaml describes."""
    name, _, table = location.removeprefix(CATALOG).partition("/")
    if not name or not table:
        raise UsageError("no such table", where=location, hint=HOW)
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - an extra
    from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415

    try:
        return str(load_catalog(name).load_table(table).metadata_location)
    except NoSuchTableError:
        raise LakeError("the catalog has no such table", where=location, hint=HOW) from None
    except Exception as error:
        told = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise StorageError(
            f"the catalog {name} cannot be asked: {told}",
            where=location,
            hint="describe it in ~/.pyiceberg.yaml or in PYICEBERG_CATALOG__... variables",
        ) from None


def _plain(location: str) -> str:
    """An address as we write it: a path on a disk, s3:// for Amazon's."""
    location = re.sub(r"^s3[an]://", "s3://", location)
    return re.sub(r"^file:(//)?(?=/)", "", location).rstrip("/")


def _home(where: str, location: str) -> str:
    """The table's folder: around the metadata that was given, wherever the table was when it was written."""
    above, _, folder = _plain(where).rpartition("/")[0].rpartition("/")
    return above if folder == "metadata" and above else _plain(location)


class _Files:
    """Whole files by the names that metadata calls them; the smaller part of what pyiceberg asks of a file system."""

    def __init__(self, storage: Storage) -> None:
        self.storage, self.moved = storage, ("", "")

    def place(self, location: str) -> str:
        """Where a file is now that was somewhere in the table when the metadata was written."""
        before, now = self.moved
        plain = _plain(location)
        return f"{now}/{plain[len(before) + 1 :]}" if before and plain.startswith(f"{before}/") else plain

    def read(self, location: str) -> bytes:
        place = self.place(location)
        if not is_remote(place):
            return Path(place).read_bytes()
        from scorelake.storage.objects import Objects  # noqa: PLC0415 - the library of object storage is loaded where it is used

        folder, _, name = place.rpartition("/")
        store = Objects(folder, self.storage)
        found = store.find(name)
        if found is None:
            raise FileNotFoundError(f"no such object: {place}")
        return store.read(found, 0, found.size)


def _parsed(text: bytes, where: str) -> Any:
    from pyiceberg.serializers import FromByteStream  # noqa: PLC0415 - an extra

    return FromByteStream.table_metadata(io.BytesIO(text), compression=_compression(where))


def _compression(where: str) -> Any:
    from pyiceberg.serializers import Compressor  # noqa: PLC0415

    return Compressor.get_compressor(where)


def _table(metadata: Any, where: str, files: _Files) -> Any:
    """A table of pyiceberg's over our files."""
    from pyiceberg.catalog.noop import NoopCatalog  # noqa: PLC0415
    from pyiceberg.io import FileIO, InputFile, OutputFile  # noqa: PLC0415
    from pyiceberg.table import StaticTable  # noqa: PLC0415

    class Input(InputFile):
        def __len__(self) -> int:
            return len(files.read(self.location))

        def exists(self) -> bool:
            return True

        def open(self, seekable: bool = True) -> Any:
            return io.BytesIO(files.read(self.location))

    class Reading(FileIO):
        def new_input(self, location: str) -> InputFile:
            return Input(location)

        def new_output(self, location: str) -> OutputFile:
            raise NotImplementedError("nothing is written here")

        def delete(self, location: Any) -> None:
            raise NotImplementedError("nothing is deleted here")

    return StaticTable(
        identifier=("lake", "table"),
        metadata=metadata,
        metadata_location=where,
        io=Reading(),
        catalog=NoopCatalog(""),
    )


def _named(table: Any, files: _Files) -> Iterator[Entry]:
    schema, specs, home = table.schema(), table.specs(), files.moved[1]
    _refuse_aliases(table, home)
    values = {field.name: spelled(getattr(field, "initial_default", None)) for field in schema.fields}
    ids = {field.name: field.field_id for field in schema.fields}
    for task in table.scan().plan_files():
        file = task.file
        place = files.place(file.file_path)
        if not place.startswith(f"{home}/") or ".." in place.split("/"):
            raise DataError(
                f"this Iceberg table has a file outside of its folder: {place}",
                where=home,
                hint="export its current rows to Parquet files, and score those",
            )
        if str(getattr(file.file_format, "value", file.file_format)).upper() != "PARQUET":
            raise DataError(f"a file of this Iceberg table is {file.file_format}, not Parquet: {place}", where=home)
        if task.delete_files:
            raise DataError(
                "this Iceberg table has delete files: rows that are deleted are still in its files",
                where=home,
                hint="rewrite them (CALL system.rewrite_data_files in Spark), or export its rows to Parquet files",
            )
        partition = {
            schema.find_column_name(part.source_id): spelled(file.partition[i])
            for i, part in enumerate(specs[file.spec_id].fields)
            if str(part.transform) == "identity"
        }
        told = values | {name: value for name, value in partition.items() if name in values}
        yield Entry(place[len(home) + 1 :], file.file_size_in_bytes, told, ids)


def _refuse_aliases(table: Any, home: str) -> None:
    """Files without numbers of columns go by names, which must be one for each column."""
    mapping = table.name_mapping()
    if mapping is not None and any(len(field.names) > 1 for field in mapping.root):
        raise DataError(
            "this Iceberg table gives one column several names (schema.name-mapping.default)",
            where=home,
            hint="export its current rows to Parquet files, and score those",
        )
