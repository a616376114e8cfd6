"""Exit status 0 when `/readyz` answers 200; for the HEALTHCHECK of the image."""

import os
import sys
import urllib.error
import urllib.request

host = os.environ.get("ALLOWED_HOSTS", "localhost").split(",")[0].lstrip(".*") or "localhost"
port = os.environ.get("NURA_PORT", "8000")
request = urllib.request.Request(f"http://127.0.0.1:{port}/readyz", headers={"Host": host})
try:
    urllib.request.urlopen(request, timeout=8).close()
except (urllib.error.URLError, OSError) as error:
    sys.exit(str(error))
