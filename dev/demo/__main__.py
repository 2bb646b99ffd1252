from __future__ import annotations

import sys

from demo.play import main

sys.exit(main(*sys.argv[1:]))
