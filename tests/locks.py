"""What connections to the database wait for, so that a test can let two of them meet."""

from django.db import connection

WAITING = """
    SELECT EXISTS (SELECT FROM pg_locks
                    WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))
"""


def has_waiting() -> bool:
    """Whether another connection waits for what this one's transaction holds."""
    with connection.cursor() as cursor:
        cursor.execute(WAITING)
        return bool(cursor.fetchone()[0])
