from __future__ import annotations

import sys

from chaos.run import main

sys.exit(main())
