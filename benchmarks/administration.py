"""What administrators see of everybody: the overview and the lists, in three installations.

Ten, a thousand and 100,000 chats of a question and an answer each, by a thousand people in fifty
groups, in equal parts over the last 180 days: of the largest, 100,000 messages are of the ninety
days of the overview. Lists should stay about flat.
"""

import functools
import logging
from collections.abc import Callable
from pathlib import Path

from benchmarks import report
from benchmarks.scale import stock

SIZES = report.choose_size((10, 1_000, 100_000), quick=(10, 1_000))
"""Chats."""
PEOPLE, GROUPS, DAYS = 1_000, 50, 180
AIM_MS = 300
ROUNDS, WARMING = report.choose_size((8, 2), quick=(3, 1))
FOLDER = Path(__file__).parents[1] / "var" / "bench-administration"
PAGES = {
    "overview of 7 days": "",
    "overview of 90 days": "?days=90",
    "chats": "chats/chat/",
    "messages": "chats/message/",
    "feedback": "chats/feedback/",
    "runs": "chats/run/",
    "people": "auth/user/",
    "groups": "auth/group/",
    "libraries": "documents/library/",
    "documents": "documents/document/",
    "audit log": "documents/auditevent/",
    "unanswered": "unanswered/",
}

ROWS = (
    """
    INSERT INTO auth_user (username, password, first_name, last_name, email, is_active, is_staff,
                           is_superuser, date_joined)
    SELECT 'person' || number, '!', '', '', '', true, false, false, now()
      FROM generate_series(1, %(people)s) AS number
    """,
    "INSERT INTO auth_group (name) SELECT 'group' || n FROM generate_series(1, %(groups)s) AS n",
    """
    INSERT INTO auth_user_groups (user_id, group_id)
    SELECT person.id, team.id FROM auth_user person JOIN auth_group team
        ON team.name = 'group' || 1 + substr(person.username, 7)::int %% %(groups)s
     WHERE person.username LIKE 'person%%'
    """,
    """
    INSERT INTO chats_chat (id, owner_id, title, external_id, created_at, updated_at)
    SELECT md5('chat' || number)::uuid, person.id, '휴가 규정', '', moment, moment
      FROM generate_series(1, %(chats)s) AS number
      JOIN auth_user person ON person.username = 'person' || 1 + number %% %(people)s
     CROSS JOIN LATERAL (
           SELECT now() - number * interval '1 day' * %(days)s / %(chats)s) AS made(moment)
    """,
    """
    INSERT INTO chats_message (id, chat_id, role, content, status, mode, label, error_code,
                               error_params, question_type, reasoning, notices, usage, created_at)
    SELECT md5(side.role || chat.id)::uuid, chat.id, side.role, '연차는 며칠인가요?',
           'COMPLETED', '', side.label, '', '{}', '', '', '[]', side.usage, chat.created_at
      FROM chats_chat chat CROSS JOIN (VALUES
           ('user', '', NULL),
           ('assistant', 'documents',
            '{"model": "main", "prompt_tokens": 2000, "completion_tokens": 300}'::jsonb)
           ) AS side(role, label, usage)
    """,
    """
    INSERT INTO chats_run (id, owner_id, message_id, client_id, language, sampling, attempts,
                           created_at, ended_at, first_word_ms)
    SELECT md5('run' || answer.id)::uuid, chat.owner_id, answer.id, '', 'ko', '{}', 1,
           answer.created_at, answer.created_at, 500 + ascii(answer.id::text) * 20
      FROM chats_message answer JOIN chats_chat chat ON chat.id = answer.chat_id
     WHERE answer.role = 'assistant'
    """,
    """
    INSERT INTO chats_feedback (message_id, user_id, value, reason, updated_at)
    SELECT answer.id, chat.owner_id, 1, '', answer.created_at
      FROM chats_message answer JOIN chats_chat chat ON chat.id = answer.chat_id
     WHERE answer.role = 'assistant' AND answer.id::text < '2'
    """,
)


def main() -> None:
    """Make the installations, measure, and keep the figures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    figures = {}
    with stock.postgres(FOLDER, with_redis=True):
        from django.core.management import call_command

        logging.disable(logging.ERROR)  # a line for each request
        call_command("collectstatic", interactive=False, verbosity=0)
        for chats in SIZES:
            _stock(chats)
            figures[str(chats)] = report.time_in_turns(_list_ways(), rounds=ROUNDS, warming=WARMING)
    report.write("administration", {"aim_ms": AIM_MS, "ms": figures})
    report.table(
        "Median in ms by chats of the installation",
        ["", *(f"{chats:,}" for chats in SIZES)],
        [[name, *(found[name]["p50"] for found in figures.values())] for name in PAGES],
    )


def _stock(chats: int) -> None:
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.db import connection, transaction

    stock.use_database(f"administration_{chats}")
    call_command("migrate", verbosity=0)
    if User.objects.exists():
        return
    given = {"people": PEOPLE, "groups": GROUPS, "days": DAYS, "chats": chats}
    with connection.cursor() as cursor:
        with transaction.atomic():
            for statement in ROWS:
                cursor.execute(statement, given)
        cursor.execute("VACUUM (ANALYZE)")
    User.objects.create_superuser("admin", password="!")


def _list_ways() -> dict[str, Callable[[], object]]:
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.get(username="admin"))

    def get(path: str) -> None:
        response = client.get(f"/admin/{path}")
        if response.status_code != 200:
            raise RuntimeError(f"{path}: {response.status_code}")

    return {name: functools.partial(get, path) for name, path in PAGES.items()}


if __name__ == "__main__":
    main()
