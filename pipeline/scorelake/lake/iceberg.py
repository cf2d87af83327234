"""List the files of an Iceberg table with pyiceberg, which reads only metadata, through our own code."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import NDArray

from scorelake.errors import DataError, LakeError, StorageError, UsageError
from scorelake.lake.tables import EXPORT, deleted_rows, refuse_outside, table_errors
from scorelake.settings import Storage
from scorelake.storage.disk import first_line, read_bytes
from scorelake.storage.files import File, table_columns

METADATA, CATALOG = ".metadata.json", "iceberg:"
HINT = "metadata/version-hint.text"
USAGE = "TABLE/metadata/NAME.metadata.json, or iceberg:CATALOG/NAMESPACE.TABLE"


def hinted_path(text: bytes) -> str:
    """Return the metadata file that a version-hint.text names: a number, a name, or a file name."""
    hint = text.decode("utf-8", "replace").strip()
    name = f"v{hint}" if hint.isdecimal() else hint.removesuffix(METADATA)
    return f"metadata/{name}{METADATA}"


def table_files(location: str, storage: Storage) -> tuple[str, list[File]]:
    """Return the folder of a table, and the files of its current snapshot."""
    with table_errors(location, "Iceberg", "iceberg", USAGE):
        from pyiceberg.serializers import Compressor, FromByteStream  # noqa: PLC0415 - an extra

        where = _metadata_location(location) if location.startswith(CATALOG) else location
        data = read_bytes(_normalize(where), storage)
        metadata = FromByteStream.table_metadata(io.BytesIO(data), compression=Compressor.get_compressor(where))
        written_at = _normalize(metadata.location)
        parent, _, name = _normalize(where).rpartition("/")[0].rpartition("/")
        folder = parent if name == "metadata" and parent else written_at  # the table may have been moved

        def current(path: str) -> str:
            """Return where a file is now that was below `written_at` when the metadata was written."""
            plain = _normalize(path)
            return f"{folder}/{plain[len(written_at) + 1 :]}" if plain.startswith(f"{written_at}/") else plain

        def read(path: str) -> bytes:
            return read_bytes(current(path), storage)

        return folder, list(_files(_table(metadata, where, read), folder, current, read))


def _metadata_location(location: str) -> str:
    """Look up a table in a catalog, which is configured in the environment or in ~/.pyiceberg.yaml."""
    name, _, table = location.removeprefix(CATALOG).partition("/")
    if not name or not table:
        raise UsageError("not a table of a catalog", where=location, hint=USAGE)
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - an extra
    from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415

    try:
        return str(load_catalog(name).load_table(table).metadata_location)
    except NoSuchTableError:
        raise LakeError("the catalog has no such table", where=location, hint=USAGE) from None
    except Exception as error:
        what = f"the catalog {name} cannot be used: {first_line(error)}"
        hint = "configure it in ~/.pyiceberg.yaml or in PYICEBERG_CATALOG__... variables"
        raise StorageError(what, where=location, hint=hint) from None


def _normalize(location: str) -> str:
    """Return a path without file://, and s3:// instead of s3a:// and s3n://."""
    location = re.sub(r"^s3[an]://", "s3://", location)
    return re.sub(r"^file:(//)?(?=/)", "", location).rstrip("/")


def _table(metadata: Any, where: str, read: Callable[[str], bytes]) -> Any:
    """Return a pyiceberg table whose files are read by a function."""
    from pyiceberg.catalog.noop import NoopCatalog  # noqa: PLC0415
    from pyiceberg.io import FileIO, InputFile  # noqa: PLC0415
    from pyiceberg.table import StaticTable  # noqa: PLC0415

    class TableInput(InputFile):
        def __len__(self) -> int:
            return len(read(self.location))

        def exists(self) -> bool:
            return True

        def open(self, seekable: bool = True) -> Any:
            return io.BytesIO(read(self.location))

    class ReadOnlyIO(FileIO):
        new_output = delete = None  # type: ignore[assignment]

        def new_input(self, location: str) -> InputFile:
            return TableInput(location)

    return StaticTable(("lake", "table"), metadata, where, ReadOnlyIO(), NoopCatalog(""))


def _files(table: Any, folder: str, current: Callable[[str], str], read: Callable[[str], bytes]) -> Iterator[File]:
    deletions: dict[str, dict[str, NDArray[Any]]] = {}
    schema, specs, mapping = table.schema(), table.specs(), table.name_mapping()
    if mapping is not None and any(len(field.names) > 1 for field in mapping.root):
        what = "this Iceberg table gives one column several names (schema.name-mapping.default)"
        raise DataError(what, where=folder, hint=EXPORT)
    defaults = {field.name: getattr(field, "initial_default", None) for field in schema.fields}
    columns = {field.name: (field.name, field.field_id) for field in schema.fields}
    for task in table.scan().plan_files():
        file, path = task.file, current(task.file.file_path)
        refuse_outside(path.removeprefix(f"{folder}/"), folder, "Iceberg")
        if str(getattr(file.file_format, "value", file.file_format)).upper() != "PARQUET":
            raise DataError(f"a file of this Iceberg table is {file.file_format}, not Parquet: {path}", where=folder)
        for each in task.delete_files:
            if each.file_path not in deletions:
                deletions[each.file_path] = deleted_rows(read(each.file_path), each.file_format == "PUFFIN")
        deleted = [each[file.file_path] for each in deletions.values() if file.file_path in each]
        partition = {
            schema.find_column_name(part.source_id): file.partition[i]
            for i, part in enumerate(specs[file.spec_id].fields)
            if str(part.transform) == "identity"
        }
        values = defaults | {name: value for name, value in partition.items() if name in defaults}
        about = table_columns(values, columns, deleted)
        yield File(path[len(folder) + 1 :], file.file_size_in_bytes, 0, table=about)
