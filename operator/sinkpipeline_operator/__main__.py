from __future__ import annotations

import sys

from sinkpipeline_operator.program import main

sys.exit(main())
