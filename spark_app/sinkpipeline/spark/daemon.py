"""The parent of the Python workers, named in `spark.python.daemon.module`.

pyspark calls importlib.invalidate_caches() for every task, and each archive that anything was imported from then reads
its directory again: 0.2 s of CPU per task, as Spark puts its own archives and a jar before everything else. So this
process forgets the archives before it imports pyspark from where it is installed; imports what workers need; and
freezes what it has from the collector. The workers are forked from it.

Their connections are prompt (see `prompt`).
"""

from __future__ import annotations

import gc
import sys
from importlib.machinery import PathFinder
from zipimport import zipimporter

_ARCHIVES = (".zip", ".jar", ".egg")


def _forget_archives() -> None:
    """Leaves them where pyspark can be had only from them."""
    directories = [path for path in sys.path if not path.endswith(_ARCHIVES)]
    if any(PathFinder.find_spec(name, directories) is None for name in ("pyspark", "py4j")):
        return
    sys.path[:] = directories
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


if __name__ == "__main__":
    _forget_archives()

    # pyarrow imports it with the first array that it makes.
    import pandas as pd  # noqa: F401
    import pyspark.daemon
    import pyspark.sql.pandas.serializers
    import pyspark.worker

    # A plan names its kind of sink, and unpickled it would bring that in, in each worker anew.
    import sinkpipeline.kinds
    import sinkpipeline.spark.task  # noqa: F401
    from sinkpipeline.spark import worker_log
    from sinkpipeline.spark.prompt import promptly

    worker_log.set_up()

    pyspark.daemon.worker_main = promptly(pyspark.daemon.worker_main)
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()  # type: ignore[no-untyped-call]
