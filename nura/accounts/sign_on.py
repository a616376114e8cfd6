"""Sign-on by servers of OpenID Connect: who may come in, as whom, and with which groups and role.

Allauth speaks the protocol; what it leaves out is here. An ID token is taken only with a signature
of the server's keys, from the issuer that was set up, for us, in time, and with the nonce of this
sign-in; what the server tells besides must be of the same subject. PKCE is always used.

An account is found by server and subject, never by a name. By an address it is found where the
server says that it is verified and linking is allowed, and never an administrator's. Whoever may
have held such an account before, having typed the address only, loses password, keys and second
step. By hand a person connects an account in the settings: it is then the session that says whose
account it is, and no address plays a part.
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
from nura.accounts.models import Invitation, SignOnServer
from nura.accounts.preferences import render_section
from nura.accounts.roles import sync_directory_groups, sync_role
from nura.accounts.signup import SESSION_KEY, consume_invitation, find_invitation
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
"""Signatures with a key of the server's own; one with our shared secret is none of its."""
CLOCK_SECONDS = 60
"""Clocks of servers are that much off."""
ANSWER_SECONDS, ANSWER_BYTES = 8.0, 2**20
"""Within which a server answers, all of it: somebody waits, and keeps a place of ours."""
REFUSAL = re.compile(r"\"error\"\s*:\s*\"([a-z_]{1,40})\"")
"""The word that OAuth has for why there is no token (RFC 6749)."""
MAX_SUBJECT_CHARACTERS, MAX_CLAIM_CHARACTERS = 191, 254
TEXTS = frozenset(("email", "name", "preferred_username", "given_name", "family_name"))
PROTOCOL = "openid_connect"
NAME_CHARACTERS, NAME_TRIES = 100, 100
CONNECT, CONNECT_SECONDS = "connect", 600
"""What the link carries that connects an account, and how long it is good."""


class SignOnFailed(OAuth2Error):  # type: ignore[misc]
    """The server cannot be reached, or what it says cannot be believed."""


class SignOnUnanswered(RequestException):
    """Why there is no answer, in a word that may be written down."""


