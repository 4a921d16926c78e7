"""A FastAPI application under several uvicorn workers with one instance ID.

    uvicorn --app-dir docs/examples --workers 3 fastapi_app:app
    curl -X POST http://127.0.0.1:8000/orders/3

Each worker imports the application and has its own life. The instance ID is TALLYSTREAM_INSTANCE or, by default, the
host name. Requires tallystream, FastAPI and uvicorn.
"""

from __future__ import annotations

from fastapi import FastAPI

from tallystream import report
from tallystream.web import AsgiMiddleware

registry = report("shop")
orders = registry.counter("orders.placed")
app = FastAPI()
app.add_middleware(AsgiMiddleware, registry=registry)


@app.post("/orders/{items}")
async def place(items: int) -> str:
    """Do the application's work."""
    orders.inc(items)
    return f"{items} ordered"
