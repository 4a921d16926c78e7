"""The health check of containers: `python -m tallystream_cli.health_check http://127.0.0.1:9400/healthz`.

It ends with exit code 0 if the address answers with a success within five seconds, and with 1 if not.
"""

from __future__ import annotations

import sys
from urllib.request import urlopen

TIMEOUT_S = 5.0


def main(url: str) -> int:
    """Return the exit code for a URL. The reason for a failure goes to standard error."""
    try:
        urlopen(url, timeout=TIMEOUT_S).close()  # noqa: S310 - the image names the URL
    except (OSError, ValueError) as error:  # HTTPError is an OSError
        sys.stderr.write(f"{url}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
