"""Logs: one line per event, text or JSON, without injected line breaks and without secrets."""

import logging
import os
import re
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog
from django.db.utils import OperationalError

Event = MutableMapping[str, Any]

SECRET_NAME = re.compile(
    r"password|secret|token(?!s)|api_?key|authorization|cookie|credential", re.IGNORECASE
)
SECRET_VALUE = re.compile(
    r"(?i)\b(bearer|token)\s+[\w.~+/=-]{8,}"  # a header
    r"|://[^/\s:@]*:[^@\s]+@"  # a URL with a password
    r"|\bsk-[\w-]{8,}|\b[0-9a-f]{64}\b"  # a key of a provider, one of ours
)
CONTROL = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
HIDDEN = "[hidden]"
QUIET = (
    *("httpx2", "httpcore2", "openai", "asyncio", "urllib3", "sentence_transformers", "amqp"),
    "torch",
    *(
        "celery.beat",
        "celery.worker.strategy",
        "celery.app.trace",
        "celery.worker.request",
    ),  # the sweepers, every 5 s
)


class OutageFilter(logging.Filter):
    """Logs a database outage as one line per task, not a traceback every few seconds."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let the record through, without the traceback."""
        if record.exc_info and isinstance(record.exc_info[1], OperationalError):
            record.exc_info = record.exc_text = None
        return True


def build_logging_config(log_format: str, level: str) -> dict[str, Any]:
    """The value of Django's LOGGING. `log_format` is `json` or `text`."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": _build_processors(),
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    *_build_renderers(as_json=log_format == "json"),
                ],
            }
        },
        "filters": {"outage": {"()": OutageFilter}},
        "handlers": {
            "console": {
                "class": "logging.StreamHandler",
                "formatter": "line",
                "stream": "ext://sys.stderr",
            }
        },
        "root": {"handlers": ["console"], "level": level},
        "loggers": {
            "django": {"handlers": [], "level": "INFO", "propagate": True},
            "django.server": {"handlers": [], "level": "WARNING", "propagate": True},
            **{name: {"level": "WARNING"} for name in QUIET},
            "celery.app.trace": {"level": "WARNING", "filters": ["outage"]},
        },
    }


def configure_structlog() -> None:
    """Let structlog's loggers write through the standard ones."""
    structlog.configure(
        processors=[*_build_processors(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def hide_secrets(_logger: object, _method: str, event: Event) -> Event:
    """Hide values whose name or format is that of a secret."""
    for name, value in event.items():
        if SECRET_NAME.search(name):
            event[name] = HIDDEN
        elif isinstance(value, str):
            event[name] = SECRET_VALUE.sub(HIDDEN, value)
    return event


def escape_line_breaks(_logger: object, _method: str, event: Event) -> Event:
    """Escape line breaks and control characters, so that input cannot forge a log line."""
    for name, value in event.items():
        if name == "exception":
            event[name] = "\n".join(f"    {line}" for line in str(value).splitlines())
        elif isinstance(value, str):
            event[name] = CONTROL.sub(_escape, value)
    return event


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _build_processors() -> list[Any]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.stdlib.ExtraAdder(allow=("run_id", "document_id", "user_id", "chat_id")),
        structlog.processors.TimeStamper(fmt="iso" if _is_json() else "%H:%M:%S", utc=_is_json()),
        structlog.processors.format_exc_info,
        structlog.processors.UnicodeDecoder(),
        hide_secrets,
        escape_line_breaks,
    ]


def _build_renderers(*, as_json: bool) -> list[Any]:
    if as_json:
        return [_add_process, structlog.processors.JSONRenderer(ensure_ascii=False)]
    return [
        structlog.dev.ConsoleRenderer(
            colors=_is_coloured(),
            force_colors=_is_coloured(),
            pad_event_to=0,
            pad_level=False,
            exception_formatter=structlog.dev.plain_traceback,  # the rich one prints local values
        )
    ]


def _add_process(_logger: object, _method: str, event: Event) -> Event:
    event["process"] = os.environ.get("NURA_PROCESS", "command")
    return event


def _is_json() -> bool:
    return os.environ.get("NURA_LOG_FORMAT", "") == "json" and not sys.stderr.isatty()


def _is_coloured() -> bool:
    return sys.stderr.isatty() or "NURA_LOG_COLOUR" in os.environ
