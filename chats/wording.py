"""Sentences for the codes of conversations and language models, each with a next step.

In the reader's language.
"""

from collections.abc import Mapping

from django.utils.translation import gettext_lazy as _

from documents import wording as documents_wording

SENTENCES = {
    "not_found": _("This does not exist, or you don't have access to it."),
    "empty_message": _("The message is empty. Write a question and send it again."),
    "wrong_role": _("Only answers can be regenerated, and only questions can be edited."),
    "still_answering": _(
        "The answer is still being written. Stop it or wait until it is finished."
    ),
    "quota_messages": _(
        "You have reached today's limit of %(limit)s questions. Try again tomorrow, or ask your administrator for more."
    ),
    "export_too_large": _(
        "This chat is too long for a PDF (%(characters)s characters, at most %(limit)s). Export it as Markdown instead."
    ),
    "export_failed": _(
        "The PDF could not be created. Try again in a moment, or export the chat as Markdown."
    ),
    "unavailable": _(
        "The service that stores running answers cannot be reached. Try again in a moment."
    ),
    "interrupted": _(
        "The answer was interrupted because its worker stopped. What was written so far is kept; ask again."
    ),
    "internal": _(
        "Something went wrong on our side. Try again; if it keeps happening, tell your administrator."
    ),
    "invalid": _("Part of the request is invalid. Correct it and send it again."),
    "bad_frame": _("This message could not be understood. Reload the page and try again."),
    "too_many_frames": _("Too many messages in a short time. Wait a moment and try again."),
    "llm_failed": _(
        "The language model failed. Try again; if it keeps happening, tell your administrator."
    ),
    "llm_unreachable": _(
        "The language model cannot be reached. Try again in a moment; if it keeps happening, tell your administrator."
    ),
    "llm_unavailable": _(
        "The language model has not been responding, so requests to it are paused for a few seconds. Ask again in a moment; if it keeps happening, tell your administrator."
    ),
    "llm_timeout": _("The language model did not answer in time. Try again in a moment."),
    "llm_timeout.first_token": _(
        "The language model did not start answering in time. Try again in a moment; if it happens often, tell your administrator."
    ),
    "llm_timeout.idle": _(
        "The language model stopped in the middle of the answer. What was written so far is kept; ask again."
    ),
    "llm_timeout.total": _(
        "The answer took longer than allowed. What was written so far is kept. Ask for less; if it happens often, tell your administrator."
    ),
    "llm_unauthorized": _("The language model rejected its API key. Tell your administrator."),
    "llm_rate_limited": _(
        "The language model is overloaded, or its quota is used up. Try again in a moment."
    ),
    "llm_server_error": _("The language model's server reported an error. Try again in a moment."),
    "llm_rejected": _("The language model rejected the request. Tell your administrator."),
    "llm_interrupted": _(
        "The connection to the language model broke off in the middle of the answer. What was written so far is kept; ask again."
    ),
    "llm_empty_answer": _(
        "The language model sent an empty answer. Ask again, or rephrase the question."
    ),
    "llm_empty_answer.length": _(
        "The language model used up its tokens thinking and never got to the answer. Ask again; if it keeps happening, tell your administrator."
    ),
    "speech_not_configured": _(
        "Reading aloud is not set up on this server. If you need it, tell your administrator."
    ),
    "speech_failed": _(
        "The speech service failed. Try again; if it keeps happening, tell your administrator."
    ),
    "speech_too_long": _("This answer is too long to be read aloud in this format."),
    "nothing_to_say": _("Only answers that contain text can be read aloud."),
    "engine_unavailable": _("Part of the search engine is missing. Tell your administrator."),
    "model_not_found": _(
        "This model does not exist, or you don't have access to it. GET /v1/models lists the models you can use."
    ),
    "no_question": _("There is no question: send a message with the role user that contains text."),
    "text_too_long": _(
        "A text is longer than 20,000 characters. Shorten it, or upload it as a document."
    ),
    "one_answer_only": _("A question gets one answer: set n to 1, or leave it out."),
    "wrong_chat_id": _("The chat id must be at most 200 visible characters."),
    "wrong_input": _("input must be a non-blank string, or a list of 1 to 256 of them."),
    "wrong_dimensions": _(
        "The model's vectors have a different number of dimensions: leave dimensions out."
    ),
    "llm_context_overflow": _(
        "The conversation is longer than the language model can read. Start a new chat or choose fewer documents."
    ),
}


NOTICES = {
    "answer_cut": _(
        "The answer reached its maximum length and ends here. Ask for the rest; if it happens often, tell your administrator."
    ),
    "parts_unread": _("The documents are long; not every part of them was read for this answer."),
    "embedder_failed": _(
        "Semantic search is unavailable right now; the documents were searched by words only."
    ),
    "retrieval_failed": _(
        "The documents could not be searched, so this answer is not based on them."
    ),
}
"""What a reader should know of an answer that came about all the same."""


def notice(code: str) -> str:
    """The sentence of a notice."""
    return str(NOTICES[code]) if code in NOTICES else sentence(code)


def sentence(code: str, params: Mapping[str, object] | None = None) -> str:
    """The sentence of a code; codes of documents and search come from `documents.wording`.

    Some codes have sentences of their own for the phase or the reason in `params`.
    """
    known = params or {}
    for name in (f"{code}.{known.get('phase') or known.get('reason')}", code):
        if name in SENTENCES:
            return documents_wording.filled(SENTENCES[name], known)
    return documents_wording.sentence(code, known)
