"""`helm test`: asks an operator whether it is ready, and says what it answers.

`python -m sinkpipeline_operator.ready URL [SECONDS]` ends with 0 once it is, with 1 where it is not in so many seconds.
"""

from __future__ import annotations

import sys
import time
import urllib.error
import urllib.request

_PATIENCE_S = 60.0
_TIMEOUT_S = 5.0
_AGAIN_S = 1.0


def asked(url: str) -> tuple[bool, str]:
    """Whether it is ready, and its own words or why there are none."""
    # Not by the proxy of the environment: it is the next pod.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_TIMEOUT_S) as answer:
            return True, answer.read().decode(errors="replace").strip()
    except urllib.error.HTTPError as error:
        return False, error.read().decode(errors="replace").strip()
    except OSError as error:
        return False, f"no answer: {error}"


def main() -> int:
    url, patience_s = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else _PATIENCE_S  # noqa: PLR2004
    deadline = time.monotonic() + patience_s
    while True:
        ready, said = asked(url)
        if ready or time.monotonic() > deadline:
            print(f"{url}: {said}", flush=True)  # noqa: T201 - the pod's log is what a person sees
            return 0 if ready else 1
        time.sleep(_AGAIN_S)


if __name__ == "__main__":
    sys.exit(main())
