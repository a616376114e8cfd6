"""`manage.py doctor`: what is configured, reachable and missing. It never prints secrets."""

import hashlib
import importlib.util
import json
import secrets
import shutil
import socket
import ssl
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpcore2
from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.management.base import BaseCommand
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from redis.exceptions import RedisError

from documents import renewal, spaces
from documents.connected.choice import knows_korean, list_main_models, read_config
from documents.outgoing import AddressForbidden, AnswerTooLarge, OutgoingClient
from documents.parsers.base import Confinement
from documents.parsers.formats import PYMUPDF
from documents.parsers.pdf import ocr
from documents.parsers.sandbox import jail
from documents.sources.services import count_sources
from jobs import replica
from nura import __version__, housekeeping
from nura.backup.integrity import list_lost_keys
from nura.embedded import models, session, spawn
from nura.health import WORKERS, check_redis_and_workers, get_client
from rag.adapters.sentence_transformers import find_embedded_model
from rag.config import Endpoint, RagConfig
from rag.errors import EngineUnavailable, NuraError
from rag.tokenize.korean import DictionaryUnreadable, read_dictionary

MODEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Digest of the official `model.safetensors` of all-MiniLM-L6-v2."""

LLM_SECONDS = 3.0
WITHOUT_EMBEDDER = "words alone are searched, and uploads wait"
MAX_LIST_BYTES = 2**20
MAX_NAMED_MODELS = 5
LOW_DISK_BYTES = 1024**3
MIN_DISK_BYTES = 100 * 1024**2
MAX_REPLICA_LAG_BYTES = 64 * 1024**2
"""Log not yet replayed from which a replica counts as lagging."""


class State(StrEnum):
    """`fail`: the product cannot serve."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    name: str
    state: State
    detail: str


class Command(BaseCommand):
    """Prints the findings; exit status 1 if the product cannot serve."""

    help = "Say what is configured, reachable and missing."
    requires_system_checks: list[str] = []

    def handle(self, *_args: Any, **_options: Any) -> None:
        """One line per finding."""
        styles = {
            State.OK: self.style.SUCCESS,
            State.WARN: self.style.WARNING,
            State.FAIL: self.style.ERROR,
        }
        failed = False
        for finding in examine_all():
            failed = failed or finding.state is State.FAIL
            mark = styles[finding.state](f"{finding.state:<4}")
            self.stdout.write(f"{mark}  {finding.name:<16}  {finding.detail}")
        if failed:
            sys.exit(1)


def examine_all() -> Iterator[Finding]:
    """All findings, quick ones first."""
    yield Finding("Nura", State.OK, __version__)
    yield check_user()
    yield check_data_folder()
    yield from check_bucket()
    yield from check_database()
    yield from check_replica()
    yield from check_redis()
    yield from check_workers()
    yield from check_connected_models()
    yield check_embedder()
    yield from check_models_process()
    yield from check_embedding_space()
    yield check_morphemes()
    yield from check_terms()
    yield check_sandbox()
    yield check_text_recognition()
    yield from check_pdf_reader()
    yield from check_sources()
    yield from check_storage()


def check_sources() -> Iterator[Finding]:
    """Sources that failed or wait for approval, and allowed folders that are missing."""
    try:
        counts = count_sources()
    except DatabaseError:
        return  # reported above
    if not sum(counts.values()) and not settings.SOURCE_FOLDERS:
        return
    has_problem = counts["failed"] or counts["held"]
    summary = ", ".join(f"{number} {state}" for state, number in counts.items() if number) or "none"
    yield Finding("sources", State.WARN if has_problem else State.OK, summary)
    for folder in settings.SOURCE_FOLDERS:
        if not Path(folder).is_dir():
            problem = f"{folder} in NURA_SOURCE_FOLDERS is not there or cannot be read"
            yield Finding("sources", State.WARN, problem)


def check_bucket() -> Iterator[Finding]:
    """Whether files can be stored in the bucket of `NURA_FILES_URL`, and deleted."""
    if not settings.FILES_URL:
        return
    try:
        name = default_storage.save(f"doctor/{secrets.token_hex(8)}", ContentFile(b"ready"))
        default_storage.delete(name)
    except OSError as error:
        yield Finding("bucket", State.FAIL, f"NURA_FILES_URL: {error.strerror}")
    else:
        yield Finding("bucket", State.OK, settings.FILES_URL)


