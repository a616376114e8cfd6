"""Sign-on by OpenID Connect servers: who may sign in, to which account, with which groups and role.

Allauth implements the protocol; what it leaves out is here. An ID token is accepted only if it is
signed with the server's keys, comes from the configured issuer, is meant for us, has not expired,
and carries the nonce of this sign-in; userinfo must be about the same subject. PKCE is always used.

An account is found by server and subject, never by name. It is found by address only if the server
says the address is verified and linking is allowed, and never for an administrator. If nobody had
proved that address here before, the account then loses its password, keys and second step. People
can also connect an account by hand in the settings: there the session says whose account it is, and
addresses play no part.
"""

import hashlib
import json
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from typing import Any, cast

import jwt
import structlog
from allauth.account import app_settings as account_settings
from allauth.account.adapter import get_adapter as get_account_adapter
from allauth.account.decorators import reauthentication_required
from allauth.account.internal.flows.login import get_authentication_records
from allauth.account.internal.flows.reauthentication import get_reauthentication_flows
from allauth.account.models import EmailAddress
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.models import Authenticator
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.adapter import get_adapter as get_social_adapter
from allauth.socialaccount.forms import DisconnectForm
from allauth.socialaccount.helpers import render_authentication_error
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers.base import AuthError, AuthProcess
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from allauth.socialaccount.views import ConnectionsView
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core import signing
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse, reverse_lazy
from django.utils.decorators import method_decorator
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from requests import PreparedRequest, RequestException, Response, Session
from requests.adapters import BaseAdapter

from documents.audit import Action, record_event
from documents.outgoing import OutgoingClient
from documents.secrets import SecretUnreadable, open_secret
from nura.accounts import services
from nura.accounts.adapter import DIRECTORY_PROVIDER, may_sign_in_here
from nura.accounts.preferences import render_section
from nura.accounts.roles import sync_directory_groups, sync_role
from nura.accounts.signup import SESSION_KEY, consume_invitation, find_invitation
from nura.models import Invitation, SignOnServer
from rag.errors import NuraError

logger = structlog.get_logger()

ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
"""Signatures with a private key of the server; those with our shared secret are not accepted."""
CLOCK_SECONDS = 60
"""Tolerated difference between the clocks."""
ANSWER_SECONDS, ANSWER_BYTES = 8.0, 2**20
"""Limits of a server's whole response: a user is waiting, and a request of ours is held."""
REFUSAL = re.compile(r"\"error\"\s*:\s*\"([a-z_]{1,40})\"")
"""OAuth's error code when there is no token (RFC 6749)."""
MAX_SUBJECT_CHARACTERS, MAX_CLAIM_CHARACTERS = 191, 254
TEXTS = frozenset(("email", "name", "preferred_username", "given_name", "family_name"))
PROTOCOL = "openid_connect"
NAME_CHARACTERS, NAME_TRIES = 100, 100
CONNECT, CONNECT_SECONDS = "connect", 600
"""Query parameter of the link that connects an account, and how long the link is valid."""


class SignOnFailed(OAuth2Error):  # type: ignore[misc]
    """The server cannot be reached, or its response cannot be trusted."""


class SignOnUnanswered(RequestException):
    """No usable response; the message is safe to log."""


