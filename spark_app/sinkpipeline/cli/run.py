"""`sinkpipeline run`: the driver of a manifest file, its signals and what it shows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import platformdirs

from sinkpipeline.cli.display import display
from sinkpipeline.cli.endings import CUT_SHORT, tell_at_once
from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.cli.say import say
from sinkpipeline.cli.signals import stop_on_signal
from sinkpipeline.cli.status_file import StatusFile, read_status
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.resume import Resume, from_status
from sinkpipeline.core.served import Observation
from sinkpipeline.kinds.given import read_given
from sinkpipeline.kinds.looking import preflight
from sinkpipeline.kinds.no_sinks import NoSinks
from sinkpipeline.kinds.resolve import file_owner, resolve_sinks, resolve_stage
from sinkpipeline.spark.driver import Driver
from sinkpipeline.spark.reading import Reading


def run(
    manifest: Path,
    secrets_dir: Path | None,
    status_file: Path | None,
    master: str,
    log_file: Path | None,
    *,
    config_maps_dir: Path | None = None,
    jars: Sequence[str] = (),
    until_idle: bool,
) -> None:
    pipeline = read_manifest(manifest)
    if pipeline.spec.suspend:
        say(f"{pipeline.identity} is suspended (spec.suspend): nothing to run", err=True)
        return
    pipeline = read_given(pipeline, config_maps_dir)
    earlier = None if status_file is None else read_status(status_file)
    identity = pipeline.identity
    resume = Resume(identity=identity) if earlier is None else from_status(earlier, identity)
    document = None if status_file is None else StatusFile(status_file)
    sinks = resolve_sinks(pipeline, secrets_dir)
    stage = resolve_stage(pipeline, secrets_dir, file_owner(pipeline))
    warnings = preflight(sinks)
    log_file = writable_log(log_file, pipeline.identity)
    with display([sink.id.sink for sink in sinks], log_file) as show:
        logger = logging.getLogger("sinkpipeline")
        logger.info("running %s; %s logs to %s", pipeline.identity, "Spark" if sinks else "it", log_file)
        for warning in warnings:
            logger.warning("%s", warning)

        def observe(seen: Observation) -> None:
            if document is not None:
                document.write(seen.status)
            show(seen)

        driver: Driver | NoSinks
        if stage is not None and not sinks:
            driver = NoSinks(pipeline=pipeline, observe=observe, until_idle=until_idle)
        else:
            driver = Driver(
                pipeline=pipeline,
                sinks=sinks,
                resume=resume,
                observe=observe,
                master=master,
                log_file=log_file,
                until_idle=until_idle,
                jars=jars,
            )

        def at_once() -> None:
            if document is not None:
                document.cut_short()
            tell_at_once(CUT_SHORT)

        with ExitStack() as ends, stop_on_signal(driver.stop, at_once):
            if document is not None:
                ends.callback(lambda: document.end(completed=driver.completed))
            if stage is None:
                driver.run()
            else:
                Reading(driver, stage).run()


def writable_log(path: Path | None, name: str) -> Path:
    """Where Spark logs to: by default in the user's log folder."""
    path = path or platformdirs.user_log_path("sinkpipeline", appauthor=False) / f"{name}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        raise SinkPipelineError(
            Reason.LOG_FILE_INVALID, f"{path} can't be written: {error}", "give --log-file another path"
        ) from error
    return path
