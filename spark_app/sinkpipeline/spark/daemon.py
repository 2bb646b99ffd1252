"""The parent of the Python workers, named in `spark.python.daemon.module`.

pyspark calls importlib.invalidate_caches() for every task, and each archive on sys.path then reads its directory again:
three quarters of a small task's time. So this process imports what workers need, forgets the archives, and freezes what
it has from the collector; the workers are forked from it.
"""

from __future__ import annotations

import gc
import sys
from zipimport import zipimporter

import pyarrow as pa  # noqa: F401 - for the workers
import pyspark.daemon
import pyspark.sql.pandas.serializers
import pyspark.worker

import sinkpipeline.spark.task  # noqa: F401 - for the workers


def _forget_archives() -> None:
    archives = [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]
    for path in archives:
        del sys.path_importer_cache[path]
    sys.path[:] = [path for path in sys.path if not path.endswith((".zip", ".jar", ".egg"))]


if __name__ == "__main__":
    # Only where pyspark itself stands in site-packages: otherwise the archives are where it comes from.
    if not any(part.endswith(".zip") for part in (pyspark.daemon.__file__ or "").split("/")):
        _forget_archives()
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()  # type: ignore[no-untyped-call]