class SignOnRequests(BaseAdapter):
    """Transport for requests to servers: follows no redirects, and limits responses."""

    def send(  # noqa: PLR0913, PLR0917 - as requests calls it
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> Response:
        """The response to one request. Raises `RequestException`."""
        address, content = str(request.url), cast("str | bytes | None", request.body) or b""
        headers = {str(name): str(value) for name, value in request.headers.items()}
        headers |= {"Accept-Encoding": "identity"}
        body = content.encode() if isinstance(content, str) else content
        client = OutgoingClient(
            max_bytes=ANSWER_BYTES,
            seconds=ANSWER_SECONDS,
            is_entered=True,
            authorities=verify if isinstance(verify, str) else "",
        )
        try:
            with client, client.open(str(request.method), address, headers, body) as reply:
                answer = reply.read()
        except NuraError as error:
            raise SignOnUnanswered(type(error).__name__, request=request) from error
        response = Response()
        response.status_code, response.url, response.request = reply.status, address, request
        response.headers.update({"content-type": ""} | reply.headers)
        response.raw = BytesIO(answer)
        if response.is_redirect:
            raise SignOnUnanswered("it leads elsewhere", request=request)
        return response

    def close(self) -> None:
        """Nothing is kept open."""


class SignOnAdapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]
    """One sign-in at one server. All of it raises `SignOnFailed`."""

    verifier = ""
    state: dict[str, Any] | None = None
    """The state saved at the start, set once the user has come back."""

    @property
    def openid_config(self) -> dict[str, Any]:
        """The server's configuration document, if its issuer is the configured one."""
        if not hasattr(self, "_config"):
            self._config = fetch_server_configuration(self.get_provider().app.settings["issuer"])
        return self._config

    def get_access_token_data(
        self, request: HttpRequest, app: SocialApp, client: Any, pkce_code_verifier: str = ""
    ) -> dict[str, Any]:
        """The tokens of this sign-in; keeps the verifier that the nonce is derived from."""
        self.verifier = pkce_code_verifier or ""
        with _translate_errors("token"):
            tokens: dict[str, Any] = super().get_access_token_data(
                request, app, client, pkce_code_verifier=pkce_code_verifier
            )
        return tokens

    def complete_login(
        self, request: HttpRequest, app: SocialApp, token: SocialToken, **kwargs: Any
    ) -> SocialLogin:
        """The user who signed in, with all the server says about them as `claims`."""
        claims = self._read_id_token(app, kwargs["response"].get("id_token"))
        if "userinfo_endpoint" in self.openid_config:
            with _translate_errors("userinfo"):
                user_info = self._fetch_user_info(token.token)
            if not isinstance(user_info, dict) or user_info.get("sub") != claims["sub"]:
                raise SignOnFailed("userinfo of another subject")
            claims |= user_info
        claims = _clean_claims(claims)
        login = self.get_provider().sociallogin_from_response(request, claims)
        login.claims = claims
        return login

    def _read_id_token(self, app: SocialApp, id_token: Any) -> dict[str, Any]:
        if not isinstance(id_token, str):
            raise SignOnFailed("no ID token")
        try:
            keys = jwt.PyJWKSet.from_dict(fetch_json(self.openid_config["jwks_uri"]))
            claims: dict[str, Any] = jwt.decode(
                id_token,
                _choose_key(keys, jwt.get_unverified_header(id_token).get("kid")),
                algorithms=list(ALGORITHMS),
                audience=app.client_id,
                issuer=self.openid_config["issuer"],
                leeway=CLOCK_SECONDS,
                options={"require": ["iss", "sub", "aud", "exp", "iat"]},
            )
        except jwt.PyJWTError as error:
            raise SignOnFailed(f"ID token: {type(error).__name__}") from error
        if claims.get("nonce") != make_nonce(self.verifier):
            raise SignOnFailed("ID token: nonce")
        if (
            isinstance(claims["aud"], list)
            and len(claims["aud"]) > 1
            and claims.get("azp") != app.client_id
        ):
            raise SignOnFailed("ID token: azp")
        return claims


