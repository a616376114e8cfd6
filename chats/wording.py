"""Sentences for the codes of conversations and language models, each with a next step.

In the reader's language.
"""

from collections.abc import Mapping

from django.utils.translation import gettext_lazy as _

from documents import wording as documents_wording

SENTENCES = {
    "not_found": _("This does not exist, or it is not yours."),
    "empty_message": _("The message is empty. Write a question and send it again."),
    "wrong_role": _("Only an answer can be written anew, and only a question can be edited."),
    "still_answering": _("The answer is still being written. Stop it or wait for its end."),
    "quota_messages": _(
        "You have asked %(limit)s questions today, which is as many as are allowed a day. Go on "
        "tomorrow; if you need more, tell your administrator."
    ),
    "export_too_large": _(
        "This chat is too long to be printed (%(characters)s characters, at most %(limit)s). Export "
        "it as Markdown instead."
    ),
    "export_failed": _(
        "The chat could not be printed. Try again in a moment, or export it as Markdown."
    ),
    "unavailable": _(
        "The service that keeps running answers cannot be reached. Try again in a moment."
    ),
    "interrupted": _(
        "The answer was interrupted because its worker stopped. What had been written is kept; ask again."
    ),
    "internal": _(
        "Something went wrong on our side. Try again; if it stays, tell your administrator."
    ),
    "invalid": _("Something in the request is not as it should be. Correct it and send it again."),
    "bad_frame": _("This message could not be understood. Reload the page and try again."),
    "too_many_frames": _("Too many messages in a short time. Wait a moment and try again."),
    "llm_failed": _("The language model failed. Try again; if it stays, tell your administrator."),
    "llm_unreachable": _(
        "The language model cannot be reached. Try again in a moment; if it stays, tell your administrator."
    ),
    "llm_unavailable": _(
        "The language model did not answer the last questions and is left alone for a few seconds. Ask again in a moment; if it stays, tell your administrator."
    ),
    "llm_timeout": _("The language model did not answer in time. Try again in a moment."),
    "llm_timeout.first_token": _(
        "The language model did not begin to answer in time. Try again in a moment; if it happens often, tell your administrator."
    ),
    "llm_timeout.idle": _(
        "The language model fell silent in the middle. What had been written is kept; ask again."
    ),
    "llm_timeout.total": _(
        "The language model needed longer than an answer may take. What had been written is kept. Ask for less; if it happens often, tell your administrator."
    ),
    "llm_unauthorized": _(
        "The language model refused the key set for it. Tell your administrator."
    ),
    "llm_rate_limited": _(
        "The language model is answering too many requests, or its quota is used up. Try again in a moment."
    ),
    "llm_server_error": _("The language model's server reported an error. Try again in a moment."),
    "llm_rejected": _("The language model refused the request. Tell your administrator."),
    "llm_interrupted": _(
        "The language model broke off in the middle. What had been written is kept; ask again."
    ),
    "llm_empty_answer": _("The language model sent an empty answer. Ask again, or in other words."),
    "llm_empty_answer.length": _(
        "The language model used all its tokens for thinking and did not get to an answer. Ask again; if it stays, tell your administrator."
    ),
    "speech_not_configured": _(
        "Reading aloud is not set up on this server. If you need it, tell your administrator."
    ),
    "speech_failed": _(
        "The speech service did not answer as it should. Try again; if it stays, tell your administrator."
    ),
    "speech_too_long": _("This answer is too long to be spoken in this format."),
    "nothing_to_say": _("Only an answer with text in it can be spoken."),
    "engine_unavailable": _("A part of the search engine is missing. Tell your administrator."),
    "model_not_found": _(
        "This model does not exist, or it is not yours. GET /v1/models lists yours."
    ),
    "no_question": _("There is no question: send a message of the role user that holds text."),
    "text_too_long": _(
        "A text has more than 20,000 characters. Shorten it, or upload it as a document."
    ),
    "one_answer_only": _("There is one answer to a question: send n as 1, or leave it out."),
    "wrong_chat_id": _("The id of the chat must be text of at most 200 visible characters."),
    "wrong_input": _("input must be a text that is not blank, or a list of 1 to 256 such texts."),
    "wrong_dimensions": _("The model's vectors have another number of dimensions: leave it out."),
    "llm_context_overflow": _(
        "The conversation is longer than the language model can read. Start a new chat or choose fewer documents."
    ),
}


NOTICES = {
    "answer_cut": _(
        "The answer reached its greatest length and ends here. Ask for the rest; if it happens often, tell your administrator."
    ),
    "parts_unread": _(
        "The documents are long, and not every part of them was read for this answer."
    ),
    "embedder_failed": _(
        "Search by meaning is not available right now; the documents were searched by words only."
    ),
    "retrieval_failed": _(
        "The documents could not be searched, so this answer does not rest on them."
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