def check_storage() -> Iterator[Finding]:
    """Storage in use, and what is bloated, nearly full or overdue."""
    try:
        storage = housekeeping.measure_storage()
    except (DatabaseError, RedisError):
        return  # reported above
    format_size = housekeeping.describe_bytes
    largest = ", ".join(
        f"{one.name} {format_size(one.rows_bytes)} + {format_size(one.index_bytes)} of indexes"
        for one in storage.tables[:3]
    )
    yield Finding("database size", State.OK, f"{format_size(storage.database)} ({largest})")
    for table in storage.tables:
        if table.is_bloated:
            problem = (
                f"{table.name} has {table.dead_rows:,} dead rows: VACUUM (ANALYZE) {table.name}"
            )
            yield Finding("database size", State.WARN, problem)
    limit, share = storage.redis_limit, housekeeping.REDIS_SHARE
    state = State.WARN if limit and storage.redis > share * limit else State.OK
    limit_words = f" of {format_size(limit)}" if limit else ""
    yield Finding(
        "redis size",
        state,
        f"{format_size(storage.redis)}{limit_words}, {storage.redis_keys:,} keys, "
        f"{storage.run_logs:,} run logs",
    )
    yield Finding(
        "files",
        State.OK,
        f"{format_size(storage.files)}, page pictures {format_size(storage.cache)} "
        f"(at most {settings.CACHE_MB} MB), logs {format_size(storage.logs)}",
    )
    overdue = storage.overdue_deletions
    yield Finding(
        "deletions",
        State.WARN if overdue else State.OK,
        f"{overdue} are late: is beat running? `manage.py purge` does them now"
        if overdue
        else f"{storage.deletions} wait for the end of their retention",
    )


def check_user() -> Finding:
    """Whether `up` runs, or would run, without root's privileges."""
    try:
        choice = spawn.choose_user(settings.RUN_AS, settings.BASE_DIR, settings.DATA_DIR)
    except RuntimeError as error:
        return Finding("user", State.FAIL, str(error))
    if choice.reason:
        return Finding("user", State.WARN, f"root: {choice.reason}")
    name = choice.account.name if choice.account else spawn.describe_user()
    return Finding("user", State.OK, f"{name}, without privileges")


def check_data_folder() -> Finding:
    """Whether the data folder is private, writable and has room."""
    folder = settings.DATA_DIR
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding("data folder", State.FAIL, f"{folder} is not writable: {error.strerror}")
    mode = folder.stat().st_mode & 0o777
    if mode & 0o067:  # the group may pass through if the database has another user
        detail = f"{folder} is open to others (mode {mode:o}): chmod 700"
        return Finding("data folder", State.WARN, detail)
    state = (
        State.FAIL if free < MIN_DISK_BYTES else State.WARN if free < LOW_DISK_BYTES else State.OK
    )
    return Finding("data folder", state, f"{folder}, {free / 1024**3:.1f} GB free")


def check_database() -> Iterator[Finding]:
    """Whether the database is reachable, has pgvector and is migrated."""
    kind = "embedded" if settings.EMBEDDED_POSTGRES else "DATABASE_URL"
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('server_version')")
            version = cursor.fetchone()[0]
            cursor.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
            extension = cursor.fetchone()
            cursor.execute("SELECT rolname, rolsuper FROM pg_roles WHERE rolname = current_user")
            role, is_superuser = cursor.fetchone()
        executor = MigrationExecutor(connection)
        missing = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    except DatabaseError as error:
        yield Finding("database", State.FAIL, f"{kind}: not reachable ({type(error).__name__})")
        return
    detail = f"{kind}: Postgres {version}, role {role}"
    if is_superuser:
        yield Finding("database", State.WARN, f"{detail} is a superuser: an ordinary one will do")
    else:
        yield Finding("database", State.OK, f"{detail} without superuser")
    if extension:
        yield Finding("pgvector", State.OK, extension[0])
    else:
        state = State.WARN if missing else State.FAIL  # the first migration makes it
        yield Finding("pgvector", state, "the extension is not there: CREATE EXTENSION vector")
    if missing:
        yield Finding("migrations", State.WARN, f"{missing} not applied yet; `up` applies them")


def check_replica() -> Iterator[Finding]:
    """Whether the replica, if any, follows. If not, the primary is read."""
    if not replica.has_replica():
        return
    try:
        state = replica.read_replica_state()
        behind = max(0, replica.read_primary_position() - state.position)
    except DatabaseError as error:
        detail = (
            f"DATABASE_REPLICA_URL: not reachable ({type(error).__name__}); the primary is read"
        )
        yield Finding("replica", State.WARN, detail)
        return
    if not state.is_replica:
        detail = "DATABASE_REPLICA_URL: it follows nobody (promoted?); the primary is read"
        yield Finding("replica", State.WARN, detail)
        return
    is_far = behind > MAX_REPLICA_LAG_BYTES
    detail = f"DATABASE_REPLICA_URL: {behind / 1024**2:.1f} MB behind"
    yield Finding("replica", State.WARN if is_far else State.OK, detail)


