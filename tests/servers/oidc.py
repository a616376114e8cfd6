"""An independent OpenID Connect server: authlib on Flask, over real HTTP.

It demands PKCE. Tests set whom it signs in, and which of its claims are wrong.
"""

import contextlib
import functools
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, grants
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import OpenIDCode, UserInfo
from flask import Flask, jsonify, redirect, request
from joserfc import jwt
from joserfc.jwk import RSAKey
from werkzeug.serving import make_server

from tests.servers.wire import POLL_SECONDS

CLIENT_ID, CLIENT_SECRET = "nura", "a secret of the client"


class Client(ClientMixin):
    """Nura, as the server knows it."""

    id_token_signed_response_alg = "RS256"

    def get_client_id(self):
        return CLIENT_ID

    def get_default_redirect_uri(self):
        return ""

    def get_allowed_scope(self, scope):
        return scope

    def check_redirect_uri(self, redirect_uri):
        return redirect_uri.endswith("/login/callback/")

    def check_client_secret(self, client_secret):
        return client_secret == CLIENT_SECRET

    def check_endpoint_auth_method(self, method, endpoint):
        return method in {"client_secret_basic", "client_secret_post"}

    def check_response_type(self, response_type):
        return response_type == "code"

    def check_grant_type(self, grant_type):
        return grant_type == "authorization_code"


@dataclass
class Code:
    """An authorization code that was not exchanged yet."""

    user: dict
    redirect_uri: str
    scope: str
    nonce: str
    code_challenge: str
    code_challenge_method: str

    def get_redirect_uri(self):
        return self.redirect_uri

    def get_scope(self):
        return self.scope


@functools.cache
def make_key() -> RSAKey:
    """The key of all servers of this process: making one takes longer than a test."""
    return RSAKey.generate_key(2048, {"kid": "one"})


@dataclass
class OidcServer:
    """`person` is who is signed in there; the other fields are what the server gets wrong."""

    url: str = ""
    person: dict[str, Any] = field(default_factory=dict)
    wrong_claims: dict[str, Any] = field(default_factory=dict)
    """Claims of the ID token that replace the right ones; those that are None are left out."""
    userinfo: dict[str, Any] = field(default_factory=dict)
    discovery: dict[str, Any] = field(default_factory=dict)
    is_down: bool = False
    key: RSAKey = field(default_factory=make_key)
    signed_with: RSAKey | None = None
    verifiers: list[str] = field(default_factory=list)
    """The PKCE verifiers that clients have sent."""

    def make_app(self):
        app = Flask("oidc")
        codes: dict[str, Code] = {}
        users_by_token: dict[str, dict] = {}

        class Grant(grants.AuthorizationCodeGrant):
            TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")

            def save_authorization_code(self, code, oauth_request):
                data = oauth_request.payload.data
                codes[code] = Code(
                    oauth_request.user,
                    oauth_request.payload.redirect_uri,
                    oauth_request.payload.scope,
                    data.get("nonce", ""),
                    data.get("code_challenge", ""),
                    data.get("code_challenge_method", ""),
                )

            def query_authorization_code(self, code, client):
                return codes.get(code)

            def delete_authorization_code(self, authorization_code):
                for name in [n for n, one in codes.items() if one is authorization_code]:
                    del codes[name]

            def authenticate_user(self, authorization_code):
                return authorization_code.user

        outer = self

        class Identity(OpenIDCode):
            def exists_nonce(self, nonce, oauth_request):
                return any(one.nonce == nonce for one in codes.values())

            def generate_user_info(self, user, scope):
                return UserInfo(user)

            def encode_id_token(self, token, oauth_request):
                now = int(time.time())
                claims = {"iss": outer.url, "aud": CLIENT_ID, "iat": now, "exp": now + 300}
                claims |= (
                    {"nonce": oauth_request.authorization_code.nonce}
                    | oauth_request.user
                    | outer.wrong_claims
                )
                present = {name: value for name, value in claims.items() if value is not None}
                key = outer.signed_with or outer.key
                return jwt.encode({"alg": "RS256", "kid": "one"}, present, key, ["RS256"])

        server = AuthorizationServer(
            app,
            query_client=lambda name: Client() if name == CLIENT_ID else None,
            save_token=lambda token, oauth_request: users_by_token.update(
                {token["access_token"]: oauth_request.user}
            ),
        )
        server.register_grant(Grant, [Identity(require_nonce=True), CodeChallenge(required=True)])

        self._add_routes(app, server, users_by_token)
        return app

    def _add_routes(self, app, server, users_by_token):
        @app.before_request
        def fail():
            return ("down", 503) if self.is_down else None

        @app.get("/.well-known/openid-configuration")
        def configuration():
            paths = {"authorization_endpoint": "authorize", "token_endpoint": "token"}
            paths |= {"jwks_uri": "jwks", "userinfo_endpoint": "userinfo"}
            paths |= {"end_session_endpoint": "end"}
            addresses = {name: f"{self.url}/{path}" for name, path in paths.items()}
            return jsonify({"issuer": self.url} | addresses | self.discovery)

        @app.get("/jwks")
        def jwks():
            return jsonify({"keys": [self.key.as_dict(private=False, alg="RS256", use="sig")]})

        @app.get("/authorize")
        def authorize():
            grant = server.get_consent_grant(end_user=self.person)
            return server.create_authorization_response(grant=grant, grant_user=self.person)

        @app.post("/token")
        def token():
            self.verifiers.append(request.form.get("code_verifier", ""))
            return server.create_token_response()

        @app.get("/userinfo")
        def userinfo():
            user = users_by_token.get(request.headers["Authorization"].partition(" ")[2])
            return jsonify(user | self.userinfo) if user else ("", 401)

        @app.get("/end")
        def end():
            return redirect(request.args["post_logout_redirect_uri"])


@contextlib.contextmanager
def run_server(**fields):
    """Run the server on a free local port."""
    server = OidcServer(**fields)
    http_server = make_server("127.0.0.1", 0, server.make_app(), threaded=True)
    server.url = f"http://127.0.0.1:{http_server.server_port}"
    thread = threading.Thread(target=http_server.serve_forever, args=(POLL_SECONDS,))
    thread.start()
    try:
        yield server
    finally:
        http_server.shutdown()
        thread.join(10)
        http_server.server_close()
