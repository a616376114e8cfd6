"""Search without a conversation turn: what a question would find, and why."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chats.access import get_user
from chats.serializers import SearchRequest, SearchResultSerializer
from chats.services import search


class SearchView(APIView):
    """`POST /search`: reads only."""

    @extend_schema(request=SearchRequest, responses=SearchResultSerializer)
    def post(self, request: Request) -> Response:
        """Passages for a query, with the plan, the gate's verdict and the time of each step."""
        serializer = SearchRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        found = search.search(user=get_user(request), **dict(serializer.validated_data))
        return Response(found)