def check_redis() -> Iterator[Finding]:
    """Whether Redis is reachable, evicts nothing and persists."""
    kind = "embedded" if settings.EMBEDDED_REDIS else "REDIS_URL"
    try:
        version = cast("dict[str, Any]", get_client().info("server"))["redis_version"]
    except RedisError as error:
        yield Finding("redis", State.FAIL, f"{kind}: not reachable ({type(error).__name__})")
        return
    if urlsplit(settings.REDIS_URL).password or "password=" in settings.REDIS_URL:
        yield Finding("redis", State.OK, f"{kind}: Redis {version}, with a password")
    else:
        yield Finding("redis", State.WARN, f"{kind}: Redis {version}, without a password")
    for name, wanted in (("maxmemory-policy", "noeviction"), ("appendonly", "yes")):
        yield _check_redis_setting(name, wanted)


def _check_redis_setting(name: str, expected: str) -> Finding:
    try:
        value = cast("dict[str, str]", get_client().config_get(name)).get(name, "unknown")
    except RedisError:
        return Finding("redis", State.WARN, f"{name} may not be read; it should be {expected}")
    state = State.OK if value == expected else State.WARN
    return Finding(
        "redis", state, f"{name} {value}" + ("" if value == expected else f", not {expected}")
    )


def check_workers() -> Iterator[Finding]:
    """Whether the workers are alive. It is no fault if the product is not running."""
    alive = check_redis_and_workers()
    stopped = settings.EMBEDDED_REDIS and session.read_holder(settings.DATA_DIR) in {
        "",
        session.COMMAND,
    }
    for name in WORKERS:
        if alive[name]:
            yield Finding(f"{name} worker", State.OK, "alive")
        elif stopped:
            yield Finding(f"{name} worker", State.WARN, "the product is not running: make run")
        else:
            yield Finding(f"{name} worker", State.FAIL, "no sign of life")


def check_llm(name: str, endpoint: Endpoint | None) -> Finding:
    """Whether the endpoint has the model. Having none is fine: answers are then passages."""
    if endpoint is None:
        detail = (
            "none configured: answers are extracts of the documents; connect one in the "
            "administration under Models, or name it in NURA_LLM_BASE_URL"
        )
        return Finding(name, State.OK, detail)
    address = f"{endpoint.model} at {_hide_secrets(endpoint.base_url)}"
    listing = _list_models(endpoint)
    if refusal := _describe_refusal(endpoint, listing):
        return Finding(name, State.FAIL, f"{address}: {refusal}")
    if problem := _describe_lack(endpoint.model, listing):
        return Finding(name, State.WARN, f"{address}: {problem}")
    if listing.status == 200:
        return Finding(name, State.OK, address)
    detail = f"{address}: HTTP {listing.status} for its list of models; most addresses end in /v1"
    return Finding(name, State.WARN, detail)


def check_helper(name: str, model: str, endpoint: Endpoint, fallback: str) -> Finding:
    """Whether an auxiliary model responds; `fallback`: what happens if it does not.

    Many servers of such models list none, so any response is enough.
    """
    address = f"{model} at {_hide_secrets(endpoint.base_url)}"
    listing = _list_models(endpoint)
    if refusal := _describe_refusal(endpoint, listing):
        return Finding(name, State.WARN, f"{address}: {refusal}; until then {fallback}")
    if problem := _describe_lack(model, listing):
        return Finding(name, State.WARN, f"{address}: {problem}")
    return Finding(name, State.OK, address)


def _describe_refusal(endpoint: Endpoint, listing: "_ListedModels") -> str:
    """Why the endpoint cannot be used; empty if it can."""
    if listing.status in {401, 403}:
        reason = "the key is refused" if endpoint.api_key else "it wants a key"
        return f"{reason} (HTTP {listing.status})"
    return "" if listing.status else f"not reachable: {listing.failure}"


def _describe_lack(model: str, listing: "_ListedModels") -> str:
    if listing.models and not {model, f"{model}:latest"} & set(listing.models):
        return f"its list has no such model, but {', '.join(listing.models[:MAX_NAMED_MODELS])}"
    return ""


def find_config() -> RagConfig:
    """The configuration in use; without the database, that of the environment."""
    try:
        return read_config()
    except DatabaseError:  # reported above, or not migrated yet
        return settings.RAG


