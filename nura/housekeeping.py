"""Storage in use: database, Redis, files, caches and logs.

Used by `doctor`, `/metrics` and the administration. Files are counted one by one, so the result is
cached for a minute.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from django.conf import settings
from django.core.cache import cache
from django.db import connection
from django.utils import timezone
from redis.exceptions import RedisError

from documents.models import Deletion
from documents.quotas import count_all_bytes
from nura import __version__
from nura.health import get_client

CACHE_KEY, CACHE_SECONDS = f"nura:room:{__version__}", 60
"""With the version: nodes of two versions may run side by side and measure differently."""
MAX_TABLES = 8
"""Largest tables listed by name."""
MAX_DEAD_SHARE, MIN_DEAD_ROWS = 0.3, 10_000
"""With more dead rows a table counts as bloated: autovacuum does not keep up."""
REDIS_SHARE = 0.8
"""Share of its limit above which Redis is nearly full."""
RUN_LOGS = "nura:run:*"
SCANNED_AT_ONCE = 1000
OVERDUE = timedelta(hours=1)
"""A deletion due for this long counts as overdue."""

TABLES = """
    SELECT c.relname, pg_table_size(c.oid), pg_indexes_size(c.oid),
           greatest(c.reltuples, 0)::bigint, coalesce(s.n_dead_tup, 0)
      FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace
      LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
     WHERE c.relkind IN ('r', 'p') AND n.nspname = current_schema()
     ORDER BY pg_total_relation_size(c.oid) DESC
"""


@dataclass(frozen=True, slots=True)
class TableSize:
    """A table: bytes of its rows and of its indexes; how many rows, and how many dead ones."""

    name: str
    rows_bytes: int
    index_bytes: int
    rows: int
    dead_rows: int

    @property
    def is_bloated(self) -> bool:
        """Whether too many of its rows are dead."""
        total = self.rows + self.dead_rows
        return self.dead_rows >= MIN_DEAD_ROWS and self.dead_rows > MAX_DEAD_SHARE * total


@dataclass(frozen=True, slots=True)
class StorageUse:
    """Storage in bytes. `redis_limit` 0: none; `deletions`: number waiting to be erased."""

    database: int
    tables: tuple[TableSize, ...]
    redis: int
    redis_limit: int
    redis_keys: int
    run_logs: int
    files: int
    cache: int
    logs: int
    disk_free: int
    disk_total: int
    deletions: int
    overdue_deletions: int

    def list_parts(self) -> Iterator[tuple[str, int]]:
        """The parts by name, for gauges."""
        for name in ("database", "redis", "files", "cache", "logs"):
            yield name, getattr(self, name)


def measure_storage() -> StorageUse:
    """The storage in use, at most a minute old; measured now if nothing is cached."""
    try:
        cached = cache.get(CACHE_KEY)
        if cached is not None:
            return _to_storage_use(cached)
        storage = _measure_storage_now()
        cache.set(CACHE_KEY, asdict(storage), CACHE_SECONDS)
    except RedisError:
        return _measure_storage_now()
    return storage


def _to_storage_use(values: dict[str, Any]) -> StorageUse:
    tables = tuple(TableSize(**table) for table in values["tables"])
    return StorageUse(**values | {"tables": tables})


def _measure_storage_now() -> StorageUse:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        database = int(cursor.fetchone()[0])
        cursor.execute(TABLES)
        tables = tuple(TableSize(*row) for row in cursor.fetchall())
    data = Path(settings.DATA_DIR)
    disk = shutil.disk_usage(data)
    pending = Deletion.objects.filter(erased_at=None)
    return StorageUse(
        database=database,
        tables=tables[:MAX_TABLES],
        **_measure_redis(),
        files=_measure_files(),
        cache=_sum_folder(data / "cache"),
        logs=sum(path.stat().st_size for path in data.glob("*.log")),
        disk_free=disk.free,
        disk_total=disk.total,
        deletions=pending.count(),
        overdue_deletions=pending.filter(due_at__lt=timezone.now() - OVERDUE).count(),
    )


def _measure_redis() -> dict[str, int]:
    """Zeros if Redis is down, which other checks report."""
    try:
        memory = cast("dict[str, Any]", get_client().info("memory"))
        logs = sum(1 for _ in get_client().scan_iter(RUN_LOGS, SCANNED_AT_ONCE, "STREAM"))
        keys = cast("int", get_client().dbsize())
    except RedisError:
        return {"redis": 0, "redis_limit": 0, "redis_keys": 0, "run_logs": 0}
    return {
        "redis": int(memory["used_memory"]),
        "redis_limit": int(memory.get("maxmemory", 0)),
        "redis_keys": keys,
        "run_logs": logs,
    }


def _measure_files() -> int:
    """Bytes of stored files; in a bucket, of those the rows name."""
    if not settings.FILES_URL:
        return _sum_folder(Path(settings.MEDIA_ROOT))
    return count_all_bytes()


def _sum_folder(folder: Path) -> int:
    """Bytes of all files; ones that vanish meanwhile count as nothing."""
    total, folders = 0, [folder]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except FileNotFoundError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))
                continue
            try:
                total += entry.stat(follow_symlinks=False).st_size
            except FileNotFoundError:
                continue
    return total


def describe_bytes(size: int) -> str:
    """A size for people: "1.4 GB"."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit in {"B", "kB"} else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TB"
