"""Errors of conversations, and their explanations: see `documents.errors`."""

from collections.abc import Mapping

from django.utils.translation import gettext_lazy as _

from documents.errors import Explanation, add_explanations, explain_code
from jobs.limiter import LimitVerdict
from rag.errors import NuraError


class NotFound(NuraError):
    """Missing, or another user's; indistinguishable from outside."""

    code = "not_found"


class ScopeMissing(NuraError):
    """The API key lacks the scope `params["scope"]`."""

    code = "scope_missing"


class InvalidFrame(NuraError):
    """A frame whose fields are wrong; `params["errors"]` says which."""

    code = "invalid"


class EmptyMessage(NuraError):
    """A message without a visible character."""

    code = "empty_message"


class WrongRole(NuraError):
    """The message is a question where an answer is needed, or the other way round."""

    code = "wrong_role"


class StillAnswering(NuraError):
    """The answer is still being written."""

    code = "still_answering"


class SummaryChanged(NuraError):
    """There is no running summary, or not the one that the client has read."""

    code = "summary_changed"


class QuotaMessages(NuraError):
    """The user has reached today's limit of questions; the day ends in `retry_after` seconds."""

    code = "quota_messages"


class QuotaTokens(NuraError):
    """The user has used up the month's tokens; the month ends in `retry_after` seconds."""

    code = "quota_tokens"


class RateLimited(NuraError):
    """Too many requests in a short time; retry after `retry_after` seconds."""

    code = "rate_limited"
    headers: Mapping[str, str] = {}
    """Rate limit headers for the response."""

    @classmethod
    def from_verdict(cls, verdict: LimitVerdict) -> "RateLimited":
        """The error for a request that the limiter refused."""
        error = cls(retry_after=verdict.retry_after)
        error.headers = verdict.headers
        return error


class ExportTooLarge(NuraError):
    """The chat has more `characters` than a PDF may have (`limit`)."""

    code = "export_too_large"


class ExportFailed(NuraError):
    """The PDF of a chat could not be made, or not in time."""

    code = "export_failed"
    retryable = True


class Unavailable(NuraError):
    """The run log or a worker cannot be reached."""

    code = "unavailable"
    retryable = True


class RunLost(NuraError):
    """Another worker or the reaper holds the run now; this worker must leave it alone."""

    code = "run_lost"


class ModelNotFound(NuraError):
    """Missing, or another user's model; indistinguishable from outside."""

    code = "model_not_found"

    def __init__(self) -> None:
        super().__init__(param="model")


class NoQuestion(NuraError):
    """No message of the user holds text."""

    code = "no_question"

    def __init__(self) -> None:
        super().__init__(param="messages")


class ToolServerFailed(NuraError):
    """A tool server could not be reached, or does not speak the protocol."""

    code = "tool_server_failed"
    retryable = True


class TooLong(NuraError):
    """A text is longer than a question may be."""

    code = "text_too_long"


class OneAnswerOnly(NuraError):
    """More than one answer was requested."""

    code = "one_answer_only"

    def __init__(self) -> None:
        super().__init__(param="n")


class WrongChatId(NuraError):
    """An invalid chat id."""

    code = "wrong_chat_id"


class WrongInput(NuraError):
    """The input to embed is empty or not text."""

    code = "wrong_input"

    def __init__(self) -> None:
        super().__init__(param="input")


class WrongDimensions(NuraError):
    """Vectors of a width other than the model's were requested."""

    code = "wrong_dimensions"

    def __init__(self) -> None:
        super().__init__(param="dimensions")


