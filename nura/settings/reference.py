"""What each setting is for, in words; `manage.py settings_reference` writes docs/settings.md.

Names, defaults and bounds come from the code that reads them (`env.DECLARED`); a test holds that
every variable read is described here, and that the files are what this module gives.
"""

from dataclasses import dataclass
from importlib import import_module

from nura.settings import env

RENAMED = {
    "NURA_PICTURES_MOST": "NURA_PICTURES_MAX",
    "NURA_PICTURES_MOST_RATIO": "NURA_PICTURES_MAX_ASPECT_RATIO",
    "NURA_PICTURES_LEAST_PIXELS": "NURA_PICTURES_MIN_PIXELS",
    "NURA_PICTURES_LEAST_VARIANCE": "NURA_PICTURES_MIN_VARIANCE",
    "NURA_PICTURES_LEAST_NONWHITE": "NURA_PICTURES_MIN_NONWHITE",
    "NURA_PICTURES_LEAST_EDGES": "NURA_PICTURES_MIN_EDGES",
    "NURA_OPEN_SIGNUP": "NURA_SIGNUP",
}
"""Old names of variables and their new ones; an old name works for one release."""
RENAMED_VALUES = {
    "NURA_OPEN_SIGNUP": dict.fromkeys(("1", "true", "yes", "on"), "open")
    | dict.fromkeys(("0", "false", "no", "off"), "invited")
}
"""What a value of an old name is called now, where that changed too."""


@dataclass(frozen=True, slots=True)
class SettingDescription:
    """One variable in words.

    `default` and `values` stand in for those of the code where they depend on the machine or on
    other variables. A setting with an `example` is listed in `.env.example`.
    """

    name: str
    purpose: str
    default: str = ""
    values: str = ""
    example: str = ""


@dataclass(frozen=True, slots=True)
class SettingGroup:
    """A section of related settings."""

    title: str
    settings: tuple[SettingDescription, ...]
    introduction: str = ""


_S = SettingDescription