class SignOnRequests(BaseAdapter):
    """How a server is asked: no redirect is followed, and no answer is without an end."""

    def send(  # noqa: PLR0913, PLR0917 - as requests calls it
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> Response:
        """The answer to one request. Raises `RequestException`."""
        address, given = str(request.url), cast("str | bytes | None", request.body) or b""
        headers = {str(name): str(value) for name, value in request.headers.items()}
        headers |= {"Accept-Encoding": "identity"}
        body = given.encode() if isinstance(given, str) else given
        client = OutgoingClient(
            max_bytes=ANSWER_BYTES,
            seconds=ANSWER_SECONDS,
            is_entered=True,
            authorities=verify if isinstance(verify, str) else "",
        )
        try:
            with client, client.open(str(request.method), address, headers, body) as opened:
                told = opened.read()
        except NuraError as error:
            raise SignOnUnanswered(type(error).__name__, request=request) from error
        response = Response()
        response.status_code, response.url, response.request = opened.status, address, request
        response.headers.update({"content-type": ""} | opened.headers)
        response.raw = BytesIO(told)
        if response.is_redirect:
            raise SignOnUnanswered("it leads elsewhere", request=request)
        return response

    def close(self) -> None:
        """Nothing is kept open."""


class SignOnAdapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]
    """One sign-in at one server. All of it raises `SignOnFailed`."""

    verifier = ""
    state: dict[str, Any] | None = None
    """What was kept when it began, once somebody has come back."""

    @property
    def openid_config(self) -> dict[str, Any]:
        """What the server says of itself, if it is the one that was set up."""
        if not hasattr(self, "_config"):
            self._config = fetch_server_configuration(self.get_provider().app.settings["issuer"])
        return self._config

    def get_access_token_data(
        self, request: HttpRequest, app: SocialApp, client: Any, pkce_code_verifier: str = ""
    ) -> dict[str, Any]:
        """The tokens of this sign-in, whose verifier the nonce comes from."""
        self.verifier = pkce_code_verifier or ""
        with _translate_errors("token"):
            given: dict[str, Any] = super().get_access_token_data(
                request, app, client, pkce_code_verifier=pkce_code_verifier
            )
        return given

    def complete_login(
        self, request: HttpRequest, app: SocialApp, token: SocialToken, **told: Any
    ) -> SocialLogin:
        """Who has signed in, with all that the server says of them as `claims`."""
        claims = self._read_id_token(app, told["response"].get("id_token"))
        if "userinfo_endpoint" in self.openid_config:
            with _translate_errors("userinfo"):
                more = self._fetch_user_info(token.token)
            if not isinstance(more, dict) or more.get("sub") != claims["sub"]:
                raise SignOnFailed("userinfo of another subject")
            claims |= more
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
        said = REFUSAL.search(str(error))
        raise SignOnFailed(f"{step}: {said[1] if said else 'unreadable'}") from error
    except (RequestException, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise SignOnFailed(f"{step}: {_name_error(error)}") from error


def _name_error(error: Exception) -> str:
    return str(error) if isinstance(error, SignOnUnanswered) else type(error).__name__


def _clean_claims(claims: Mapping[str, Any]) -> dict[str, Any]:
    """The claims without those of another shape. Raises `SignOnFailed` for what cannot be kept."""
    if not isinstance(claims["sub"], str) or not 0 < len(claims["sub"]) <= MAX_SUBJECT_CHARACTERS:
        raise SignOnFailed("ID token: sub")
    try:
        told = json.dumps(claims, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise SignOnFailed("ID token: half a character") from error
    if rb"\u0000" in told:
        raise SignOnFailed("ID token: a character that cannot be kept")
    return {
        name: value
        for name, value in claims.items()
        if name not in TEXTS or (isinstance(value, str) and len(value) <= MAX_CLAIM_CHARACTERS)
    }


def _choose_key(keys: jwt.PyJWKSet, kid: str | None) -> jwt.PyJWK:
    usable = [one for one in keys.keys if one.public_key_use in {None, "sig"}]
    named = [one for one in usable if one.key_id == kid] if kid else usable
    if len(named) != 1:
        raise jwt.InvalidKeyError
    return named[0]


def make_nonce(verifier: str) -> str:
    """The nonce of the sign-in that has this verifier of PKCE, which stays in the session."""
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
    """An object of the server. Raises `SignOnFailed`."""
    try:
        with get_social_adapter().get_requests_session() as session:
            response = session.get(address)
            response.raise_for_status()
            found = response.json()
    except (RequestException, ValueError, RecursionError) as error:
        raise SignOnFailed(f"{address}: {_name_error(error)}") from error
    if not isinstance(found, dict):
        raise SignOnFailed(f"{address}: no object")
    return found


class SignOnProvider(OpenIDConnectProvider):  # type: ignore[misc]
    """One server, as allauth sees it."""

    oauth2_adapter_class = SignOnAdapter

    def get_pkce_params(self) -> dict[str, str]:
        """PKCE, and the nonce that comes of it."""
        params: dict[str, str] = super().get_pkce_params()
        return params | {"nonce": make_nonce(params["code_verifier"])}

    def get_auth_params_from_request(self, request: HttpRequest, action: str) -> dict[str, str]:
        """None of a visitor's own making."""
        return {}

    def get_redirect_from_request_kwargs(self, request: HttpRequest) -> dict[str, Any]:
        """Signing in is all that an address can begin, but for the link of the settings."""
        found: dict[str, Any] = super().get_redirect_from_request_kwargs(request)
        is_connecting = is_connect_link(request, self.sub_id)
        return found | {"process": AuthProcess.CONNECT if is_connecting else AuthProcess.LOGIN}

    def serialize(self) -> dict[str, Any]:
        """By the short name: two servers may know us by the same client id."""
        return {"id": self.sub_id}

    def get_scope_from_request(self, request: HttpRequest) -> list[str]:
        """None of a visitor's own making."""
        return list(self.get_scope())

    def extract_uid(self, data: dict[str, Any]) -> str:
        """What the server calls the person, for ever."""
        return str(data["sub"])

    def extract_extra_data(self, data: dict[str, Any]) -> dict[str, Any]:
        """What is kept: enough to tell accounts apart."""
        return {name: data[name] for name in ("email", "preferred_username") if data.get(name)}

    def extract_common_fields(self, data: dict[str, Any]) -> dict[str, Any]:
        """Name, and the address if it is verified."""
        fields: dict[str, Any] = super().extract_common_fields(data)
        return fields | {"email": self._find_email(data)}

    def extract_email_addresses(self, data: dict[str, Any]) -> list[EmailAddress]:
        """The address if it is verified; another one might be anybody's."""
        email = self._find_email(data)
        return [EmailAddress(email=email, verified=True, primary=True)] if email else []

    def _find_email(self, data: dict[str, Any]) -> str:
        is_verified = data.get("email_verified") in {True, "true"}
        vouched = self.app.settings["vouches_for_email"]
        return str(data.get("email") or "").lower() if is_verified or vouched else ""


class SignOnAccounts(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """Which servers there are, and which account somebody gets who comes from one."""

    error_messages = DefaultSocialAccountAdapter.error_messages | {
        "no_password": gettext_lazy(
            "Set a password first. Without one you could not sign in any more."
        ),
        "no_verified_email": gettext_lazy(
            "Confirm your e-mail address first. It is needed if you forget your password."
        ),
    }

    def get_requests_session(self) -> Session:
        """What all requests to servers are made with."""
        session = Session()
        for scheme in ("https://", "http://"):
            session.mount(scheme, SignOnRequests())
        return session

    def list_apps(
        self, request: HttpRequest, provider: str | None = None, client_id: str | None = None
    ) -> list[SocialApp]:
        """The servers that are set up and switched on, as allauth describes one."""
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
        self, request: HttpRequest, provider: Any, exception: Any = None, **told: Any
    ) -> None:
        """Write down why nobody came in; who wanted to connect gets back to the settings."""
        reason = str(exception or told.get("error") or "unknown")[:200]
        logger.warning("sign_on_failed", server=provider.sub_id, reason=reason)
        state = (told.get("extra_context") or {}).get("state") or {}
        if state.get("process") == AuthProcess.CONNECT or CONNECT in request.GET:
            if told.get("error") != AuthError.CANCELLED:
                _show_not_connected(request, provider.name)
            raise ImmediateHttpResponse(redirect("accounts:sign-on"))
        record_event(Action.SIGN_IN_FAILED, details={"server": provider.sub_id, "reason": reason})

    def authenticate_by_email(self, sociallogin: SocialLogin) -> tuple[User, str] | None:
        """Somebody with that address, where linking is allowed; never an administrator."""
        if is_connecting(sociallogin) or not sociallogin.provider.app.settings["link_by_email"]:
            return None
        for address in sociallogin.email_addresses:
            users = list(find_users_by_email(address.email)[:2])
            if len(users) == 1 and not users[0].is_staff:
                return users[0], address.email
        return None

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Refuse who may not come in; bring groups and role of the others up to date."""
        server = SignOnServer.objects.get(slug=sociallogin.account.provider)
        emails = [address.email for address in sociallogin.email_addresses]
        if not server.accepts(emails):
            self._refuse(request, sociallogin, "domain")
        if is_connecting(sociallogin):
            return  # groups and role follow when somebody signs in by it
        if sociallogin.is_existing:
            user = cast("User", sociallogin.user)
            if address := sociallogin._did_authenticate_by_email:  # noqa: SLF001 - it tells nowhere else
                end_unproved_ways_in(user=user, email=address)
            sync_with_server(user=user, server=server, claims=sociallogin.claims)
        elif any(find_users_by_email(email).exists() for email in emails):
            self._refuse(request, sociallogin, "email_taken")

    def get_connect_redirect_url(self, request: HttpRequest, socialaccount: SocialAccount) -> str:
        """Back to where the connections are listed."""
        return reverse("accounts:sign-on")

    def validate_disconnect(
        self, account: SocialAccount, accounts: QuerySet[SocialAccount]
    ) -> None:
        """Refuse to take away the last way in; `accounts` are all that the person has connected."""
        usable = [one.slug for one in list_servers()]
        if settings.LDAP_URL:
            usable.append(DIRECTORY_PROVIDER)
        if accounts.exclude(pk=account.pk).filter(provider__in=usable).exists():
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
        told = {"reason": reason, "server": sociallogin.provider.name}
        page = render(request, "socialaccount/refused.html", told, status=403)
        raise ImmediateHttpResponse(page)

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        """Whether somebody who is new gets an account."""
        server = SignOnServer.objects.get(slug=sociallogin.account.provider)
        if server.sign_up == SignOnServer.SignUp.EVERYBODY:
            return True
        if server.sign_up == SignOnServer.SignUp.NOBODY:
            return False
        return find_invitation(request) is not None or bool(_find_invited(sociallogin))

    @transaction.atomic
    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        """The account of somebody who is new, in the groups that server and invitation say."""
        user: User = sociallogin.user
        user.set_unusable_password()
        user.username = choose_username(sociallogin.claims, user.email)
        sociallogin.save(request)
        server = SignOnServer.objects.get(slug=sociallogin.account.provider)
        way = {"by": "sign-on", "server": server.slug}
        record_event(Action.ACCOUNT_CREATED, actor=user, subject=user, details=way)
        if invited := _find_invited(sociallogin):
            request.session.setdefault(SESSION_KEY, invited.pk)
        if SESSION_KEY in request.session:
            consume_invitation(request, user)
        sync_with_server(user=user, server=server, claims=sociallogin.claims)
        return user


def _to_app(server: SignOnServer) -> SocialApp:
    try:
        secret = open_secret(server.sealed_secret)
    except SecretUnreadable:
        logger.warning("sign_on_secret_unreadable", server=server.slug)
        secret = ""  # the server refuses it, and that is told
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
    own, kept = Q(email__iexact=email), Q(emailaddress__email__iexact=email)
    return User.objects.filter(own | kept).distinct()


def _find_invited(sociallogin: SocialLogin) -> Invitation | None:
    emails = [address.email for address in sociallogin.email_addresses]
    return Invitation.objects.open().filter(email__in=emails).first() if emails else None


def choose_username(claims: dict[str, Any], email: str) -> str:
    """A name that nobody has and that passes for no other, as the server says where it can be."""
    account = get_account_adapter()
    wanted = (claims.get("preferred_username"), email, claims.get("name"), "user")
    for told in wanted:
        base = str(told or "").partition("@")[0].strip()[:NAME_CHARACTERS]
        for number in range(1, NAME_TRIES if base else 1):
            try:
                return str(account.clean_username(base if number == 1 else f"{base}{number}"))
            except ValidationError as error:
                if getattr(error, "code", "") in {"confusable", "unseen", "invalid"}:
                    break
    return f"user-{hashlib.sha256(str(claims['sub']).encode()).hexdigest()[:16]}"


@transaction.atomic
def end_unproved_ways_in(*, user: User, email: str) -> None:
    """End keys and second step of an account that is linked by an address nobody had proved."""
    if EmailAddress.objects.filter(user=user, email__iexact=email, verified=True).exists():
        return
    services.revoke_keys(user=user, actor=user)
    if Authenticator.objects.filter(user=user).delete()[0]:
        ended = {"change": "ended_by_sign_on"}
        record_event(Action.SECOND_STEP_CHANGED, actor=user, subject=user, details=ended)


@transaction.atomic
def sync_with_server(*, user: User, server: SignOnServer, claims: dict[str, Any]) -> None:
    """Set groups and role to what the server says, where it says anything about them."""
    names = read_groups(server, claims)
    if names is None:
        return
    way = f"sign-on:{server.slug}"
    sync_directory_groups(user=user, names=names, way=way)
    sync_role(
        user=user,
        names=names,
        administrators=server.administrators,
        auditors=server.auditors,
        way=way,
    )


def read_groups(server: SignOnServer, claims: dict[str, Any]) -> list[str] | None:
    """The groups that the server tells; None where it has no say, or tells too many to say them.

    Paths, as Keycloak writes them, go without the slash before them.
    """
    if not server.groups_claim:
        return None
    told = claims.get(server.groups_claim, [])
    if not told and server.groups_claim in claims.get("_claim_names", {}):
        logger.warning("groups_not_told", server=server.slug)  # Entra ID, for more than 200 groups
        return None
    listed = [told] if isinstance(told, str) else told
    return [str(name).removeprefix("/") for name in listed] if isinstance(listed, list) else []


@transaction.atomic
def end_former_connections(*, slug: str, actor: User) -> None:
    """End the connections that a deleted server of this short name has left to a new one.

    The new one may call other people by the same ids, and would let them into these accounts.
    """
    former = SocialAccount.objects.filter(provider=slug)
    for account in former.select_related("user"):
        ended = {"change": "account_disconnected", "server": slug}
        record_event(Action.ACCOUNT_CHANGED, actor=actor, subject=account.user, details=ended)
    former.delete()


# Connecting by hand. The link to the server is made for one session, by a page that has asked who
# it is: nobody's account can be connected by an address that somebody else has sent.


def is_connecting(sociallogin: SocialLogin) -> bool:
    """Whether who comes back from a server wanted to connect an account, not to sign in."""
    return bool(sociallogin.state.get("process") == AuthProcess.CONNECT)


def make_connect_link(request: HttpRequest, server: SignOnServer) -> str:
    """The address that connects the account of this session with one at the server."""
    word = signing.dumps(server.slug, salt=_get_connect_salt(request))
    query = urlencode({CONNECT: word})
    return f"{reverse('openid_connect_login', args=[server.slug])}?{query}"


def is_connect_link(request: HttpRequest, slug: str) -> bool:
    """Whether the address was made in this session, for that server, not long ago."""
    if not request.user.is_authenticated:
        return False
    try:
        told = signing.loads(
            request.GET.get(CONNECT, ""),
            salt=_get_connect_salt(request),
            max_age=CONNECT_SECONDS,
        )
    except signing.BadSignature:
        return False
    return bool(told == slug)


def _get_connect_salt(request: HttpRequest) -> str:
    return f"nura.connect:{request.session.session_key}:{request.user.pk}"


def _show_not_connected(request: HttpRequest, name: str, reason: str = "") -> None:
    told = (
        _("Your account at %(name)s has no verified e-mail address of this organization.")
        if reason == "domain"
        else _("%(name)s could not be reached, or its reply could not be trusted.")
    )
    messages.error(request, f"{_('Nothing was connected.')} {told % {'name': name}}")


class DisconnectServerForm(DisconnectForm):  # type: ignore[misc]
    """One of the connections; that with a directory ends in the directory."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        field = self.fields["account"]
        field.queryset = field.queryset.filter(provider__in=[one.slug for one in list_servers()])


@method_decorator(never_cache, name="dispatch")
class SignOnSection(ConnectionsView):  # type: ignore[misc]
    """By which servers one can sign in to the account; POST ends a connection."""

    form_class = DisconnectServerForm
    success_url = reverse_lazy("accounts:sign-on")

    def render_to_response(self, context: dict[str, Any], **options: Any) -> HttpResponse:
        """Connections, and servers to connect."""
        servers = {server.slug: server for server in list_servers()}
        held = SocialAccount.objects.filter(user=cast("User", self.request.user)).order_by("pk")
        connected = [
            {"account": one, "server": servers[one.provider], "name": _name_account(one)}
            for one in held
            if one.provider in servers
        ]
        taken = {one.provider for one in held}
        told = {
            "form": context["form"],
            "connected": connected,
            "is_of_directory": DIRECTORY_PROVIDER in taken,
            "servers": [server for slug, server in servers.items() if slug not in taken],
        }
        return render_section(self.request, "accounts:profile", "settings/sign_on.html", told)


def _name_account(account: SocialAccount) -> str:
    """What the person calls the account there; the server's own id where it tells nothing else."""
    told = account.extra_data
    return str(told.get("email") or told.get("preferred_username") or account.uid)


@never_cache
@login_required
@reauthentication_required  # type: ignore[untyped-decorator]
@require_safe
def connect_server(request: HttpRequest, slug: str) -> HttpResponse:
    """Say what connecting means, and lead on to the server."""
    server = get_object_or_404(SignOnServer, slug=slug, is_active=True)
    link = make_connect_link(request, server) if _has_signed_in_lately(request) else ""
    told = {"server": server, "link": link}
    return render_section(request, "accounts:profile", "settings/sign_on_connect.html", told)


def _has_signed_in_lately(request: HttpRequest) -> bool:
    """Whether it is surely the person; who has nothing here to show again has to sign in again."""
    if get_reauthentication_flows(request.user):
        return True  # then it was asked for
    records = get_authentication_records(request, request.user)
    newest = max((record["at"] for record in records), default=0.0)
    return bool(time.time() - newest < account_settings.REAUTHENTICATION_TIMEOUT)


# Pages


def sign_in(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Send the visitor to the server."""
    if CONNECT in request.GET and not is_connect_link(request, provider_id):
        return redirect("accounts:sign-on")
    return _run_view(request, provider_id, OAuth2LoginView)


def come_back(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Take who comes back from the server."""
    return _run_view(request, provider_id, SignOnCallback)


class SignOnCallback(OAuth2CallbackView):  # type: ignore[misc]
    """Allauth's, which tells what was begun even where the server cannot be asked any more."""

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
        told = {"state": adapter.state}
        response = render_authentication_error(
            request, provider, exception=error, extra_context=told
        )
    response.headers["Cache-Control"] = "no-store"
    return response


def find_session_server(request: HttpRequest) -> SignOnServer | None:
    """The server by which this session was begun."""
    records = (
        get_authentication_records(request, request.user) if request.user.is_authenticated else []
    )
    slugs = [record["provider"] for record in records if record["method"] == "socialaccount"]
    return SignOnServer.objects.filter(slug__in=slugs[-1:], is_active=True).first()


@require_safe
@never_cache
def signed_out(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Signed out of Nura; the server's own sign-out is one click away."""
    server = get_object_or_404(SignOnServer, slug=provider_id, is_active=True)
    try:
        address = fetch_server_configuration(server.issuer).get("end_session_endpoint", "")
    except SignOnFailed:
        address = ""
    if address:
        back = request.build_absolute_uri("/")
        query = {"client_id": server.client_id, "post_logout_redirect_uri": back}
        address = f"{address}?{urlencode(query)}"
    return render(request, "socialaccount/signed_out.html", {"server": server, "address": address})


def list_servers() -> list[SignOnServer]:
    """The buttons of the sign-in page."""
    return list(SignOnServer.objects.filter(is_active=True).order_by("name"))
