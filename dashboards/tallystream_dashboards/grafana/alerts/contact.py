"""The contact point, as Grafana's HTTP API takes it (POST /api/v1/provisioning/contact-points)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.settings import Settings

_KEYS = {"webhook": "url", "email": "addresses"}


def contact_point(settings: Settings) -> dict[str, Any]:
    """Return the contact point, named like the folder; each rule names it as its receiver."""
    contact = settings.contact
    return {
        "uid": settings.uid("contact"),
        "name": settings.folder_title,
        "type": contact.kind,
        "settings": {_KEYS[contact.kind]: contact.address},
        "disableResolveMessage": False,
    }
