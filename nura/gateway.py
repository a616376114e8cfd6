"""The gateway mounted: its routes behind API keys, its errors in OpenAI's shape."""

from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError

from chats.gateway.routes import router
from nura.accounts.authentication import gateway_key
from nura.errors import problem_of

api = NinjaAPI(
    title="Nura",
    version="1",
    urls_namespace="gateway",
    openapi_url=None,  # its clients know the protocol; docs/gateway.md tells what is ours
    auth=gateway_key,
)
api.add_router("", router)


def failed(request: HttpRequest, error: Exception | type[Exception]) -> HttpResponse:
    """Any error of a view, before the first byte of its answer."""
    told = error if isinstance(error, Exception) else error()
    return problem_of(told).response_at(request.path)


for kind in (Exception, Http404, HttpError, ValidationError):  # ninja has own handlers for these
    api.add_exception_handler(kind, failed)
