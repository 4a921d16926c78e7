"""A Flask application under several gunicorn workers with one instance ID.

    gunicorn --chdir docs/examples --workers 4 --preload flask_app:app
    curl -X POST http://127.0.0.1:8000/orders/3

With --preload, gunicorn loads the application once and then forks: each worker has its own life and counts from zero.
Without it, each worker loads the application. The instance ID is TALLYSTREAM_INSTANCE or, by default, the host name.
Requires tallystream, Flask and gunicorn.
"""

from __future__ import annotations

from flask import Flask

from tallystream import report
from tallystream.web import WsgiMiddleware

registry = report("shop")
orders = registry.counter("orders.placed")
app = Flask(__name__)
app.wsgi_app = WsgiMiddleware(app.wsgi_app, registry=registry)  # type: ignore[method-assign]


@app.post("/orders/<int:items>")
def place(items: int) -> str:
    """Do the application's work."""
    orders.inc(items)
    return f"{items} ordered\n"