GROUPS = (
    SettingGroup(
        "Language model",
        (
            _S(
                "NURA_LLM_BASE_URL",
                "Address of an OpenAI-compatible server, usually ending in `/v1`. If only a key "
                "or a model is set, OpenAI itself is used.",
                example="http://127.0.0.1:11434/v1",
            ),
            _S(
                "NURA_LLM_MODEL",
                "Name of the model on that server.",
                default="`gpt-4o-mini` if an address or a key is set",
                example="qwen3:8b",
            ),
            _S("NURA_LLM_API_KEY", "API key for that server.", example="sk-..."),
            _S("NURA_LLM_TEMPERATURE", "Sampling temperature of answers."),
            _S("NURA_LLM_MAX_TOKENS", "Longest answer, in tokens."),
            _S(
                "NURA_LLM_THINKING",
                "Let a reasoning model think before it answers. It may use up to 4,000 extra "
                "tokens for this, which delays the first word. A server whose chat template "
                "opens the thinking block itself needs a reasoning parser, such as vLLM's "
                "`--reasoning-parser`.",
            ),
            _S(
                "NURA_CONTEXT_TOKENS",
                "Length of the whole prompt, in tokens, or `auto`: what the server reports for "
                "the model, minus the answer, at most 16,000; 4,000 if the server reports "
                "nothing and the model is unknown.",
                values="`auto` or whole number, 1,000 to 2,000,000",
            ),
            _S("NURA_LLM_CONNECT_TIMEOUT", "Seconds to wait for a connection."),
            _S("NURA_LLM_TIMEOUT", "Seconds to wait for the first token, thinking included."),
            _S("NURA_LLM_IDLE_TIMEOUT", "Seconds to wait between two tokens."),
            _S("NURA_LLM_TOTAL_TIMEOUT", "Seconds for one answer, retries included."),
        ),
        "Without a language model, Nura shows the passages it finds. See the "
        "[README](../README.md#connect-a-model) for examples.",
    ),
    SettingGroup(
        "Light model",
        (
            _S("NURA_LIGHT_LLM_MODEL", "Name of the light model.", example="qwen3:1.7b"),
            _S("NURA_LIGHT_LLM_BASE_URL", "Its address.", default="`NURA_LLM_BASE_URL`"),
            _S("NURA_LIGHT_LLM_API_KEY", "Its key.", default="`NURA_LLM_API_KEY`"),
            _S("NURA_LIGHT_LLM_CONNECT_TIMEOUT", "Seconds to wait for a connection.", default="2"),
            _S(
                "NURA_LIGHT_LLM_TIMEOUT",
                "Seconds to wait for the first token.",
                default="`NURA_LIGHT_LLM_TOTAL_TIMEOUT`",
            ),
            _S(
                "NURA_LIGHT_LLM_IDLE_TIMEOUT",
                "Seconds to wait between two tokens.",
                default="`NURA_LIGHT_LLM_TOTAL_TIMEOUT`",
            ),
            _S(
                "NURA_LIGHT_LLM_TOTAL_TIMEOUT",
                "Seconds for one call. After a call that took longer, the light model is not "
                "used for five seconds, so that a broken one does not delay answers.",
            ),
        ),
        "A smaller, faster model for the work around an answer: it interprets unclear questions, "
        "completes follow-ups, summarises older turns and selects among them. Without one, the "
        "main model interprets unclear questions and rules do the rest. If a call fails, rules "
        "take over.",
    ),
    SettingGroup(
        "Search",
        (
            _S(
                "NURA_EMBEDDING_MODEL",
                "Embedding model: a sentence-transformers name, a folder, or the model of the "
                "embedding endpoint. It applies to a new installation; to change it later, run "
                "`manage.py reindex`.",
                default="the bundled English model; `text-embedding-3-small` at an endpoint",
                example="/models/bge-m3",
            ),
            _S(
                "NURA_EMBEDDING_LANGUAGES",
                "Languages the embedding model knows, such as `ko,en`, or `*` for all. Only "
                "needed for models that Nura does not recognise; it treats those as English "
                "only.",
            ),
            _S(
                "NURA_EMBEDDING_BASE_URL",
                "Address of an OpenAI-compatible embedding endpoint, instead of a local model.",
            ),
            _S(
                "NURA_EMBEDDING_API_KEY",
                "Key of the embedding endpoint.",
                default="`NURA_LLM_API_KEY`",
            ),
            _S(
                "NURA_EMBEDDING_OTHER_API_KEY",
                "While changing from one embedding endpoint to another: key of the endpoint "
                "that `NURA_EMBEDDING_BASE_URL` does not name.",
            ),
            _S("NURA_RERANKER_MODEL", "Cross-encoder, name or folder, that reranks the hits."),
            _S(
                "NURA_RERANKER_BASE_URL",
                "Address of an endpoint with `/rerank` (Jina, Cohere, vLLM), instead of a local "
                "reranker.",
            ),
            _S("NURA_RERANKER_API_KEY", "Key of the reranking endpoint."),
            _S(
                "NURA_MODELS_SOCKET",
                "Unix socket of the process that holds the local models.",
                default="`run/models.sock` in the data folder",
            ),
            _S(
                "NURA_TOP_K",
                "Hits of a search, and passages placed first in the prompt. The model gets "
                "more if there is room.",
            ),
            _S("NURA_BM25_WEIGHT", "Weight of words (BM25) against meaning (vectors)."),
            _S(
                "NURA_MMR_LAMBDA",
                "For the strategy `mmr`: 1 counts relevance only, 0 variety only.",
            ),
            _S(
                "NURA_GATE_THRESHOLD",
                "Score from which a passage counts as relevant. Passages "
                "below it still reach the model, marked as possibly unrelated.",
            ),
            _S(
                "NURA_USER_DICTIONARY",
                "UTF-8 file with your own Korean words, one `word<TAB>tag<TAB>score` per line "
                "as in Kiwi (`세출예산서<TAB>NNP<TAB>0`; `NNP` for names, `NNG` for other nouns; "
                "the score is optional; `#` starts a comment). After a change, restart Nura "
                "and reprocess the documents.",
            ),
        ),
    ),
    SettingGroup(
        "Documents",
        (
            _S("NURA_MAX_UPLOAD_MB", "Largest file, in megabytes."),
            _S("NURA_CHUNK_SIZE", "Length of a passage, in characters. Applies to new documents."),
            _S(
                "NURA_CHUNK_OVERLAP",
                "Characters that neighbouring passages share. Applies to new documents.",
                default="200",
                values="whole number, at most half of `NURA_CHUNK_SIZE`",
            ),
            _S(
                "NURA_OCR_PAGES",
                "Scanned pages of one document to read with `tesseract`, if it is installed "
                "(Debian: `tesseract-ocr tesseract-ocr-kor`). 0: none.",
            ),
            _S(
                "NURA_SANDBOX",
                "Whether files are read only if the kernel can confine the process that reads "
                "them (Landlock and seccomp; see `manage.py doctor`). `best` reads them "
                "anyway, with whatever protection is available.",
            ),
            _S(
                "NURA_PDF_READER",
                "Library that reads the text of PDF files. `pymupdf` needs "
                "`requirements/pymupdf.txt` and is licensed under the AGPL.",
            ),
            _S(
                "NURA_VISION_MODEL",
                "Vision model that describes the pictures in documents: figures, tables, charts. "
                "Without one, pictures are kept, and `manage.py describe_pictures` describes them "
                "later.",
            ),
            _S("NURA_VISION_BASE_URL", "Its address.", default="`NURA_LLM_BASE_URL`"),
            _S(
                "NURA_VISION_API_KEY",
                "Its key.",
                default="`NURA_LLM_API_KEY` if no address of its own is set",
            ),
            _S(
                "NURA_VISION_TIMEOUT",
                "Seconds for one picture; pictures that take longer are skipped.",
            ),
            _S("NURA_VISION_MAX_TOKENS", "Longest description of a picture, in tokens."),
            _S("NURA_PICTURES_MAX", "Pictures kept per document. 0: pictures are ignored."),
            _S("NURA_PICTURES_MIN_PIXELS", "Width times height below which a picture is dropped."),
            _S(
                "NURA_PICTURES_MAX_ASPECT_RATIO",
                "Longer side over shorter side above which a picture is dropped as a strip.",
            ),
            _S(
                "NURA_PICTURES_MIN_VARIANCE",
                "Variance of the grey levels below which a picture is dropped as flat.",
            ),
            _S(
                "NURA_PICTURES_MIN_NONWHITE",
                "Share of pixels that are not white below which a picture is dropped as blank.",
            ),
            _S(
                "NURA_PICTURES_MIN_EDGES",
                "Mean edge strength below which a picture is dropped as having no detail.",
            ),
        ),
    ),
    SettingGroup(
        "Conversations",
        (
            _S(
                "MAX_CONVERSATION_HISTORY",
                "Question-and-answer pairs in a prompt, 500 characters of each message; a "
                "follow-up gets the last turn in full. Older turns go into a running summary, "
                "five at a time.",
            ),
            _S(
                "MEMORY_MODE",
                "How follow-ups are recognised. `simple`: reset words, short questions, "
                "follow-up words, similarity to the last question.",
            ),
            _S("MEMORY_RESET_KEYWORDS", "Words that start a new topic.", default="`rag/lexicon`"),
            _S("MEMORY_FOLLOWUP_KEYWORDS", "Words that mark a follow-up.", default="`rag/lexicon`"),
            _S(
                "MEMORY_COMPARE_KEYWORDS",
                "Words that ask for a comparison.",
                default="`rag/lexicon`",
            ),
            _S(
                "MEMORY_MULTI_KEYWORDS",
                "Words that ask about several documents.",
                default="`rag/lexicon`",
            ),
            _S(
                "MEMORY_SIMILARITY_THRESHOLD",
                "For mode `simple`: cosine similarity of two questions from which the second is a "
                "follow-up.",
            ),
            _S(
                "NURA_MEMORY_PACKS",
                "What is remembered about users: `general`, `medical`, or the path of a TOML "
                "file like those in `rag/memory/packs`; `none` remembers nothing.",
            ),
            _S(
                "NURA_MEMORY_HALF_LIFE_DAYS",
                "Days after which a remembered symptom counts half.",
            ),
            _S("NURA_PROTECTED_TERMS", "Words that summaries must keep.", default="`rag/lexicon`"),
            _S(
                "NURA_CONTEXT_SYSTEM_SHARE",
                "Share of the prompt reserved for instructions. Together with the documents' "
                "share at most 1.",
            ),
            _S(
                "NURA_CONTEXT_DOCUMENTS_SHARE",
                "Share of the prompt reserved for documents, which also get whatever the other"
                " parts leave unused.",
            ),
            _S(
                "NURA_CONTEXT_RECENT_SHARE",
                "Share of the remainder for recent messages; older turns get the rest.",
            ),
            _S(
                "NURA_EXPLORE_CALLS",
                "Model calls allowed when a message asks about something said earlier in a long "
                "conversation. 0: none.",
            ),
            _S("NURA_EXPLORE_TOKENS", "Tokens allowed for the same."),
            _S("NURA_EXPLORE_SECONDS", "Seconds allowed for the same."),
        ),
    ),
    SettingGroup(
        "Answers",
        (
            _S(
                "NURA_REVISE",
                "With a light model: rewrite sentences that the cited passages do not support,"
                " once. A sentence that does not improve stays as it is and is marked.",
            ),
            _S(
                "NURA_VERIFIER_MODEL",
                "Cross-encoder for natural language inference, name or folder, that checks "
                "sentences against their passages. Without one, rules check them.",
            ),
            _S(
                "NURA_STYLE_REWRITE",
                "Let the light model rewrite finished answers according to the style rules. If"
                " a source, a figure or a supported sentence would be lost, the draft is kept.",
            ),
            _S(
                "NURA_STYLE_RULES",
                "Style rules in your own words.",
                default="polite, conclusion first, no filler",
            ),
            _S(
                "NURA_STYLE_SECONDS",
                "Seconds after which the draft is kept.",
            ),
            _S("NURA_TTS_BASE_URL", "OpenAI-compatible speech endpoint for reading aloud."),
            _S(
                "NURA_TTS_MODEL",
                "Its model. Without an endpoint and a model, the browser reads aloud, and "
                "`ask --tts` uses `espeak-ng` if it is installed.",
            ),
            _S("NURA_TTS_VOICE", "Its voice."),
            _S("NURA_TTS_API_KEY", "Its key."),
        ),
    ),
    SettingGroup(
        "Limits",
        (
            _S("NURA_LIMIT_QUESTIONS", "Questions per account and minute."),
            _S("NURA_LIMIT_SEARCHES", "Searches per account and minute."),
            _S("NURA_LIMIT_UPLOADS", "Uploaded files per account and minute."),
            _S(
                "NURA_LIMIT_EXPORTS",
                "Chats exported and answers read aloud, per account and minute.",
            ),
            _S(
                "NURA_LIMIT_EMBEDDING_TOKENS",
                "Tokens embedded through `/v1/embeddings`, per account and minute.",
            ),
            _S(
                "NURA_LIMIT_VISITORS",
                "Requests per minute from one address without a session or a valid key.",
            ),
            _S(
                "NURA_LIMIT_SOCKETS",
                "Open WebSockets per account in each web process.",
            ),
            _S(
                "NURA_LIMIT_AT_ONCE",
                "Concurrent requests per account in each web process and each part of the "
                "product; more of them wait.",
            ),
            _S(
                "NURA_LIMIT_ANSWERS",
                "Answers being written at once per account; more questions wait.",
            ),
            _S(
                "NURA_DISK_RESERVE_MB",
                "Megabytes of disk space to keep free; uploads that would use them are refused.",
            ),
        ),
        "Limits for each account, or each address before sign-in, so that nobody keeps others "
        "waiting. A minute's worth may arrive all at once; after that, requests get a 429 that "
        "says when to try again. An API key gets three quarters of its account's limit. 0: no "
        "limit. "
        "See the [administrator's guide](administrator.md#limits).",
    ),
    SettingGroup(
        "Sources",
        (
            _S(
                "NURA_SOURCE_FOLDERS",
                "Folders below which administrators may set up a folder as a source. Empty: none.",
                example="/mnt/share",
            ),
            _S(
                "NURA_INTERNAL_HOSTS",
                "Hosts in your internal network that sources may fetch pages from, as `name`, "
                "`name:port` or `.domain`. All others that resolve to a private, local or "
                "reserved address are refused.",
                example="wiki.example.com,.intranet.example",
            ),
            _S(
                "NURA_SOURCE_IN_FLIGHT",
                "Documents of one source that may wait to be read at a time; the rest stay at "
                "the source until then.",
            ),
            _S(
                "NURA_SOURCES_AT_ONCE",
                "Sources compared at the same time.",
            ),
        ),
        "What fills libraries automatically. "
        "See the [administrator's guide](administrator.md#sources).",
    ),
    SettingGroup(
        "Retention",
        (
            _S(
                "NURA_RETENTION_EVIDENCE_DAYS",
                "Days for which answers keep the passages of a deleted document. 0: they are "
                "erased at once. When deleting a document, people can always choose to erase "
                "them at once.",
            ),
            _S(
                "NURA_RETENTION_DELETED_DAYS",
                "Days for which deleted chats and replaced versions of documents are kept. 0: "
                "chats are erased within a minute, versions with the next nightly purge.",
            ),
            _S(
                "NURA_ANSWER_CACHE_HOURS",
                "Hours for which the same question gets the same answer from documents, as "
                "long as documents, rights and settings are unchanged. 0: never. See [answer "
                "cache](administrator.md#answer-cache).",
                example="24",
            ),
            _S(
                "NURA_CACHE_MB",
                "Megabytes for pictures of pages. The least recently viewed are deleted first "
                "and drawn again when needed.",
            ),
        ),
        "How long deleted data is kept; see [retention](notes/retention.md).",
    ),
    SettingGroup(
        "Users",
        (
            _S("NURA_LANGUAGE", "Language for people who have not chosen one."),
            _S(
                "TZ",
                "Time zone of schedules and quotas, and of dates where no browser tells its own.",
            ),
            _S(
                "NURA_SIGNUP",
                "Who may create an account: people with an invitation link from an "
                "administrator (`invited`), everybody (`open`), or nobody (`closed`).",
                example="open",
            ),
            _S(
                "NURA_LOCAL_SIGN_IN",
                "Who may sign in with a Nura password or passkey: everybody, or only "
                "administrators, if everybody else uses a sign-on server.",
            ),
            _S(
                "NURA_SCIM_TOKEN",
                "Token, long and random, with which a directory deactivates and reactivates "
                "accounts at `/scim/v2` (SCIM 2.0). Without one, that address does not exist.",
            ),
            _S(
                "NURA_LDAP_URL",
                "LDAP directory or Active Directory whose passwords are accepted: "
                "`ldaps://dc.example.com`. Needs `requirements/ldap.txt`.",
            ),
            _S(
                "NURA_LDAP_START_TLS",
                "Encrypt an `ldap://` connection with StartTLS.",
                default="yes with `ldap://`",
            ),
            _S(
                "NURA_LDAP_CA_FILE",
                "Certificates to check the directory's certificate against; by default those "
                "of the system.",
            ),
            _S(
                "NURA_LDAP_BIND_DN",
                "Account that searches the directory.",
            ),
            _S(
                "NURA_LDAP_BIND_PASSWORD",
                "Its password.",
            ),
            _S(
                "NURA_LDAP_USERS",
                "Branch to search for people, such as `ou=people,dc=example,dc=com`.",
            ),
            _S(
                "NURA_LDAP_FILTER",
                "Filter that finds a person by the name typed, `%(user)s`. Accounts that it "
                "does not match are deactivated.",
            ),
            _S(
                "NURA_LDAP_GROUPS",
                "Branch with the groups. Empty: the directory does not affect groups and roles.",
            ),
            _S(
                "NURA_LDAP_ADMINISTRATORS",
                "Name of the group whose members are administrators.",
            ),
            _S(
                "NURA_LDAP_AUDITORS",
                "Name of the group whose members are auditors.",
            ),
            _S(
                "NURA_STAFF_TWO_STEP",
                "Whether administrators need two-step sign-in to open the administration.",
            ),
            _S(
                "NURA_QUOTA_DOCUMENTS",
                "Documents per user. 0: no limit. The administration can set other quotas for "
                "individual users and groups; these apply to everybody else.",
            ),
            _S("NURA_QUOTA_MB", "Megabytes per user, earlier versions included. 0: no limit."),
            _S("NURA_QUOTA_PAGES", "Pages per user. 0: no limit."),
            _S("NURA_QUOTA_MESSAGES_PER_DAY", "Questions per user and day. 0: no limit."),
            _S(
                "NURA_QUOTA_TOKENS_PER_MONTH",
                "Tokens of the language model per user and calendar month, questions and answers "
                "together. 0: no limit.",
            ),
            _S(
                "NURA_QUOTA_SOFT_PERCENT",
                "Percentage of a quota from which people are told what is left. 0: they are "
                "not told.",
            ),
            _S(
                "EMAIL_BACKEND",
                "How email is sent: by default through `EMAIL_HOST`, and not at all without one.",
                default="`django.core.mail.backends.smtp.EmailBackend` if `EMAIL_HOST` is set",
            ),
            _S(
                "EMAIL_HOST",
                "Mail server. With one, passwords are reset by email, and new accounts have to"
                " confirm their address.",
                example="smtp.example.com",
            ),
            _S("EMAIL_PORT", "Its port."),
            _S("EMAIL_HOST_USER", "User name there."),
            _S("EMAIL_HOST_PASSWORD", "Password there."),
            _S("EMAIL_USE_TLS", "Use STARTTLS."),
            _S(
                "DEFAULT_FROM_EMAIL",
                "Sender of emails.",
            ),
        ),
    ),
    SettingGroup(
        "Server",
        (
            _S(
                "NURA_DATA_DIR",
                "Folder for all data: database, files, keys.",
                default="`var`",
                example="/srv/nura",
            ),
            _S(
                "NURA_DOTENV",
                "File with settings that are not in the environment.",
                default="`.env`",
            ),
            _S(
                "NURA_RUN_AS",
                "User that `up` switches to when started as root; `root` stays root. If that "
                "user cannot read the code, `up` stays root, and `doctor` says so.",
                default="`nura`, which is created, or the owner of the database",
            ),
            _S("NURA_HOST", "Address the web server listens on.", example="192.168.0.10"),
            _S("NURA_PORT", "Port the web server listens on.", example="8000"),
            _S(
                "ALLOWED_HOSTS",
                "Host names Nura answers to.",
                default="localhost and `NURA_HOST`",
                example="nura.example.com",
            ),
            _S(
                "NURA_URL_PREFIX",
                "Path under which a proxy serves Nura, if not at the root of a host. The proxy"
                " may strip it or pass it on.",
                example="/nura",
            ),
            _S(
                "CSRF_TRUSTED_ORIGINS",
                "Origins of the pages behind a proxy, such as `https://nura.example.com`.",
                example="https://nura.example.com",
            ),
            _S(
                "NURA_HTTPS",
                "`yes` behind a proxy that terminates TLS: secure cookies, HSTS, redirects.",
                example="yes",
            ),
            _S(
                "NURA_TRUSTED_PROXIES",
                "Number of proxies in front whose `X-Forwarded-For` is trusted.",
            ),
            _S(
                "SECRET_KEY",
                "Key for sessions and tokens. Must be the same on every machine.",
                default="created once in the data folder",
            ),
            _S(
                "SECRET_KEY_FALLBACKS",
                "Earlier keys, separated by commas: what was signed or encrypted with them can"
                " still be read. Remove one as soon as the keys of connections have been "
                "entered again.",
            ),
            _S(
                "DATABASE_URL",
                "Your own PostgreSQL, with pgvector 0.8 or newer: "
                "`postgresql://user:password@host/name`.",
                default="the bundled PostgreSQL",
                example="postgresql://nura:password@127.0.0.1/nura",
            ),
            _S(
                "DATABASE_REPLICA_URL",
                "A streaming replica of `DATABASE_URL` for searches and lists. Your own "
                "changes are always visible; while the replica lags or is down, the primary is"
                " read.",
                default="none",
                example="postgresql://nura:password@replica/nura",
            ),
            _S(
                "NURA_FILES_URL",
                "An S3 bucket for all files, if nodes share no folder. Keys, region and the "
                "address of a server other than Amazon's are read from `AWS_ACCESS_KEY_ID`, "
                "`AWS_SECRET_ACCESS_KEY`, `AWS_DEFAULT_REGION` and `AWS_ENDPOINT_URL_S3`.",
                default="the folder `files` in the data folder",
                example="s3://nura/files",
            ),
            _S(
                "REDIS_URL",
                "Your own Redis; with Sentinels "
                "`redis+sentinel://USER:PASSWORD@HOST,HOST/SERVICE`.",
                default="the bundled Redis",
                example="redis://127.0.0.1:6379/0",
            ),
            _S("CELERY_BROKER_URL", "Another broker for background tasks.", default="`REDIS_URL`"),
            _S("NURA_WEB_WORKERS", "Web processes."),
            _S("NURA_ANSWER_WORKERS", "Processes that write answers."),
            _S("NURA_DOCUMENT_WORKERS", "Documents processed at the same time."),
            _S(
                "NURA_SHUTDOWN_SECONDS",
                "Seconds that answers in progress get to finish when Nura stops. Longer ones "
                "end as interrupted and keep their text; questions not started yet are "
                "answered after the next start. Documents that need longer are read again "
                "then.",
            ),
            _S("NURA_LOG_LEVEL", "Lowest level of messages in the log."),
            _S(
                "NURA_ACCESS_LOG",
                "One line per request: method, path, status, time, user, address. Use `no` if "
                "a proxy in front writes such a log.",
            ),
            _S(
                "NURA_LOG_FORMAT",
                "`json`: one JSON object per line.",
            ),
        ),
    ),
)