def check_connected_models() -> Iterator[Finding]:
    """The models that write answers, with where each is configured; other models; lost keys."""
    config = find_config()
    try:
        main_models = list_main_models()
        lost_keys = list_lost_keys()
    except DatabaseError:  # reported above, or not migrated yet
        main_models, lost_keys = [], []
    if not main_models:
        yield check_llm("LLM", config.llm)
    for number, model in enumerate(main_models):
        finding = (check_optional_llm if number else check_llm)("LLM", model.endpoint)
        source = "environment" if model.is_of_environment else "administration, Models"
        suffix = (
            f", {model.id}{', default' if model.is_default else ''}" if len(main_models) > 1 else ""
        )
        yield replace(finding, detail=f"{finding.detail} ({source}{suffix})")
    if config.light_llm:
        yield check_optional_llm("light LLM", config.light_llm)
    if config.vision:
        yield check_optional_llm("vision model", config.vision)
    if config.reranker_endpoint:
        fallback = "words and vectors rank the passages"
        yield check_helper("reranker", config.reranker_model, config.reranker_endpoint, fallback)
    if config.verifier_endpoint:
        fallback = "rules check sentences"
        yield check_helper("verifier", config.verifier_model, config.verifier_endpoint, fallback)
    for name in lost_keys:
        problem = f"the key of {name} was sealed with another SECRET_KEY: enter it again"
        yield Finding("keys", State.WARN, problem)


def check_optional_llm(name: str, endpoint: Endpoint) -> Finding:
    """Like `check_llm`, but only warns: the product serves without this model."""
    finding = check_llm(name, endpoint)
    return replace(finding, state=State.WARN) if finding.state is State.FAIL else finding


def check_embedder() -> Finding:
    """Which embedder is used, and whether the bundled model's file is the official one."""
    config = find_config()
    if endpoint := config.embedding_endpoint:
        return check_helper("embedder", endpoint.model, endpoint, WITHOUT_EMBEDDER)
    if config.embedding_model:
        return Finding("embedder", State.OK, f"{config.embedding_model} on this machine")
    try:
        digest = _hash_file(find_embedded_model() / "model.safetensors")
    except (OSError, EngineUnavailable) as error:
        return Finding("embedder", State.FAIL, f"the embedded model is missing: {error}")
    if digest != MODEL_SHA256:
        return Finding("embedder", State.FAIL, "model.safetensors is not the official file")
    return Finding("embedder", State.OK, "all-MiniLM-L6-v2 (English), checksum right")


