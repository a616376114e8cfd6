"""The ASGI application: HTTP by Django, `/ws/chat/` by Channels.

Who may connect is the consumer's matter.
"""

import os
import warnings

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nura.settings.prod")
# WhiteNoise hands its small files over piece by piece in a thread; Django warns at the first one.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous")
django_application = get_asgi_application()

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402 - needs loaded apps
from django.urls import path  # noqa: E402

from chats.consumers import ChatConsumer  # noqa: E402
from nura.body_limit import BodyLimit  # noqa: E402
from nura.metrics import CountedSockets  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": BodyLimit(django_application),
        "websocket": CountedSockets(URLRouter([path("ws/chat/", ChatConsumer.as_asgi())])),
    }
)