HEADER = """\
# Settings

<!-- Written by `manage.py settings_reference --write` from nura/settings/reference.py. -->

Every setting is an environment variable, or a line `NAME=value` in `.env` next to the README
([.env.example](../.env.example) has the common ones). Nura does not start with an invalid value and
names the variable. `manage.py doctor` shows what is configured and what is missing.
"""

EXAMPLE_HEADER = """\
# Copy this file to .env and uncomment what you need. All settings: docs/settings.md
# Written by `manage.py settings_reference --write`.
"""


def describe_names() -> tuple[str, ...]:
    """The names of all described settings, in order."""
    return tuple(setting.name for group in GROUPS for setting in group.settings)


def read_declarations() -> dict[str, env.Declaration]:
    """Every variable that the settings of an installation read, by name."""
    for module in ("base", "prod"):
        import_module(f"nura.settings.{module}")
    return dict(env.DECLARED)


def write_markdown() -> str:
    """The text of docs/settings.md."""
    declarations = read_declarations()
    parts = [HEADER]
    for group in GROUPS:
        rows = [_write_row(setting, declarations[setting.name]) for setting in group.settings]
        introduction = [f"{group.introduction}\n"] if group.introduction else []
        header = "| setting | default | values | meaning |\n|---|---|---|---|"
        parts += [f"## {group.title}\n", *introduction, "\n".join([header, *rows]) + "\n"]
    return "\n".join(parts)


def write_example() -> str:
    """The text of .env.example."""
    parts = [EXAMPLE_HEADER]
    for group in GROUPS:
        lines = [f"#{s.name}={s.example}" for s in group.settings if s.example]
        if lines:
            parts.append("\n".join([f"# {group.title}", *lines]) + "\n")
    return "\n".join(parts)


def _write_row(setting: SettingDescription, declaration: env.Declaration) -> str:
    default = setting.default or (f"`{declaration.default}`" if declaration.default else "none")
    values = setting.values or declaration.values
    cells = (f"`{setting.name}`", default, values, setting.purpose)
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
