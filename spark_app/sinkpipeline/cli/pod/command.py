"""The command of a driver pod: `main.py --config FILE ...`, as the operator writes it into a SparkApplication."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from sinkpipeline.cli.display import Lines
from sinkpipeline.cli.endings import CUT_SHORT, told
from sinkpipeline.cli.main import check_master
from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.cli.pod.pod_log import pod_log, tell_error
from sinkpipeline.cli.pod.service import Service
from sinkpipeline.cli.pod.termination import DEFAULT, TerminationLog
from sinkpipeline.cli.pod.vitals import Vitals
from sinkpipeline.cli.signals import stop_on_signal
from sinkpipeline.core.errors import ExitCode, Reason, SinkPipelineError
from sinkpipeline.core.log_lines import PIPELINE, RUN
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.resume import Resume, parse
from sinkpipeline.core.served import DriverInfo, Observation
from sinkpipeline.kinds.given import read_given
from sinkpipeline.kinds.looking import preflight
from sinkpipeline.kinds.no_sinks import NoSinks
from sinkpipeline.kinds.resolve import resolve_sinks, resolve_stage
from sinkpipeline.spark.driver import Driver
from sinkpipeline.spark.reading import Reading

_LOG = logging.getLogger("sinkpipeline.driver")

_CLOSING = "change the spec or spec.restartNonce"
_FILE = click.Path(path_type=Path, dir_okay=False)


def _listen(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, int]:
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+)):([0-9]{1,5})", value)
    if found is None or int(found[3]) > 65_535:  # noqa: PLR2004 - the last port
        raise click.BadParameter(f"{value!r} is not HOST:PORT")
    return found[1] or found[2], int(found[3])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", required=True, type=_FILE, help="The manifest, with every default.")
@click.option("--resume", type=_FILE, help="What earlier drivers have reached, open circuits, an owner to adopt; JSON.")
@click.option("--secrets-dir", type=click.Path(path_type=Path, file_okay=False), help="Holds <secret>/<key>.")
@click.option("--config-maps-dir", type=click.Path(path_type=Path, file_okay=False), help="Holds <name>/<key>.")
@click.option("--listen", required=True, metavar="HOST:PORT", callback=_listen, help="Where the service listens.")
@click.option("--token-file", required=True, type=_FILE, help="Holds the bearer token of /status and /metrics.")
@click.option(
    "--termination-log", type=_FILE, default=DEFAULT, show_default=True, help="Where the last words are written."
)
@click.option("--owner-cluster", required=True, help="The uid of the namespace kube-system.")
@click.option(
    "--config-hash", required=True, help="The configuration's hash; an open circuit stays open until it changes."
)
@click.option("--open-metrics", is_flag=True, help="Answer /metrics without the token.")
@click.option("--master", callback=check_master, help="Spark's master; by default the one that spark-submit gives.")
@click.pass_obj
def drive(log: TerminationLog, /, **options: Any) -> None:
    """Run a pipeline as the driver of a Spark pod, until SIGTERM.

    Exit codes are those of `sinkpipeline run`.
    """
    given = _Options(**options)
    log.path = given.termination_log
    info = DriverInfo(config_hash=given.config_hash, run=str(uuid.uuid4()), pid=os.getpid())
    # Also for the lines of the JVM, of executors and of their workers.
    os.environ[RUN] = info.run
    log.vitals = vitals = Vitals(info)
    stop = threading.Event()
    with (
        stop_on_signal(stop, at_once=lambda: log.failed(CUT_SHORT)),
        Service(vitals, *given.listen, given.token_file, open_metrics=given.open_metrics),
    ):
        driver = _driver(given, vitals, stop)
        if driver is not None:
            driver.run()
        log.done(stopped=stop.is_set())


@dataclass(frozen=True, kw_only=True)
class _Options:
    config: Path
    resume: Path | None
    secrets_dir: Path | None
    config_maps_dir: Path | None
    listen: tuple[str, int]
    token_file: Path
    termination_log: Path
    owner_cluster: str
    config_hash: str
    open_metrics: bool
    master: str | None


def _driver(given: _Options, vitals: Vitals, stop: threading.Event) -> Driver | Reading | None:
    """None where the pipeline is suspended."""
    pipeline = read_manifest(given.config)
    if pipeline.spec.suspend:
        _LOG.info("%s is suspended (spec.suspend): nothing to run", pipeline.identity)
        return None
    pipeline = read_given(pipeline, given.config_maps_dir)
    identity = pipeline.identity
    os.environ[PIPELINE] = f"{pipeline.metadata.namespace}/{pipeline.metadata.name}"
    resume = Resume(identity=identity) if given.resume is None else read_resume(given.resume, identity)
    owner = Owner(cluster=given.owner_cluster, name=f"{pipeline.metadata.namespace}/{pipeline.metadata.name}")
    resolved = resolve_sinks(pipeline, given.secrets_dir)
    sinks = [replace(sink, owner=owner, adopt=resume.adopt) for sink in resolved]
    stage = resolve_stage(pipeline, given.secrets_dir, owner)
    closed = [sink for sink in sinks if sink.id.sink not in resume.open_circuits(given.config_hash)]
    if closed:
        for warning in preflight(closed):
            _LOG.warning("%s", warning)
    _LOG.info("running %s, configuration %s", identity, given.config_hash)
    lines = Lines()

    def observe(seen: Observation) -> None:
        vitals.observe(seen)
        lines(seen)

    if stage is not None:
        stage = replace(stage, adopt=resume.adopt)
        if not sinks:
            return Reading(NoSinks(pipeline=pipeline, observe=observe, closing=_CLOSING, stop=stop), stage)
    driver = Driver(
        pipeline=pipeline,
        sinks=sinks,
        resume=resume,
        observe=observe,
        master=given.master,
        log_file=None,
        config_hash=given.config_hash,
        closing=_CLOSING,
        stop=stop,
    )
    # Where no sink would run, nobody needs what a stage reads.
    return driver if stage is None or not closed else Reading(driver, stage)


def read_resume(path: Path, identity: str) -> Resume:
    """The operator's document.

    Raises:
        SinkPipelineError: StatusFileInvalid.
    """
    try:
        document: object = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SinkPipelineError(
            Reason.STATUS_FILE_INVALID,
            f"{path} can't be read: {error}",
            "it is what a lost progress topic would be restored from: let it be written again",
        ) from error
    return parse(document, identity)


def run(arguments: Sequence[str]) -> int:
    """The exit code; the last words are written in any case, and the last line on stderr has the reason."""
    log = TerminationLog()
    with pod_log():
        try:
            drive.main(list(arguments), prog_name="main.py", standalone_mode=False, obj=log)
        except BaseException as raised:  # noqa: BLE001 - whatever it is, it is told
            error = told(raised)
            if error.reason is Reason.INTERNAL_ERROR:
                _LOG.debug("ended by a bug", exc_info=True)
            log.failed(error)
            tell_error(_LOG, error)
            return error.reason.exit_code
    return ExitCode.DONE


def main() -> None:
    sys.exit(run(sys.argv[1:]))