@contextmanager
def _translate_errors(step: str) -> Iterator[None]:
    """Raise errors as `SignOnFailed` with OAuth's own code only: messages may contain keys."""
    try:
        yield
    except SignOnFailed:
        raise
    except OAuth2Error as error:
        match = REFUSAL.search(str(error))
        raise SignOnFailed(f"{step}: {match[1] if match else 'unreadable'}") from error
    except (RequestException, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise SignOnFailed(f"{step}: {_name_error(error)}") from error


def _name_error(error: Exception) -> str:
    return str(error) if isinstance(error, SignOnUnanswered) else type(error).__name__


def _clean_claims(claims: Mapping[str, Any]) -> dict[str, Any]:
    """The claims without malformed ones. Raises `SignOnFailed` for what cannot be stored."""
    if not isinstance(claims["sub"], str) or not 0 < len(claims["sub"]) <= MAX_SUBJECT_CHARACTERS:
        raise SignOnFailed("ID token: sub")
    try:
        encoded = json.dumps(claims, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise SignOnFailed("ID token: half a character") from error
    if rb"\u0000" in encoded:
        raise SignOnFailed("ID token: a character that cannot be kept")
    return {
        name: value
        for name, value in claims.items()
        if name not in TEXTS or (isinstance(value, str) and len(value) <= MAX_CLAIM_CHARACTERS)
    }


def _choose_key(keys: jwt.PyJWKSet, kid: str | None) -> jwt.PyJWK:
    usable = [key for key in keys.keys if key.public_key_use in {None, "sig"}]
    matching = [key for key in usable if key.key_id == kid] if kid else usable
    if len(matching) != 1:
        raise jwt.InvalidKeyError
    return matching[0]


def make_nonce(verifier: str) -> str:
    """The nonce of a sign-in, derived from its PKCE verifier, which stays in the session."""
    digest = hashlib.sha256(b"nura nonce " + verifier.encode()).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def fetch_server_configuration(issuer: str) -> dict[str, Any]:
    """The OpenID configuration of the server at this address. Raises `SignOnFailed`."""
    config = fetch_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    if str(config.get("issuer", "")).rstrip("/") != issuer.rstrip("/"):
        raise SignOnFailed("discovery: another issuer")
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
        if not isinstance(config.get(name), str):
            raise SignOnFailed(f"discovery: no {name}")
    return config


def fetch_json(address: str) -> dict[str, Any]:
    """A JSON object from the server. Raises `SignOnFailed`."""
    try:
        with get_social_adapter().get_requests_session() as session:
            response = session.get(address)
            response.raise_for_status()
            body = response.json()
    except (RequestException, ValueError, RecursionError) as error:
        raise SignOnFailed(f"{address}: {_name_error(error)}") from error
    if not isinstance(body, dict):
        raise SignOnFailed(f"{address}: no object")
    return body


class SignOnProvider(OpenIDConnectProvider):  # type: ignore[misc]
    """One server, as allauth sees it."""

    oauth2_adapter_class = SignOnAdapter

    def get_pkce_params(self) -> dict[str, str]:
        """PKCE's parameters, and the nonce derived from them."""
        params: dict[str, str] = super().get_pkce_params()
        return params | {"nonce": make_nonce(params["code_verifier"])}

    def get_auth_params_from_request(self, request: HttpRequest, action: str) -> dict[str, str]:
        """None of a visitor's own making."""
        return {}

    def get_redirect_from_request_kwargs(self, request: HttpRequest) -> dict[str, Any]:
        """Only sign in, unless the address is a connect link from the settings."""
        kwargs: dict[str, Any] = super().get_redirect_from_request_kwargs(request)
        is_connecting = is_connect_link(request, self.sub_id)
        return kwargs | {"process": AuthProcess.CONNECT if is_connecting else AuthProcess.LOGIN}

    def serialize(self) -> dict[str, Any]:
        """The short name: client ids of two servers may be the same."""
        return {"id": self.sub_id}

    def get_scope_from_request(self, request: HttpRequest) -> list[str]:
        """None of a visitor's own making."""
        return list(self.get_scope())

    def extract_uid(self, data: dict[str, Any]) -> str:
        """The server's permanent id of the person."""
        return str(data["sub"])

    def extract_extra_data(self, data: dict[str, Any]) -> dict[str, Any]:
        """The claims to store: enough to tell accounts apart."""
        return {name: data[name] for name in ("email", "preferred_username") if data.get(name)}

    def extract_common_fields(self, data: dict[str, Any]) -> dict[str, Any]:
        """Name, and the address if it is verified."""
        fields: dict[str, Any] = super().extract_common_fields(data)
        return fields | {"email": self._find_email(data)}

    def extract_email_addresses(self, data: dict[str, Any]) -> list[EmailAddress]:
        """The address if it is verified; otherwise it could be anybody's."""
        email = self._find_email(data)
        return [EmailAddress(email=email, verified=True, primary=True)] if email else []

    def _find_email(self, data: dict[str, Any]) -> str:
        is_verified = data.get("email_verified") in {True, "true"}
        is_vouched_for = self.app.settings["vouches_for_email"]
        return str(data.get("email") or "").lower() if is_verified or is_vouched_for else ""


class SignOnAccounts(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """Which servers there are, and which account a person from one gets."""

    error_messages = DefaultSocialAccountAdapter.error_messages | {
        "no_password": gettext_lazy(
            "Set a password first. Without one you could not sign in any more."
        ),
        "no_verified_email": gettext_lazy(
            "Confirm your e-mail address first. It is needed if you forget your password."
        ),
    }

    def get_requests_session(self) -> Session:
        """The session for all requests to servers."""
        session = Session()
        for scheme in ("https://", "http://"):
            session.mount(scheme, SignOnRequests())
        return session

    def list_apps(
        self, request: HttpRequest, provider: str | None = None, client_id: str | None = None
    ) -> list[SocialApp]:
        """The active servers, as allauth's apps."""
        rows = SignOnServer.objects.filter(is_active=True)
        if provider and provider != PROTOCOL:
            rows = rows.filter(slug=provider)
        if client_id:
            rows = rows.filter(client_id=client_id)
        return [_to_app(row) for row in rows]

    def list_providers(self, request: HttpRequest) -> list[SignOnProvider]:
        """One for each server."""
        return [SignOnProvider(request, app=app) for app in self.list_apps(request)]

    def get_provider(
        self, request: HttpRequest, provider: str, client_id: str | None = None
    ) -> SignOnProvider:
        """The server of that name. Raises `SocialApp.DoesNotExist`."""
        return SignOnProvider(request, app=self.get_app(request, provider, client_id))

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, exception: Any = None, **kwargs: Any
    ) -> None:
        """Record why sign-on failed; a user who was connecting an account is sent back."""
        reason = str(exception or kwargs.get("error") or "unknown")[:200]
        logger.warning("sign_on_failed", server=provider.sub_id, reason=reason)
        state = (kwargs.get("extra_context") or {}).get("state") or {}
        if state.get("process") == AuthProcess.CONNECT or CONNECT in request.GET:
            if kwargs.get("error") != AuthError.CANCELLED:
                _show_not_connected(request, provider.name)
            raise ImmediateHttpResponse(redirect("accounts:sign-on"))
        record_event(Action.SIGN_IN_FAILED, details={"server": provider.sub_id, "reason": reason})

    def authenticate_by_email(self, sociallogin: SocialLogin) -> tuple[User, str] | None:
        """The user with that address, if linking is allowed; never an administrator."""
        if is_connecting(sociallogin) or not sociallogin.provider.app.settings["link_by_email"]:
            return None
        for address in sociallogin.email_addresses:
            users = list(find_users_by_email(address.email)[:2])
            if len(users) == 1 and not users[0].is_staff:
                return users[0], address.email
        return None

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Refuse a person who may not sign in; else update groups and role."""
        server = SignOnServer.objects.get(slug=sociallogin.account.provider)
        emails = [address.email for address in sociallogin.email_addresses]
        if not server.accepts(emails):
            self._refuse(request, sociallogin, "domain")
        if is_connecting(sociallogin):
            return  # groups and role are updated at sign-in
        if sociallogin.is_existing:
            user = cast("User", sociallogin.user)
            if address := sociallogin._did_authenticate_by_email:  # noqa: SLF001 - it tells nowhere else
                revoke_unverified_credentials(user=user, email=address)
            sync_with_server(user=user, server=server, claims=sociallogin.claims)
        elif any(find_users_by_email(email).exists() for email in emails):
            self._refuse(request, sociallogin, "email_taken")

    def get_connect_redirect_url(self, request: HttpRequest, socialaccount: SocialAccount) -> str:
        """Back to the list of connections."""
        return reverse("accounts:sign-on")

    def validate_disconnect(
        self, account: SocialAccount, accounts: QuerySet[SocialAccount]
    ) -> None:
        """Refuse to remove the last way to sign in; `accounts` are all connections of the user."""
        slugs = [server.slug for server in list_servers()]
        if settings.LDAP_URL:
            slugs.append(DIRECTORY_PROVIDER)
        if accounts.exclude(pk=account.pk).filter(provider__in=slugs).exists():
            return
        if not account.user.has_usable_password():
            raise self.validation_error("no_password")
        if not may_sign_in_here(account.user):
            raise ValidationError(
                _("This server is your only way to sign in, so it stays connected.")
            )

    def _refuse(self, request: HttpRequest, sociallogin: SocialLogin, reason: str) -> None:
        if is_connecting(sociallogin):
            _show_not_connected(request, sociallogin.provider.name, reason)
            raise ImmediateHttpResponse(redirect("accounts:sign-on"))
        server = sociallogin.account.provider
        record_event(Action.SIGN_IN_FAILED, details={"server": server, "reason": reason})
        context = {"reason": reason, "server": sociallogin.provider.name}
        page = render(request, "socialaccount/refused.html", context, status=403)
        raise ImmediateHttpResponse(page)

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        """Whether a new person gets an account."""
        server = SignOnServer.objects.get(slug=sociallogin.account.provider)
        if server.sign_up == SignOnServer.SignUp.EVERYBODY:
            return True
        if server.sign_up == SignOnServer.SignUp.NOBODY:
            return False
        return find_invitation(request) is not None or bool(_find_mailed_invitation(sociallogin))

    @transaction.atomic
    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        """Create the account of a new person, with the groups of server and invitation."""
        user: User = sociallogin.user
        user.set_unusable_password()
        user.username = choose_username(sociallogin.claims, user.email)
        sociallogin.save(request)
        server = SignOnServer.objects.get(slug=sociallogin.account.provider)
        details = {"by": "sign-on", "server": server.slug}
        record_event(Action.ACCOUNT_CREATED, actor=user, subject=user, details=details)
        if invitation := _find_mailed_invitation(sociallogin):
            request.session.setdefault(SESSION_KEY, invitation.pk)
        if SESSION_KEY in request.session:
            consume_invitation(request, user)
        sync_with_server(user=user, server=server, claims=sociallogin.claims)
        return user


def _to_app(server: SignOnServer) -> SocialApp:
    try:
        secret = open_secret(server.sealed_secret)
    except SecretUnreadable:
        logger.warning("sign_on_secret_unreadable", server=server.slug)
        secret = ""  # the server will refuse it and say so
    return SocialApp(
        provider=PROTOCOL,
        provider_id=server.slug,
        name=server.name,
        client_id=server.client_id,
        secret=secret,
        settings={
            "issuer": server.issuer,
            "server_url": server.issuer,
            "oauth_pkce_enabled": True,
            "link_by_email": server.link_by_email,
            "vouches_for_email": server.vouches_for_email,
        },
    )


def find_users_by_email(email: str) -> QuerySet[User]:
    """The users with that e-mail address, confirmed or not, in any letter case."""
    primary, listed = Q(email__iexact=email), Q(emailaddress__email__iexact=email)
    return User.objects.filter(primary | listed).distinct()


def _find_mailed_invitation(sociallogin: SocialLogin) -> Invitation | None:
    emails = [address.email for address in sociallogin.email_addresses]
    return Invitation.objects.open().filter(email__in=emails).first() if emails else None


def choose_username(claims: dict[str, Any], email: str) -> str:
    """A free user name that resembles no other, if possible the one the server suggests."""
    account = get_account_adapter()
    suggestions = (claims.get("preferred_username"), email, claims.get("name"), "user")
    for suggestion in suggestions:
        base = str(suggestion or "").partition("@")[0].strip()[:NAME_CHARACTERS]
        for number in range(1, NAME_TRIES if base else 1):
            try:
                return str(account.clean_username(base if number == 1 else f"{base}{number}"))
            except ValidationError as error:
                if getattr(error, "code", "") in {"confusable", "unseen", "invalid"}:
                    break
    return f"user-{hashlib.sha256(str(claims['sub']).encode()).hexdigest()[:16]}"


@transaction.atomic
def revoke_unverified_credentials(*, user: User, email: str) -> None:
    """Revoke keys and second step of an account linked by an address that was never verified."""
    if EmailAddress.objects.filter(user=user, email__iexact=email, verified=True).exists():
        return
    services.revoke_keys(user=user, actor=user)
    if Authenticator.objects.filter(user=user).delete()[0]:
        details = {"change": "ended_by_sign_on"}
        record_event(Action.SECOND_STEP_CHANGED, actor=user, subject=user, details=details)


@transaction.atomic
def sync_with_server(*, user: User, server: SignOnServer, claims: dict[str, Any]) -> None:
    """Set groups and role to what the server says, if it says anything about them."""
    names = read_groups(server, claims)
    if names is None:
        return
    source = f"sign-on:{server.slug}"
    sync_directory_groups(user=user, names=names, source=source)
    sync_role(
        user=user,
        names=names,
        administrators=server.administrators,
        auditors=server.auditors,
        source=source,
    )


def read_groups(server: SignOnServer, claims: dict[str, Any]) -> list[str] | None:
    """The groups named by the server; None if it has no say, or too many groups to list.

    Keycloak's paths lose their leading slash.
    """
    if not server.groups_claim:
        return None
    groups = claims.get(server.groups_claim, [])
    if not groups and server.groups_claim in claims.get("_claim_names", {}):
        logger.warning("groups_not_told", server=server.slug)  # Entra ID, for more than 200 groups
        return None
    names = [groups] if isinstance(groups, str) else groups
    return [str(name).removeprefix("/") for name in names] if isinstance(names, list) else []


@transaction.atomic
def end_former_connections(*, slug: str, actor: User) -> None:
    """End connections left by a deleted server with the short name of a new one.

    The new server's ids may be other people's, who would get into these accounts.
    """
    former = SocialAccount.objects.filter(provider=slug)
    for account in former.select_related("user"):
        details = {"change": "account_disconnected", "server": slug}
        record_event(Action.ACCOUNT_CHANGED, actor=actor, subject=account.user, details=details)
    former.delete()


# Connecting by hand. The link to the server is valid in one session only, and made by a page that
# has asked for the password, so a link sent by somebody else cannot connect an account.


def is_connecting(sociallogin: SocialLogin) -> bool:
    """Whether the user came to connect an account, not to sign in."""
    return bool(sociallogin.state.get("process") == AuthProcess.CONNECT)


def make_connect_link(request: HttpRequest, server: SignOnServer) -> str:
    """The link that connects the account of this session with one at the server."""
    token = signing.dumps(server.slug, salt=_get_connect_salt(request))
    query = urlencode({CONNECT: token})
    return f"{reverse('openid_connect_login', args=[server.slug])}?{query}"


def is_connect_link(request: HttpRequest, slug: str) -> bool:
    """Whether the link was made recently in this session for that server."""
    if not request.user.is_authenticated:
        return False
    try:
        signed_slug = signing.loads(
            request.GET.get(CONNECT, ""),
            salt=_get_connect_salt(request),
            max_age=CONNECT_SECONDS,
        )
    except signing.BadSignature:
        return False
    return bool(signed_slug == slug)


def _get_connect_salt(request: HttpRequest) -> str:
    return f"nura.connect:{request.session.session_key}:{request.user.pk}"


def _show_not_connected(request: HttpRequest, name: str, reason: str = "") -> None:
    sentence = (
        _("Your account at %(name)s has no verified e-mail address of this organization.")
        if reason == "domain"
        else _("%(name)s could not be reached, or its reply could not be trusted.")
    )
    messages.error(request, f"{_('Nothing was connected.')} {sentence % {'name': name}}")


class DisconnectServerForm(DisconnectForm):  # type: ignore[misc]
    """One of the connections to end; those with a directory can only end there."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        field = self.fields["account"]
        field.queryset = field.queryset.filter(
            provider__in=[server.slug for server in list_servers()]
        )


@method_decorator(never_cache, name="dispatch")
class SignOnSection(ConnectionsView):  # type: ignore[misc]
    """The servers by which the user can sign in; POST ends a connection."""

    form_class = DisconnectServerForm
    success_url = reverse_lazy("accounts:sign-on")

    def render_to_response(self, context: dict[str, Any], **options: Any) -> HttpResponse:
        """Render connections, and servers to connect."""
        servers = {server.slug: server for server in list_servers()}
        accounts = SocialAccount.objects.filter(user=cast("User", self.request.user)).order_by("pk")
        connected = [
            {
                "account": account,
                "server": servers[account.provider],
                "name": _name_account(account),
            }
            for account in accounts
            if account.provider in servers
        ]
        connected_slugs = {account.provider for account in accounts}
        values = {
            "form": context["form"],
            "connected": connected,
            "is_of_directory": DIRECTORY_PROVIDER in connected_slugs,
            "servers": [server for slug, server in servers.items() if slug not in connected_slugs],
        }
        return render_section(self.request, "accounts:profile", "settings/sign_on.html", values)


def _name_account(account: SocialAccount) -> str:
    """The name of the account at the server; the server's id if it says nothing else."""
    data = account.extra_data
    return str(data.get("email") or data.get("preferred_username") or account.uid)


@never_cache
@login_required
@reauthentication_required  # type: ignore[untyped-decorator]
@require_safe
def connect_server(request: HttpRequest, slug: str) -> HttpResponse:
    """Explain what connecting means, with the link to the server."""
    server = get_object_or_404(SignOnServer, slug=slug, is_active=True)
    link = make_connect_link(request, server) if _has_signed_in_lately(request) else ""
    context = {"server": server, "link": link}
    return render_section(request, "accounts:profile", "settings/sign_on_connect.html", context)


def _has_signed_in_lately(request: HttpRequest) -> bool:
    """Whether the user has just proved their identity; without a password, by signing in again."""
    if get_reauthentication_flows(request.user):
        return True  # then `reauthentication_required` has asked
    records = get_authentication_records(request, request.user)
    newest = max((record["at"] for record in records), default=0.0)
    return bool(time.time() - newest < account_settings.REAUTHENTICATION_TIMEOUT)


# Pages


def start_sign_in(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Send the visitor to the server."""
    if CONNECT in request.GET and not is_connect_link(request, provider_id):
        return redirect("accounts:sign-on")
    return _run_view(request, provider_id, OAuth2LoginView)


def finish_sign_in(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Receive the user coming back from the server."""
    return _run_view(request, provider_id, SignOnCallback)


class SignOnCallback(OAuth2CallbackView):  # type: ignore[misc]
    """Allauth's view, which also keeps the saved state for when the server cannot be reached."""

    def _get_state(self, request: HttpRequest, provider: SignOnProvider) -> tuple[Any, Any]:
        state, response = super()._get_state(request, provider)
        self.adapter.state = state
        return state, response


def _run_view(request: HttpRequest, provider_id: str, view: Any) -> HttpResponse:
    adapter = SignOnAdapter(request, provider_id)
    try:
        provider = adapter.get_provider()
    except SocialApp.DoesNotExist as error:
        raise Http404 from error
    try:
        response: HttpResponse = view.adapter_view(adapter)(request)
    except (OAuth2Error, RequestException) as error:
        extra_context = {"state": adapter.state}
        response = render_authentication_error(
            request, provider, exception=error, extra_context=extra_context
        )
    response.headers["Cache-Control"] = "no-store"
    return response


@require_safe
@never_cache
def show_signed_out(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Signed out of Nura; the server's own sign-out is one click away."""
    server = get_object_or_404(SignOnServer, slug=provider_id, is_active=True)
    try:
        address = fetch_server_configuration(server.issuer).get("end_session_endpoint", "")
    except SignOnFailed:
        address = ""
    if address:
        home_url = request.build_absolute_uri("/")
        query = {"client_id": server.client_id, "post_logout_redirect_uri": home_url}
        address = f"{address}?{urlencode(query)}"
    return render(request, "socialaccount/signed_out.html", {"server": server, "address": address})


def list_servers() -> list[SignOnServer]:
    """The buttons of the sign-in page."""
    return list(SignOnServer.objects.filter(is_active=True).order_by("name"))