EXPLANATIONS: Mapping[str, Explanation] = {
    "not_found": (404, _("This does not exist, or you don't have access to it.")),
    "model_not_allowed": (
        400,
        _("This language model is not available to you. Choose another one and ask again."),
    ),
    "tool_server_failed": (
        502,
        _("The tool server did not answer as expected. Check its address and key."),
    ),
    "scope_missing": (
        403,
        _("This API key is not allowed to do this. It needs the scope “%(scope)s”."),
    ),
    "empty_message": (400, _("The message is empty. Write a question and send it again.")),
    "wrong_role": (
        400,
        _("Only answers can be regenerated, and only questions can be edited."),
    ),
    "rate_limited": (
        429,
        _("That was a lot at once. Please try again in %(retry_after)s seconds."),
    ),
    "summary_changed": (
        409,
        _(
            "The summary has changed in the meantime, or no longer exists. Check it before you edit it."
        ),
    ),
    "still_answering": (
        409,
        _("The answer is still being written. Stop it or wait until it is finished."),
    ),
    "quota_messages": (
        429,
        _(
            "You have reached today's limit of %(limit)s questions. Try again tomorrow, or ask your administrator for more."
        ),
    ),
    "quota_tokens": (
        429,
        _(
            "You have used this month's %(limit)s tokens. You can ask again from %(until)s on, or ask your administrator for more."
        ),
    ),
    "export_too_large": (
        413,
        _(
            "This chat is too long for a PDF (%(characters)s characters, at most %(limit)s). Export it as Markdown instead."
        ),
    ),
    "export_failed": (
        503,
        _("The PDF could not be created. Try again in a moment, or export the chat as Markdown."),
    ),
    "unavailable": (503, _("The service is busy or restarting. Please try again shortly.")),
    "interrupted": (
        503,
        _(
            "The answer was interrupted because its worker stopped. What was written so far is kept; ask again."
        ),
    ),
    "invalid": (
        400,
        _("Part of the request is invalid. Correct it and send it again."),
    ),
    "bad_frame": (400, _("This message could not be understood. Reload the page and try again.")),
    "too_many_frames": (429, _("Too many messages in a short time. Wait a moment and try again.")),
    "llm_failed": (
        502,
        _("The language model failed. Try again; if it keeps happening, tell your administrator."),
    ),
    "llm_unreachable": (
        502,
        _(
            "The language model cannot be reached. Try again in a moment; if it keeps happening, tell your administrator."
        ),
    ),
    "llm_unavailable": (
        503,
        _(
            "The language model has not been responding, so requests to it are paused for a few seconds. Ask again in a moment; if it keeps happening, tell your administrator."
        ),
    ),
    "llm_timeout": (502, _("The language model did not answer in time. Try again in a moment.")),
    "llm_timeout.first_token": (
        502,
        _(
            "The language model did not start answering in time. Try again in a moment; if it happens often, tell your administrator."
        ),
    ),
    "llm_timeout.idle": (
        502,
        _(
            "The language model stopped in the middle of the answer. What was written so far is kept; ask again."
        ),
    ),
    "llm_timeout.total": (
        502,
        _(
            "The answer took longer than allowed. What was written so far is kept. Ask for less; if it happens often, tell your administrator."
        ),
    ),
    "llm_unauthorized": (
        502,
        _("The language model rejected its API key. Tell your administrator."),
    ),
    "llm_rate_limited": (
        502,
        _("The language model is overloaded, or its quota is used up. Try again in a moment."),
    ),
    "llm_server_error": (
        502,
        _("The language model's server reported an error. Try again in a moment."),
    ),
    "llm_bad_reply": (
        502,
        _("The language model failed. Try again; if it keeps happening, tell your administrator."),
    ),
    "llm_rejected": (502, _("The language model rejected the request. Tell your administrator.")),
    "llm_interrupted": (
        502,
        _(
            "The connection to the language model broke off in the middle of the answer. What was written so far is kept; ask again."
        ),
    ),
    "llm_empty_answer": (
        502,
        _("The language model sent an empty answer. Ask again, or rephrase the question."),
    ),
    "llm_empty_answer.length": (
        502,
        _(
            "The language model used up its tokens thinking and never got to the answer. Ask again; if it keeps happening, tell your administrator."
        ),
    ),
    "speech_not_configured": (
        501,
        _("Reading aloud is not set up on this server. If you need it, tell your administrator."),
    ),
    "speech_failed": (
        502,
        _("The speech service failed. Try again; if it keeps happening, tell your administrator."),
    ),
    "speech_too_long": (422, _("This answer is too long to be read aloud in this format.")),
    "nothing_to_say": (400, _("Only answers that contain text can be read aloud.")),
    "model_not_found": (
        404,
        _(
            "This model does not exist, or you don't have access to it. GET /v1/models lists the models you can use."
        ),
    ),
    "no_question": (
        400,
        _("There is no question: send a message with the role user that contains text."),
    ),
    "text_too_long": (
        400,
        _("A text is longer than 20,000 characters. Shorten it, or upload it as a document."),
    ),
    "one_answer_only": (400, _("A question gets one answer: set n to 1, or leave it out.")),
    "wrong_chat_id": (400, _("The chat id must be at most 200 visible characters.")),
    "wrong_input": (
        400,
        _("input must be a non-blank string, or a list of 1 to 256 of them."),
    ),
    "wrong_dimensions": (
        400,
        _("The model's vectors have a different number of dimensions: leave dimensions out."),
    ),
    "llm_context_overflow": (
        502,
        _(
            "The conversation is longer than the language model can read. Start a new chat or choose fewer documents."
        ),
    ),
}
add_explanations(EXPLANATIONS)

NOTICES = {
    "answer_cut": _(
        "The answer reached its maximum length and ends here. Ask for the rest; if it happens often, tell your administrator."
    ),
    "tools_failed": _("The tools could not be used, so the answer was written without them."),
    "parts_unread": _("The documents are long; not every part of them was read for this answer."),
    "other_language": _(
        "The documents are in another language than your question. Try asking in their language."
    ),
    "embedder_failed": _(
        "Semantic search is unavailable right now; the documents were searched by words only."
    ),
    "retrieval_failed": _(
        "The documents could not be searched, so this answer is not based on them."
    ),
}
"""What a reader should know about an answer that succeeded with restrictions."""


def explain_notice(code: str) -> str:
    """The sentence of a notice, in the reader's language."""
    return str(NOTICES[code]) if code in NOTICES else explain_code(code)
