"""Libraries and their members over REST: members read, managers change."""

from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from documents import libraries
from documents.api.requests import get_user, validate_body, validate_query
from documents.libraries import DocumentFate
from documents.models import Library, LibraryMember, LibraryRole
from documents.representation import get_shown_name

if TYPE_CHECKING:
    from django.contrib.auth.models import User

NAME_CHARACTERS = 100
DESCRIPTION_CHARACTERS = 1000
MEMBER_CHARACTERS = 150


class LibraryShape(serializers.ModelSerializer[Library]):
    """A library, and the user's role in it."""

    role = serializers.ChoiceField(choices=LibraryRole.choices)
    document_count = serializers.IntegerField()

    class Meta:
        """The fields shown."""

        model = Library
        fields = ("id", "name", "description", "role", "document_count", "created_at")


class LibraryRequest(serializers.Serializer[Any]):
    """A new library."""

    name = serializers.CharField(max_length=NAME_CHARACTERS)
    description = serializers.CharField(
        max_length=DESCRIPTION_CHARACTERS, required=False, allow_blank=True, default=""
    )


class LibraryChange(serializers.Serializer[Any]):
    """Changes to a library."""

    name = serializers.CharField(max_length=NAME_CHARACTERS, required=False)
    description = serializers.CharField(
        max_length=DESCRIPTION_CHARACTERS, required=False, allow_blank=True
    )


class LibraryListQuery(serializers.Serializer[Any]):
    """Filter of the list."""

    q = serializers.CharField(required=False, allow_blank=True, help_text="Part of the name")


class LibraryDeletionQuery(serializers.Serializer[Any]):
    """What becomes of the documents: each back to its owner, or deleted."""

    documents = serializers.ChoiceField(
        choices=[one.value for one in DocumentFate],
        required=False,
        default=DocumentFate.OWNERS.value,
    )


class LibraryMemberShape(serializers.ModelSerializer[LibraryMember]):
    """A member: an account or a group, by name."""

    user = serializers.CharField(source="user.username", allow_null=True, default=None)
    group = serializers.CharField(source="group.name", allow_null=True, default=None)
    name = serializers.SerializerMethodField(help_text="The name that others see")

    class Meta:
        """The fields shown."""

        model = LibraryMember
        fields = ("id", "user", "group", "name", "role")

    def get_name(self, member: LibraryMember) -> str:
        """The name that the account chose, or the group's."""
        return member.group.name if member.group else get_shown_name(cast("User", member.user))


class LibraryMemberRequest(serializers.Serializer[Any]):
    """Who becomes a member: the name of an account or of a group."""

    user = serializers.CharField(max_length=MEMBER_CHARACTERS, required=False)
    group = serializers.CharField(max_length=MEMBER_CHARACTERS, required=False)
    role = serializers.ChoiceField(choices=LibraryRole.choices)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """One of both names."""
        if ("user" in attrs) == ("group" in attrs):
            raise serializers.ValidationError({"user": ["user or group"]})
        return attrs


class LibraryMemberChange(serializers.Serializer[Any]):
    """Another role."""

    role = serializers.ChoiceField(choices=LibraryRole.choices)


@extend_schema_view(
    list=extend_schema(parameters=[LibraryListQuery]), retrieve=extend_schema(description="One.")
)
class LibraryViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Library]
):
    """The libraries that the user may read, by name."""

    queryset = Library.objects.none()
    serializer_class = LibraryShape
    change_scope = "upload"  # of `chats.models.KeyScope`, which stands a floor above
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[Library]:
        """Libraries that the user may read, filtered in a list; for changes those they manage."""
        user = get_user(self.request)
        if self.request.method not in {"GET", "HEAD", "OPTIONS"}:
            return Library.objects.managed_by(user)
        rows = Library.objects.visible_to(user).annotate_for(user)
        if self.action == "list":
            query = validate_query(LibraryListQuery, self.request)
            rows = rows.filter(name__icontains=query.get("q", "").strip())
        return rows

    @extend_schema(request=LibraryRequest, responses={201: LibraryShape})
    def create(self, request: Request) -> Response:
        """Create a library; its creator becomes its manager."""
        user = get_user(request)
        library = libraries.create_library(creator=user, **validate_body(LibraryRequest, request))
        return Response(_to_library_json(library, user), status=status.HTTP_201_CREATED)

    @extend_schema(request=LibraryChange, responses=LibraryShape)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Change name or description."""
        user, library = get_user(request), self.get_object()
        fields = validate_body(LibraryChange, request)
        libraries.update_library(library=library, actor=user, **fields)
        return Response(_to_library_json(library, user))

    @extend_schema(parameters=[LibraryDeletionQuery], responses={204: None})
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Delete a library; `documents` says whether its documents go back or are deleted."""
        library = self.get_object()
        fate = DocumentFate(validate_query(LibraryDeletionQuery, request)["documents"])
        libraries.delete_library(library=library, actor=get_user(request), documents=fate)
        return Response(status=status.HTTP_204_NO_CONTENT)


class LibraryMemberViewSet(mixins.ListModelMixin, viewsets.GenericViewSet[LibraryMember]):
    """The members of a library, for those who manage it."""

    queryset = LibraryMember.objects.none()
    serializer_class = LibraryMemberShape
    change_scope = "upload"
    lookup_value_converter = "int"
    lookup_url_kwarg = "member_id"

    def get_queryset(self) -> QuerySet[LibraryMember]:
        """Members in the order in which they came."""
        return self._get_library().members.select_related("user", "group").order_by("pk")

    def _get_library(self) -> Library:
        libraries = Library.objects.managed_by(get_user(self.request))
        return get_object_or_404(libraries, pk=self.kwargs["library_id"])

    @extend_schema(request=LibraryMemberRequest, responses={201: LibraryMemberShape})
    def create(self, request: Request, library_id: UUID) -> Response:
        """Make an account or a group a member."""
        library = self._get_library()
        fields = validate_body(LibraryMemberRequest, request)
        role = LibraryRole(fields.pop("role"))
        member = libraries.add_member(
            library=library,
            principal=libraries.find_principal(**fields),
            role=role,
            actor=get_user(request),
        )
        return Response(LibraryMemberShape(member).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=LibraryMemberChange, responses=LibraryMemberShape)
    def partial_update(self, request: Request, library_id: UUID, member_id: int) -> Response:
        """Give a member another role."""
        member = self.get_object()
        role = LibraryRole(validate_body(LibraryMemberChange, request)["role"])
        libraries.change_member(member=member, role=role, actor=get_user(request))
        return Response(LibraryMemberShape(member).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, library_id: UUID, member_id: int) -> Response:
        """End a membership; what is being read by it ends with it."""
        libraries.remove_member(member=self.get_object(), actor=get_user(request))
        return Response(status=status.HTTP_204_NO_CONTENT)


def _to_library_json(library: Library, user: "User") -> Any:
    return LibraryShape(Library.objects.annotate_for(user).get(pk=library.pk)).data
