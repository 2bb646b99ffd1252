"""`sinkpipeline run`: the driver of a manifest file, its signals, its status file and what it shows."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import platformdirs

from sinkpipeline.cli.display import display
from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.cli.signals import stop_on_signal
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.resume import Resume, from_status
from sinkpipeline.core.served import Observation
from sinkpipeline.core.status import write_over
from sinkpipeline.kafka.purify import preflight
from sinkpipeline.kafka.resolve import resolve_sinks
from sinkpipeline.spark.driver import Driver


def run(
    manifest: Path,
    secrets_dir: Path | None,
    status_file: Path | None,
    master: str,
    log_file: Path | None,
    *,
    until_idle: bool,
) -> None:
    pipeline = read_manifest(manifest)
    if pipeline.spec.suspend:
        click.echo(f"{pipeline.identity} is suspended (spec.suspend): nothing to run", err=True)
        return
    earlier = None if status_file is None else read_status(status_file)
    identity = pipeline.identity
    resume = Resume(identity=identity) if earlier is None else from_status(earlier, identity)
    document = None if status_file is None else _StatusFile(status_file)
    sinks = resolve_sinks(pipeline, secrets_dir)
    warnings = preflight(sinks)
    log_file = writable_log(log_file, pipeline.identity)
    with display([sink.id.sink for sink in sinks], log_file) as show:
        logger = logging.getLogger("sinkpipeline")
        logger.info("running %s; Spark logs to %s", pipeline.identity, log_file)
        for warning in warnings:
            logger.warning("%s", warning)

        def observe(seen: Observation) -> None:
            if document is not None:
                document.write(seen.status)
            show(seen)

        driver = Driver(
            pipeline=pipeline,
            sinks=sinks,
            resume=resume,
            observe=observe,
            master=master,
            log_file=log_file,
            until_idle=until_idle,
        )
        with stop_on_signal(driver.stop):
            driver.run()


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


def read_status(path: Path) -> object | None:
    try:
        document: object = json.loads(path.read_text())
    except FileNotFoundError:
        if path.parent.is_dir():
            return None
        raise SinkPipelineError(
            Reason.STATUS_FILE_INVALID, f"{path} can't be written: {path.parent} is no directory", "create it"
        ) from None
    except (OSError, ValueError) as error:
        raise SinkPipelineError(
            Reason.STATUS_FILE_INVALID,
            f"the earlier status in {path} can't be read: {error}",
            "it is what a lost progress topic would be restored from: mend it, or name another file",
        ) from error
    return document


class _StatusFile:
    """Replaces the file as a whole, and only if the status changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError as error:
            raise SinkPipelineError(
                Reason.STATUS_FILE_INVALID,
                f"{path} can't be written: {error}",
                "it is what a lost progress topic would be restored from: name a file in a writable directory",
            ) from error
        self._text = self._read()
        self._trouble = ""

    def write(self, status: Mapping[str, Any]) -> None:
        """A failure is told once and the run goes on: the progress topic is the truth, this is a copy."""
        there = self._read()
        merged = write_over(_parse(there), status, own=there == self._text)
        if merged is None:
            return
        text = json.dumps(merged, indent=2) + "\n"
        if there == text:
            return
        part = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            with part.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._path)
        except OSError as error:
            if str(error) != self._trouble:
                logging.getLogger("sinkpipeline").warning("the status can't be written to %s: %s", self._path, error)
                self._trouble = str(error)
        else:
            self._text, self._trouble = text, ""

    def _read(self) -> str:
        try:
            return self._path.read_text()
        except (OSError, ValueError):
            return ""


def _parse(text: str) -> object:
    try:
        document: object = json.loads(text)
    except ValueError:
        return None
    return document
