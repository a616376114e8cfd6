"""Search without a conversation turn: what a question would find and why, and where words stand."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chats.access import get_user
from chats.models import KeyScope
from chats.serializers import FindQuery, FindResult, SearchRequest, SearchResultSerializer
from chats.services import search
from chats.services.find import find_everything


class SearchView(APIView):
    """`POST /search`: reads only."""

    change_scope = KeyScope.READ

    @extend_schema(request=SearchRequest, responses=SearchResultSerializer)
    def post(self, request: Request) -> Response:
        """Passages for a query, with the plan, the gate's verdict and the time of each step."""
        serializer = SearchRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        found = search.search(user=get_user(request), **dict(serializer.validated_data))
        return Response(found)


class FindView(APIView):
    """`GET /find`: reads only."""

    @extend_schema(parameters=[FindQuery], responses=FindResult)
    def get(self, request: Request) -> Response:
        """Where words stand: titles and messages of chats, names and texts of documents."""
        asked = FindQuery(data=request.query_params)
        asked.is_valid(raise_exception=True)
        query = asked.validated_data["q"]
        return Response(find_everything(user=get_user(request), query=query))
