"""Keeps the seeds that still find their mutations, and looks for the others: `make seeds`."""

from __future__ import annotations

import json
import logging
import sys

from model import test_changes, test_mutations, test_taking_over
from model.product import product_on_the_model
from model.sought import SEEDS

SOUGHT = (*test_mutations.SOUGHT, *test_changes.SOUGHT, *test_taking_over.SOUGHT)


def main() -> int:
    logging.disable(logging.CRITICAL)
    kept = json.loads(SEEDS.read_text())
    found: dict[str, int] = {}
    with product_on_the_model():
        for each in SOUGHT:
            seed = kept.get(each.name)
            if seed is None or not each.is_found_by(seed):
                seed = each.seed()
                print(f"{each.name}: {'no seed finds it' if seed is None else seed}", flush=True)
            if seed is not None:
                found[each.name] = seed
    SEEDS.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
