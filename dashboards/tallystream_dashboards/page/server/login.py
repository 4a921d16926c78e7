"""The page that asks for the password: HTML with nothing from outside, no script, and no text of the visitor's."""

from __future__ import annotations

CONTENT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; frame-ancestors 'none'"
)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Tallystream</title>
<link rel="icon" href="data:,">
<style>
:root {{ color-scheme: light dark; font-family: "Source Sans", sans-serif; }}
form {{ max-width: 22rem; margin: 12vh auto; padding: 0 1rem; display: grid; gap: .6rem; }}
input, button {{ font: inherit; padding: .5rem; }}
[role=alert] {{ border-left: .3rem solid #d9362b; padding-left: .6rem; }}
</style>
</head>
<body>
<form method="post">
<h1>Tallystream</h1>
{said}<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required autofocus>
<button>Log in</button>
</form>
</body>
</html>
"""


def login_page(said: str = "") -> str:
    """Return the page, with a sentence of ours above the field."""
    return _PAGE.format(said=f'<p role="alert">{said}</p>\n' if said else "")
