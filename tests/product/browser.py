"""A person's signed-in session, as a browser holds it."""

import http.cookiejar
import urllib.parse
import urllib.request


class Browser:
    """Cookies and forms, nothing more."""

    def __init__(self, url):
        self.url = url
        self._jar = http.cookiejar.CookieJar()
        handler = urllib.request.HTTPCookieProcessor(self._jar)
        self._opener = urllib.request.build_opener(handler)

    @property
    def cookie(self):
        """The header that goes with a request."""
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())

    @property
    def cookies(self):
        """Values by name."""
        return {one.name: one.value for one in self._jar}

    def sign_in(self, name, password="correct-horse-9"):
        self._post("/accounts/login/", login=name, password=password)

    def sign_out(self):
        """End the session on the server; the cookie stays, as on a tab that has not heard of it."""
        kept = list(self._jar)
        self._post("/accounts/logout/")
        for one in kept:
            self._jar.set_cookie(one)

    def _post(self, path, **fields):
        self._opener.open(self.url + path).read()
        token = next(one.value for one in self._jar if one.name == "csrftoken")
        form = urllib.parse.urlencode(fields | {"csrfmiddlewaretoken": token}).encode()
        assert self._opener.open(self.url + path, form).status == 200
