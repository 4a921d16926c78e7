"""A Flask application under several gunicorn workers with one instance ID.

    TALLYSTREAM_BOOTSTRAP_SERVERS=localhost:9092 gunicorn --chdir docs/examples --workers 4 --preload flask_app:app
    curl -X POST http://127.0.0.1:8000/orders/3

With --preload, gunicorn loads the application once and then forks: each worker has its own life and counts from zero.
Without it, each worker loads the application. The instance ID is TALLYSTREAM_INSTANCE or, by default, the host name.
Requires tallystream, Flask and gunicorn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask, g, request

from tallystream import report

if TYPE_CHECKING:
    from flask import Response

registry = report("shop")
orders = registry.counter("orders.placed")
http = registry.child("http")
app = Flask(__name__)


@app.before_request
def begin() -> None:
    """Start the timer of the request."""
    g.timing = http.timer("requests", tags={"route": str(request.url_rule), "method": request.method}).time()
    g.timing.__enter__()


@app.after_request
def end(response: Response) -> Response:
    """Stop the timer, and count the response by status."""
    g.timing.__exit__(None, None, None)
    http.counter("responses", tags={"status": str(response.status_code)}).inc()
    return response


@app.post("/orders/<int:items>")
def place(items: int) -> str:
    """Do the application's work."""
    orders.inc(items)
    return f"{items} ordered\n"
