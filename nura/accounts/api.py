"""REST: exchange a password for an API key; the signed-in user and what he has chosen."""

from typing import Any, cast

from allauth.account.adapter import get_adapter
from django.conf import settings
from django.contrib.auth.models import User
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from nura.accounts import services, two_step
from nura.accounts.models import Preferences
from nura.accounts.preferences import get_preferences, save_preferences
from rag.errors import NuraError


class InvalidCredentials(NuraError):
    """Unknown user, wrong password or disabled user; indistinguishable from outside."""

    code = "invalid_credentials"


class SecondStepRequired(NuraError):
    """The password is right, and the account asks for a code that is missing or wrong."""

    code = "second_step_required"


class CredentialsSerializer(serializers.Serializer[Any]):
    """What a person signs in with."""

    username = serializers.CharField(max_length=254)
    password = serializers.CharField(max_length=1024, trim_whitespace=False)
    code = serializers.CharField(
        max_length=20, required=False, help_text="Of an account with two-step sign-in."
    )


class TokenSerializer(serializers.Serializer[Any]):
    """An API key, shown this once."""

    token = serializers.CharField()


class UsageSerializer(serializers.Serializer[Any]):
    """What a user has stored and asked."""

    documents = serializers.IntegerField()
    bytes = serializers.IntegerField()
    pages = serializers.IntegerField()
    messages_today = serializers.IntegerField()


class AccountSerializer(serializers.Serializer[Any]):
    """The signed-in user."""

    id = serializers.IntegerField()
    username = serializers.CharField()
    is_staff = serializers.BooleanField()
    usage = UsageSerializer()
    limits = serializers.DictField(child=serializers.IntegerField(allow_null=True))


class PreferencesSerializer(serializers.ModelSerializer[Preferences]):
    """How a user wants the pages; all of it may be changed."""

    language = serializers.ChoiceField(settings.LANGUAGES, required=False)

    class Meta:
        """As the settings have it."""

        model = Preferences
        fields = ("language", "theme", "send_key", "voice", "speech_rate")


class TokenView(APIView):
    """`POST /auth/token`."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(request=CredentialsSerializer, responses=TokenSerializer)
    def post(self, request: Request) -> Response:
        """A new API key for a user name (or e-mail address) and password."""
        credentials = CredentialsSerializer(data=request.data)
        credentials.is_valid(raise_exception=True)
        user = _authenticate(request, **credentials.validated_data)
        return Response({"token": services.create_key(user=user)})


class MeView(APIView):
    """`GET /me`."""

    @extend_schema(responses=AccountSerializer)
    def get(self, request: Request) -> Response:
        """The signed-in user with usage and limits."""
        return Response(services.describe_account(user=cast("User", request.user)))


class PreferencesView(APIView):
    """`GET`, `PATCH /me/preferences`."""

    @extend_schema(responses=PreferencesSerializer)
    def get(self, request: Request) -> Response:
        """How the user wants the pages."""
        kept = get_preferences(user=cast("User", request.user))
        return Response(PreferencesSerializer(kept).data)

    @extend_schema(request=PreferencesSerializer, responses=PreferencesSerializer)
    def patch(self, request: Request) -> Response:
        """Change some of it; the rest stays."""
        given = PreferencesSerializer(data=request.data, partial=True)
        given.is_valid(raise_exception=True)
        saved = save_preferences(user=cast("User", request.user), **given.validated_data)
        return Response(PreferencesSerializer(saved).data)


def _authenticate(request: Request, username: str, password: str, code: str = "") -> User:
    name = User.normalize_username(username)
    user = get_adapter().authenticate(request._request, username=name, password=password)  # noqa: SLF001 - allauth counts attempts by Django's request
    if user is None or not user.is_active:
        raise InvalidCredentials
    account: User = user
    if not two_step.is_second_step_done(user=account, code=code):
        raise SecondStepRequired
    return account
