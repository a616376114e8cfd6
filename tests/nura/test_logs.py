import json
import logging

import pytest
from django.db.utils import OperationalError

from nura import logs


@pytest.fixture(params=["text", "json"])
def written(request):
    """Writes one record the way the product does and gives the text."""
    formatter = logs.build_logging_config(request.param, "INFO")["formatters"]["line"]
    made = formatter["()"](
        foreign_pre_chain=formatter["foreign_pre_chain"], processors=formatter["processors"]
    )

    def write(message, *arguments, **more):
        record = logging.makeLogRecord(
            {"name": "a.b", "levelno": 20, "levelname": "INFO", "msg": message, "args": arguments}
            | more
        )
        return made.format(record)

    write.format = request.param
    return write


def test_a_task_without_its_database_is_one_line_and_other_errors_keep_their_traceback():
    def left(error):
        record = logging.makeLogRecord({"exc_info": (type(error), error, None)})
        assert logs.OutageFilter().filter(record)
        return record.exc_info

    assert left(OperationalError("away")) is None
    assert left(ValueError("ours")) is not None


@pytest.mark.parametrize("mark", ["\n", "\r", "\u2028", "\x1b[31m", "\x85"])
def test_text_from_outside_cannot_start_a_line(written, mark):
    line = written("name %s", f"x{mark}12:00 [error] forged")
    assert len(line.splitlines()) == 1
    assert "\x1b[31m" not in line


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdefgh12345678",
        "Token 182505f07fe5059d35f93747a52d9f68",
        "postgres://me:hunter2@host/db",
        "key sk-abcdefgh12345678",
        "182505f07fe5059d35f93747a52d9f68247e5f31b4402c6ba4e929126a466b35",
    ],
)
def test_secrets_are_blanked_by_their_form(written, text):
    line = written("sent %s", text)
    assert logs.HIDDEN in line
    for secret in ("abcdefgh12345678", "hunter2", "182505f07fe5059d"):
        assert secret not in line


def test_secrets_are_blanked_by_their_name():
    event = {"event": "x", "api_key": "1", "password": "2", "Cookie": "3", "user_id": "4"}
    event |= {"token": "5", "prompt_tokens": 6}
    hidden = logs.hide_secrets(None, "info", event)
    assert [hidden[name] for name in ("api_key", "password", "Cookie")] == [logs.HIDDEN] * 3
    assert (hidden["user_id"], hidden["token"]) == ("4", logs.HIDDEN)
    assert hidden["prompt_tokens"] == 6, "a count is no secret"


def test_an_exception_is_indented_and_shows_no_values_of_variables(written):
    def fail(text, secret):
        raise ValueError(text)

    try:
        fail("first\n12:00 [error] forged", secret="the-local-value")
    except ValueError as error:
        line = written("failed", exc_info=(type(error), error, error.__traceback__))
    shown = [part for part in line.splitlines() if "the-local-value" in part]
    assert all("fail(" in part for part in shown)  # the source line, not the value
    assert not any(part.startswith("12:00 [error]") for part in line.splitlines())
    assert "ValueError" in line


def test_json_is_one_object_a_line():
    formatter = logs.build_logging_config("json", "INFO")["formatters"]["line"]
    made = formatter["()"](
        foreign_pre_chain=formatter["foreign_pre_chain"], processors=formatter["processors"]
    )
    record = logging.makeLogRecord({"name": "a", "levelname": "INFO", "msg": "안녕"})
    assert json.loads(made.format(record))["event"] == "안녕"