def check_models_process() -> Iterator[Finding]:
    """Whether the process with the local models serves, and what it has loaded."""
    if not find_config().needs_models_process:
        return
    missing = [
        name
        for name in ("torch", "sentence_transformers")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        detail = f"not installed: {', '.join(missing)}; pip install -r requirements/models.txt"
        yield Finding("models", State.FAIL, detail)
        return
    health = models.read_health(settings.RAG.models_socket)
    if health is None:
        detail = f"the process is not running; until then {WITHOUT_EMBEDDER}"
        yield Finding("models", State.WARN, detail)
        return
    words = {"ready": f"ready on {health['device']}"}
    states = [f"{name} {words.get(state, state)}" for name, state in health["models"].items()]
    failed = set(health["models"].values()) - {"ready", "loading"}
    yield Finding(
        "models", State.WARN if failed else State.OK, ", ".join(states) or "none loaded yet"
    )


def check_embedding_space() -> Iterator[Finding]:
    """Which embedding space is searched, and whether the settings name another."""
    try:
        space, pending = spaces.get_active_space(), spaces.describe_pending_reindex()
        current, graph = spaces.get_space_in_use(), spaces.describe_pending_graph()
    except DatabaseError:  # reported above, or not migrated yet
        return
    if pending:
        yield Finding("embedding space", State.WARN, pending)
    elif space:
        yield Finding("embedding space", State.OK, f"{space}, {', '.join(space.languages)}")
    if graph:
        yield Finding("graph of vectors", State.WARN, graph)
    languages = frozenset(current.space.languages) if current.space else frozenset[str]()
    if settings.LANGUAGE_CODE == "ko" and not knows_korean(current.config, languages):
        detail = (
            "the embedder knows no Korean: words alone find Korean passages; choose one that does, "
            "such as bge-m3, in the administration under Models"
        )
        yield Finding("Korean search", State.WARN, detail)


def check_terms() -> Iterator[Finding]:
    """Whether documents still have terms made by an earlier version."""
    try:
        count = renewal.list_outdated_documents().count()
    except DatabaseError:  # reported above, or not migrated yet
        return
    if count:
        detail = (
            f"{count} documents have the terms of an earlier version: manage.py reindex --terms"
        )
        yield Finding("terms", State.WARN, detail)
    else:
        yield Finding("terms", State.OK, "all documents have the present ones")


def check_morphemes() -> Finding:
    """Whether the Korean analyser, its model and the user dictionary are usable."""
    missing = [
        name for name in ("kiwipiepy", "kiwipiepy_model") if not importlib.util.find_spec(name)
    ]
    if missing:
        return Finding("Kiwi", State.FAIL, f"not installed: {', '.join(missing)}")
    path = settings.RAG.user_dictionary
    try:
        dictionary = f", {len(read_dictionary(path))} words of {path}" if path else ""
    except DictionaryUnreadable as error:
        return Finding("Kiwi", State.FAIL, f"the user dictionary: {error}")
    return Finding("Kiwi", State.OK, f"installed with its model{dictionary}")


def check_sandbox() -> Finding:
    """How far the kernel confines the processes that read files."""
    grants = jail.find_grants()
    detail = ", ".join(
        [
            f"Landlock {grants.landlock_version}" if grants.landlock_version else "no Landlock",
            "seccomp" if grants.seccomp else "no seccomp",
        ]
    )
    if grants.is_sufficient:
        return Finding("sandbox", State.OK, detail)
    if settings.READING_LIMITS.confinement == Confinement.BEST:
        return Finding("sandbox", State.WARN, f"{detail}: files are read all the same")
    return Finding("sandbox", State.FAIL, f"{detail}: no file is read; see NURA_SANDBOX")


def check_text_recognition() -> Finding:
    """Whether scanned pages can be read."""
    if not settings.READING_LIMITS.recognised_pages:
        return Finding("OCR", State.OK, "NURA_OCR_PAGES is 0: scanned pages are left out")
    if program := ocr.find_program():
        return Finding("OCR", State.OK, f"{program} with {' and '.join(ocr.LANGUAGES)}")
    missing = "no tesseract with Korean: scanned pages are left out"
    return Finding("OCR", State.WARN, f"{missing}; apt install tesseract-ocr tesseract-ocr-kor")


def check_pdf_reader() -> Iterator[Finding]:
    """Whether the PDF reader chosen instead of PDFium is installed."""
    if settings.PDF_READER == PYMUPDF:
        is_installed = importlib.util.find_spec("pymupdf")
        detail = (
            "PyMuPDF"
            if is_installed
            else "PyMuPDF is missing: pip install -r requirements/pymupdf.txt"
        )
        yield Finding("PDF reader", State.OK if is_installed else State.FAIL, detail)


@dataclass(frozen=True, slots=True)
class _ListedModels:
    """A server's list of models. `status` 0: no response, and `failure` says why."""

    status: int = 0
    models: tuple[str, ...] = ()
    failure: str = ""


def _list_models(endpoint: Endpoint) -> _ListedModels:
    """Request the list of models, within `LLM_SECONDS`. Redirects are not followed."""
    key = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    address = f"{endpoint.base_url.rstrip('/')}/models"
    client = OutgoingClient(max_bytes=MAX_LIST_BYTES, seconds=LLM_SECONDS, is_entered=True)
    try:
        with client, client.open("GET", address, dict(endpoint.headers) | key) as answer:
            names = _read_names(answer.read()) if answer.status == HTTPStatus.OK else ()
            return _ListedModels(answer.status, names)
    except AnswerTooLarge:
        return _ListedModels(HTTPStatus.OK)
    except AddressForbidden:
        return _ListedModels(failure="it is reserved for the machine itself and never asked")
    except NuraError as error:
        return _ListedModels(failure=_describe_failure(error))


def _describe_failure(error: BaseException) -> str:
    cause = error
    while inner := cause.__cause__ or cause.__context__:  # connection pools drop the cause
        cause = inner
    match cause:
        case TimeoutError() | httpcore2.TimeoutException():
            return f"no answer within {LLM_SECONDS:g} s"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted ({cause.verify_message})"
        case ssl.SSLError():
            return "it does not speak TLS: http:// instead of https://?"
        case socket.gaierror():
            return "no host has that name"
        case ConnectionRefusedError():
            return "nothing listens there"
    return type(cause).__name__


def _read_names(body: bytes) -> tuple[str, ...]:
    try:
        return tuple(str(model["id"]) for model in json.loads(body)["data"])
    except (ValueError, KeyError, TypeError):
        return ()


def _hide_secrets(url: str) -> str:
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
