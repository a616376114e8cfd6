"""What can be wrong with a request about conversations."""

from rag.errors import NuraError


class NotFound(NuraError):
    """Not there, or not the asker's: nobody can tell which."""

    code = "not_found"
    status = 404


class EmptyMessage(NuraError):
    """A message without a visible character."""

    code = "empty_message"
    status = 400


class WrongRole(NuraError):
    """An answer was asked for where a question stands, or the other way round."""

    code = "wrong_role"
    status = 400


class StillAnswering(NuraError):
    """The answer is still being written."""

    code = "still_answering"
    status = 409


class QuotaMessages(NuraError):
    """The user has asked as much today as he may; `retry_after` seconds are left of the day."""

    code = "quota_messages"
    status = 429


class ExportTooLarge(NuraError):
    """The chat holds more `characters` than are set on pages at once, the `limit`."""

    code = "export_too_large"
    status = 413


class ExportFailed(NuraError):
    """A chat could not be set on pages, or not in time."""

    code = "export_failed"
    retryable = True
    status = 503


class Unavailable(NuraError):
    """The run log cannot be reached."""

    code = "unavailable"
    retryable = True
    status = 503


class RunLost(NuraError):
    """Another worker or the sweeper holds the run now; whoever raised this must leave it alone."""

    code = "run_lost"
    status = 409
